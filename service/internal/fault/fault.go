// Package fault holds the one kind of error that has a meaning for callers. Anything else that reaches the edge of the
// service is either the database being away or a defect, and shows no text of its own.
package fault

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Code is a stable name of a refusal. Each has a page under docs/problems.
type Code string

// The codes and the HTTP status each is answered with.
const (
	InvalidRequest        Code = "invalid_request"         // 400
	CursorInvalid         Code = "cursor_invalid"          // 400
	IdempotencyMissing    Code = "idempotency_missing"     // 400
	Unauthenticated       Code = "unauthenticated"         // 401
	Forbidden             Code = "forbidden"               // 403
	NotFound              Code = "not_found"               // 404
	MethodNotAllowed      Code = "method_not_allowed"      // 405
	RequestTimeout        Code = "request_timeout"         // 408
	StateConflict         Code = "state_conflict"          // 409
	PrincipalMismatch     Code = "principal_mismatch"      // 409
	IdempotencyInProgress Code = "idempotency_in_progress" // 409
	StaleAttempt          Code = "stale_attempt"           // 409
	LeaseLost             Code = "lease_lost"              // 409
	SessionSuperseded     Code = "session_superseded"      // 409
	ResultConflict        Code = "result_conflict"         // 409
	StartRefused          Code = "start_refused"           // 409
	IdempotencyExpired    Code = "idempotency_expired"     // 410
	IdempotencyVoid       Code = "idempotency_void"        // 410
	EventsTrimmed         Code = "events_trimmed"          // 410
	RevisionMismatch      Code = "revision_mismatch"       // 412
	PayloadTooLarge       Code = "payload_too_large"       // 413
	UnsupportedMedia      Code = "unsupported_media_type"  // 415
	IdempotencyConflict   Code = "idempotency_conflict"    // 422
	PreconditionRequired  Code = "precondition_required"   // 428
	RateLimited           Code = "rate_limited"            // 429
	Internal              Code = "internal"                // 500
	Unavailable           Code = "unavailable"             // 503
	OutcomeUnknown        Code = "outcome_unknown"         // 503
)

var statuses = map[Code]int{
	InvalidRequest: 400, CursorInvalid: 400, IdempotencyMissing: 400, Unauthenticated: 401, Forbidden: 403, NotFound: 404, MethodNotAllowed: 405, RequestTimeout: 408,
	StateConflict: 409, PrincipalMismatch: 409, IdempotencyInProgress: 409, StaleAttempt: 409, LeaseLost: 409, SessionSuperseded: 409,
	ResultConflict: 409, StartRefused: 409, IdempotencyExpired: 410, IdempotencyVoid: 410, EventsTrimmed: 410, RevisionMismatch: 412,
	PayloadTooLarge: 413, UnsupportedMedia: 415, IdempotencyConflict: 422, PreconditionRequired: 428, RateLimited: 429,
	Internal: 500, Unavailable: 503, OutcomeUnknown: 503,
}

// Status is the HTTP status of the code.
func (c Code) Status() int { return statuses[c] }

// Field is one fault of the input: where (a JSON Pointer, RFC 6901, or a header or parameter name), which rule, and what to do.
type Field struct {
	Pointer string
	Code    string
	Detail  string
}

// Fault is a refusal as the caller reads it: which rule, and what to do.
type Fault struct {
	Code       Code
	Detail     string
	Errors     []Field
	RetryAfter time.Duration // 0 means the header is not sent
}

// Error is the text for logs; it is the same the caller reads.
func (f *Fault) Error() string { return string(f.Code) + ": " + f.Detail }

// New makes a refusal with its text for the caller.
func New(code Code, format string, args ...any) *Fault {
	return &Fault{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Invalid refuses one field of the input.
func Invalid(pointer, code, format string, args ...any) *Fault {
	detail := fmt.Sprintf(format, args...)
	place := pointer
	if place == "" {
		place = "the body"
	}
	return &Fault{Code: InvalidRequest, Detail: place + ": " + detail, Errors: []Field{{Pointer: pointer, Code: code, Detail: detail}}}
}

// Missing is the one answer for what does not exist, belongs to another tenant, or is on a queue that was not granted.
func Missing(kind string) *Fault {
	return New(NotFound, "no such %s, or this credential may not see it", kind)
}

// Codes lists all codes, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(statuses)) }
