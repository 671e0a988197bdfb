package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
)

// Codes a program may want to tell apart. The set is open: judge an unknown one by the status.
const (
	CodeInvalidRequest        = "invalid_request"
	CodeUnauthenticated       = "unauthenticated"
	CodeForbidden             = "forbidden"
	CodeNotFound              = "not_found"
	CodePrincipalMismatch     = "principal_mismatch"
	CodeIdempotencyMissing    = "idempotency_missing"
	CodeIdempotencyConflict   = "idempotency_conflict"
	CodeIdempotencyInProgress = "idempotency_in_progress"
	CodeIdempotencyExpired    = "idempotency_expired"
	CodeIdempotencyVoid       = "idempotency_void"
	CodeRevisionMismatch      = "revision_mismatch"
	CodePreconditionRequired  = "precondition_required"
	CodeStateConflict         = "state_conflict"
	CodeStaleAttempt          = "stale_attempt"
	CodeLeaseLost             = "lease_lost"
	CodeSessionSuperseded     = "session_superseded"
	CodeResultConflict        = "result_conflict"
	CodeStartRefused          = "start_refused"
	CodeCursorInvalid         = "cursor_invalid"
	CodePayloadTooLarge       = "payload_too_large"
	CodeRateLimited           = "rate_limited"
	CodeOutcomeUnknown        = "outcome_unknown"
	CodeUnavailable           = "unavailable"
)

// Problem is a refusal by the server, or by something in front of it (RFC 9457). Find it with [errors.As] in the error of
// any call.
type Problem struct {
	Status     int           // the HTTP status; in a batch that of the item
	Code       string        // stable, for programs; empty if the answer did not come from Orbit
	Title      string        // the code in a few words
	Detail     string        // what was wrong this time, for people
	Type       string        // relative reference to the page about the code
	RequestID  string        // names the request in the server's logs
	RetryAfter time.Duration // how long to wait before sending the same again; 0 if not told
	Errors     []Fault       // the single faults, where there are several or one has a place
}

// Fault is one fault of a request.
type Fault struct {
	Pointer string // JSON Pointer into the body (of the item in a batch), or header/…, query/…, path/…
	Code    string
	Detail  string
}

// Error names status, code and detail, then each fault with its place that the detail does not hold already.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "orbit: %d", p.Status)
	if p.Code != "" {
		fmt.Fprintf(&b, " %s", p.Code)
	}
	if text := firstOf(p.Detail, p.Title); text != "" {
		fmt.Fprintf(&b, ": %s", text)
	}
	for _, f := range p.Errors {
		text := firstOf(f.Detail, f.Code)
		if f.Pointer != "" {
			text = f.Pointer + ": " + text
		}
		if !strings.Contains(p.Detail, text) {
			fmt.Fprintf(&b, "; %s", text)
		}
	}
	if p.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", p.RequestID)
	}
	return b.String()
}

// HasCode reports whether err holds a [*Problem] with that code.
func HasCode(err error, code string) bool {
	var p *Problem
	return errors.As(err, &p) && p.Code == code
}

// ItemError is the error of one item of a batch reply, or nil if the item holds no problem.
func ItemError(item api.OptProblem) error {
	p, ok := item.Get()
	if !ok {
		return nil
	}
	return problemOf(&p)
}

func problemOf(p *api.Problem) *Problem {
	out := &Problem{
		Status:     p.Status,
		Code:       p.Code,
		Title:      p.Title,
		Detail:     p.Detail.Value,
		Type:       p.Type,
		RequestID:  p.RequestID,
		RetryAfter: time.Duration(p.RetryAfterMs.Value) * time.Millisecond,
	}
	for _, f := range p.Errors {
		out.Errors = append(out.Errors, Fault{Pointer: f.Pointer, Code: f.Code, Detail: f.Detail})
	}
	return out
}

// maxProblemBytes bounds what is read of a refusal, whoever sent it.
const maxProblemBytes = 1 << 20

// readProblem makes a Problem of any reply with a status of 400 or more. The status line is believed over the body.
func readProblem(resp *http.Response) *Problem {
	p := &Problem{Title: http.StatusText(resp.StatusCode)}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media == "application/problem+json" {
		var doc api.Problem
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
		if err == nil && json.Unmarshal(body, &doc) == nil {
			p = problemOf(&doc)
		}
	}
	p.Status = resp.StatusCode
	p.RequestID = firstOf(p.RequestID, resp.Header.Get("X-Request-Id"))
	if p.RetryAfter == 0 {
		p.RetryAfter = retryAfter(resp.Header)
	}
	return p
}

// retryAfter reads both forms of RFC 9110. A date is measured against the date of the same reply, never against the host's clock.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return max(time.Duration(seconds)*time.Second, 0)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}

func firstOf(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}
