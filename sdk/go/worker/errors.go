package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Causes of the end of a handler's context.
var (
	// ErrCancelled: the task was asked to stop. A handler that returns the context's error acknowledges it.
	ErrCancelled = errors.New("worker: the task was asked to stop")
	// ErrLeaseLost: the attempt is no longer this worker's, because its lease was lost or the server ended it, by the
	// task's deadline for one. Another attempt may already run.
	ErrLeaseLost = errors.New("worker: the attempt is no longer this worker's")
	// ErrShutdown: the worker drains, and [Config.DrainTimeout] is over.
	ErrShutdown = errors.New("worker: shutting down")
	// ErrSuperseded: a later incarnation opened a session under the same worker name. [Worker.Run] also returns it.
	ErrSuperseded = errors.New("worker: superseded by a later incarnation of the same worker name")
)

// DrainError is what [Worker.Run] returns when it had to leave something behind. What the attempts came to is then decided by
// the policy of their queues.
type DrainError struct {
	Handlers int // handlers that did not return although their context had ended
	Results  int // results that were neither accepted nor refused in time
}

func (e *DrainError) Error() string {
	return fmt.Sprintf("worker: stopped with %d handlers still running and %d results not reported", e.Handlers, e.Results)
}

// Failure is a failure with a code for programs: at most 128 of A-Z a-z 0-9 . _ : / - (others become "_").
type Failure struct {
	Code    string
	Message string // for people; at most 4,096 characters are kept
}

func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Fail makes a [*Failure]. It is tried again unless wrapped in [Permanent].
func Fail(code, message string) error { return &Failure{Code: code, Message: message} }

// Permanent marks err as one that no further attempt can cure: the task fails at once, whatever is left of its budget. It is
// found through wrapping; Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// RetryAfter asks for the next attempt after d in place of the queue's backoff. It is found through wrapping, the outermost one
// counts; RetryAfter(nil, d) is nil. A negative d is 0.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(d, 0)}
}

type retryAfterError struct {
	error
	after time.Duration
}

func (e *retryAfterError) Unwrap() error { return e.error }

// endedBy reports whether err is a handler's answer to the end of its context, rather than a failure of its own.
func endedBy(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}
