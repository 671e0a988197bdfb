package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// Codes of failures that the worker reports by itself.
const (
	CodeHandlerError  = "handler_error"  // the handler returned an error that is no Failure
	CodePanic         = "panic"          // the handler panicked
	CodeShutdown      = "shutdown"       // the handler stopped because the worker did
	CodeLeaseLost     = "lease_lost"     // the handler stopped because its attempt was lost; kept as evidence
	CodeSuperseded    = "superseded"     // the handler stopped because its worker was superseded; kept as evidence
	CodeBadPayload    = "bad_payload"    // the payload does not fit the type that HandleJSON was given
	CodeResultRefused = "result_refused" // the handler succeeded, but its result cannot be kept: not JSON, too large
)

// Limits of the protocol.
const (
	maxResultBytes   = 8 << 20
	maxProgressBytes = 64 << 10
	maxMessageRunes  = 4096
	maxNameBytes     = 128
)

// outcome is what a handler came to. The attempt's identity is not part of it.
type outcome struct {
	kind      api.Outcome
	result    []byte
	failure   Failure
	permanent bool
	after     *int64 // milliseconds
}

// outcomeOf judges what a handler returned, under ctx, its own context.
func outcomeOf(ctx context.Context, value any, err error) outcome {
	switch {
	case err == nil:
		return success(value)
	case endedBy(ctx, err) && errors.Is(context.Cause(ctx), ErrCancelled):
		return outcome{kind: api.OutcomeCancelled}
	}
	o := outcome{kind: api.OutcomeFailed, failure: failureOf(ctx, err)}
	var permanent *permanentError
	o.permanent = errors.As(err, &permanent)
	var retry *retryAfterError
	if errors.As(err, &retry) && !o.permanent {
		ms := retry.after.Milliseconds()
		o.after = &ms
	}
	return o
}

// success refuses a result that the server would refuse: the effect has happened and another attempt cannot cure it.
func success(value any) outcome {
	if value == nil {
		return outcome{kind: api.OutcomeSucceeded}
	}
	raw, err := client.Encode(value)
	switch {
	case err != nil:
		return refused("the result cannot be encoded: " + err.Error())
	case len(raw) > maxResultBytes:
		return refused(fmt.Sprintf("the result has %d bytes, more than %d", len(raw), maxResultBytes))
	}
	return outcome{kind: api.OutcomeSucceeded, result: raw}
}

func refused(message string) outcome {
	return outcome{kind: api.OutcomeFailed, permanent: true, failure: Failure{Code: CodeResultRefused, Message: message}}
}

func failureOf(ctx context.Context, err error) Failure {
	var f *Failure
	if errors.As(err, &f) {
		return *f
	}
	code := CodeHandlerError
	if endedBy(ctx, err) {
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, ErrShutdown):
			code = CodeShutdown
		case errors.Is(cause, ErrLeaseLost):
			code = CodeLeaseLost
		case errors.Is(cause, ErrSuperseded):
			code = CodeSuperseded
		}
	}
	return Failure{Code: code, Message: err.Error()}
}

// item gives the outcome the form of the protocol.
func (o outcome) item(attemptID, token string) api.FinishItem {
	it := api.FinishItem{AttemptID: attemptID, Token: token, Outcome: o.kind, Result: jx.Raw(o.result)}
	if o.kind != api.OutcomeFailed {
		return it
	}
	it.Error.SetTo(api.AttemptError{
		Code:    name(o.failure.Code),
		Message: api.NewOptString(cutRunes(strings.ToValidUTF8(o.failure.Message, "\uFFFD"), maxMessageRunes)),
	})
	it.Retry.SetTo(!o.permanent)
	if o.after != nil {
		it.RetryAfterMs.SetTo(*o.after)
	}
	return it
}

// name makes any text one that the protocol takes as a code.
func name(s string) string {
	if s == "" {
		return CodeHandlerError
	}
	return strings.Map(func(r rune) rune {
		if isNameRune(r) {
			return r
		}
		return '_'
	}, cutRunes(s, maxNameBytes))
}

func isName(s string) bool {
	return s != "" && len(s) <= maxNameBytes && !strings.ContainsFunc(s, func(r rune) bool { return !isNameRune(r) })
}

func isNameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._:/-", r)
}

func cutRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
