package service

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/ogen-go/ogen/ogenerrors"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/strict"
)

// titles are the codes in a few words, the same at every occurrence.
var titles = map[fault.Code]string{
	fault.InvalidRequest:        "The request is not valid",
	fault.CursorInvalid:         "The cursor does not belong to this list",
	fault.IdempotencyMissing:    "An idempotency key is needed",
	fault.Unauthenticated:       "No valid credential key",
	fault.Forbidden:             "Not granted to this credential",
	fault.NotFound:              "Not found",
	fault.MethodNotAllowed:      "The method is not taken here",
	fault.RequestTimeout:        "The request did not arrive in time",
	fault.StateConflict:         "Not possible in the present state",
	fault.PrincipalMismatch:     "The credential is of another namespace or actor",
	fault.IdempotencyInProgress: "The first request under this key is still running",
	fault.StaleAttempt:          "The attempt is over",
	fault.LeaseLost:             "The lease was lost",
	fault.SessionSuperseded:     "The worker session was superseded",
	fault.ResultConflict:        "Another result was accepted",
	fault.StartRefused:          "The attempt may not start",
	fault.IdempotencyExpired:    "The reply under this key is no longer kept",
	fault.IdempotencyVoid:       "The key was made void",
	fault.EventsTrimmed:         "The events are no longer kept",
	fault.RevisionMismatch:      "Changed since it was read",
	fault.PayloadTooLarge:       "Too large",
	fault.UnsupportedMedia:      "The media type is not taken",
	fault.IdempotencyConflict:   "The key was used for other content",
	fault.PreconditionRequired:  "If-Match is needed",
	fault.RateLimited:           "Too many requests",
	fault.Internal:              "Internal error",
	fault.Unavailable:           "Not available now",
	fault.OutcomeUnknown:        "The outcome is not known",
}

// describe turns any error into what the caller is told. What is no refusal shows nothing of its own text.
func describe(err error) *fault.Fault {
	var (
		refusal *fault.Fault
		faults  strict.Faults
		unknown *dbtx.UnknownCommit
	)
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &faults):
		return refusedBody(faults)
	case errors.As(err, &unknown):
		return &fault.Fault{Code: fault.OutcomeUnknown, RetryAfter: time.Second,
			Detail: "the connection to the database broke at the commit, so that the request may have been carried out; repeat it unchanged, under the same key or token, to learn which"}
	case errors.Is(err, ogenerrors.ErrSecurityRequirementIsNotSatisfied):
		return fault.New(fault.Unauthenticated, "send a credential key as Authorization: Bearer orb_…")
	}
	if f := describeDecoding(err); f != nil {
		return f
	}
	switch {
	case errors.Is(err, dbtx.ErrLost):
		return &fault.Fault{Code: fault.Unavailable, RetryAfter: time.Second, Detail: "something else changed the same thing at the same moment; try again"}
	case dbtx.IsAway(err):
		return &fault.Fault{Code: fault.Unavailable, RetryAfter: time.Second, Detail: "the database cannot be used now; nothing was done; try again"}
	}
	return fault.New(fault.Internal, "this is a defect of the server; its log has more under the request id")
}

func refusedBody(faults strict.Faults) *fault.Fault {
	f := fault.New(fault.InvalidRequest, "%s", faults.Error())
	for _, one := range faults {
		f.Errors = append(f.Errors, fault.Field{Pointer: one.Pointer, Code: string(one.Code), Detail: one.Detail})
	}
	return f
}

// problem is the problem document of an error, for a reply or for an item of a batch.
func (s *Service) problem(ctx context.Context, err error) api.Problem {
	f := describe(err)
	r := requestFrom(ctx)
	switch f.Code {
	case fault.Internal:
		s.options.Logger.ErrorContext(ctx, "operation failed", "operation", r.operation, "request_id", r.id, "error", err)
	case fault.Unavailable, fault.OutcomeUnknown:
		// Not for a caller that is gone; not for a refusal, which is no failure; and once a request: the items of a batch share their cause.
		var refusal *fault.Fault
		if !errors.Is(ctx.Err(), context.Canceled) && !errors.As(err, &refusal) && !r.warned {
			r.warned = true
			s.options.Logger.WarnContext(ctx, "operation not available", "operation", r.operation, "request_id", r.id, "error", err)
		}
	}
	return problemOf(f, r.id)
}

func problemOf(f *fault.Fault, requestID string) api.Problem {
	p := api.Problem{
		Type: "/docs/problems/" + string(f.Code), Title: titles[f.Code], Status: f.Code.Status(), Code: string(f.Code), RequestID: requestID,
	}
	if f.Detail != "" {
		p.Detail.SetTo(f.Detail)
	}
	if f.RetryAfter > 0 {
		p.RetryAfterMs.SetTo(max(1, f.RetryAfter.Milliseconds()))
	}
	for _, e := range f.Errors {
		p.Errors = append(p.Errors, api.ProblemFault{Pointer: e.Pointer, Code: e.Code, Detail: e.Detail})
	}
	return p
}

// failed is the reply of a failed request. A caller that lacks what it was refused for is noted for the audit.
func (s *Service) failed(ctx context.Context, err error) *api.ProblemStatusCodeWithHeaders {
	p := s.problem(ctx, err)
	if r := requestFrom(ctx); p.Code == string(fault.Forbidden) && !r.caller.NamespaceID.IsZero() {
		s.platform.Denied(r.caller, r.operation, fault.Forbidden)
	}
	return withHeaders(p)
}

func withHeaders(p api.Problem) *api.ProblemStatusCodeWithHeaders {
	reply := &api.ProblemStatusCodeWithHeaders{StatusCode: p.Status, Response: p}
	if ms, ok := p.RetryAfterMs.Get(); ok {
		reply.RetryAfter.SetTo(int((ms + 999) / 1000))
	}
	if p.Status == http.StatusUnauthorized {
		reply.WWWAuthenticate.SetTo(`Bearer realm="orbit"`)
	}
	return reply
}

// writeProblem answers where the generated server leaves it to the edge.
func writeProblem(w http.ResponseWriter, reply *api.ProblemStatusCodeWithHeaders) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if seconds, ok := reply.RetryAfter.Get(); ok {
		h.Set("Retry-After", strconv.Itoa(seconds))
	}
	if challenge, ok := reply.WWWAuthenticate.Get(); ok {
		h.Set("WWW-Authenticate", challenge)
	}
	text, err := reply.Response.MarshalJSON()
	if err != nil {
		panic(err) // a problem holds text and numbers only
	}
	w.WriteHeader(reply.StatusCode)
	_, _ = w.Write(text) // a caller that is gone is told by the access log
}
