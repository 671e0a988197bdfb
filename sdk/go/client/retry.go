package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/ogen-go/ogen/validate"
)

// Retryable reports whether the same request, under the same key, may and should be sent again: its outcome is unknown (a time-out, a
// cut connection, an unreadable reply, 408, 5xx), or the server asked to come back (425, 429, idempotency_in_progress). Every
// other problem is a definite no. The end of a context is not retryable: whoever ended it wants no more.
func Retryable(err error) bool {
	var problem *Problem
	var invalid *validate.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &problem):
		return retryableProblem(problem)
	case errors.As(err, &invalid):
		return false // of a reply that would come again as it is
	}
	return true
}

func retryableProblem(p *Problem) bool {
	switch p.Status {
	case 408, 425, 429:
		return true
	}
	return p.Status >= 500 || p.Code == CodeIdempotencyInProgress
}

// RetryOption changes how [Retry] repeats.
type RetryOption func(*retryOptions)

type retryOptions struct {
	limit  time.Duration
	perTry time.Duration
	notify func(err error, wait time.Duration)
}

// For limits the whole of it, waits included: 2 minutes unless set. Zero tries once; a negative limit is the context's alone.
func For(d time.Duration) RetryOption { return func(o *retryOptions) { o.limit = d } }

// PerTry limits each try; unset, only the client's own time-out does.
func PerTry(d time.Duration) RetryOption { return func(o *retryOptions) { o.perTry = d } }

// Notify is told of each failed try that will be followed by another, and of the wait before it.
func Notify(f func(err error, wait time.Duration)) RetryOption {
	return func(o *retryOptions) { o.notify = f }
}

// Retry calls try until it succeeds, gets a definite no (see [Retryable]), or the limit or ctx ends. Waits grow from about
// 100 ms to about 5 s, with jitter, unless the server names one. The error is that of the last try; after the end of ctx it
// also holds the cause of that.
//
// try must send the same request each time: with a key made before, where the operation takes one.
func Retry[T any](ctx context.Context, try func(context.Context) (T, error), opts ...RetryOption) (T, error) {
	o := retryOptions{limit: 2 * time.Minute, notify: func(error, time.Duration) {}}
	for _, opt := range opts {
		opt(&o)
	}
	var last error
	value, err := backoff.Retry(ctx, func() (T, error) {
		var value T
		value, last = once(ctx, o.perTry, try)
		return value, verdict(last)
	}, append(o.limits(), backoff.WithBackOff(Schedule()),
		backoff.WithNotify(func(_ error, wait time.Duration) { o.notify(last, wait) }))...)
	switch {
	case err == nil:
		return value, nil
	case context.Cause(ctx) != nil && !errors.Is(last, context.Cause(ctx)):
		return value, fmt.Errorf("%w, after: %w", context.Cause(ctx), last)
	}
	return value, last
}

// Schedule gives the waits that [Retry] makes, for loops of another shape: from about 100 ms to about 5 s, with jitter, and from
// the beginning again after Reset. It is not for use by several goroutines.
func Schedule() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 100 * time.Millisecond
	b.Multiplier = 2
	b.MaxInterval = 5 * time.Second
	return b
}

// limits says the same in the backoff package's terms, where an elapsed time of zero is no limit.
func (o *retryOptions) limits() []backoff.RetryOption {
	if o.limit == 0 {
		return []backoff.RetryOption{backoff.WithMaxTries(1)}
	}
	return []backoff.RetryOption{backoff.WithMaxElapsedTime(max(o.limit, 0))}
}

func once[T any](ctx context.Context, limit time.Duration, try func(context.Context) (T, error)) (T, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	value, err := try(ctx)
	return value, plain(err)
}

// plain takes the generated client's wrapping off a refusal, which says all by itself.
func plain(err error) error {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem
	}
	return err
}

// verdict puts an error into the words of the backoff package.
func verdict(err error) error {
	var problem *Problem
	switch {
	case err == nil:
		return nil
	case !Retryable(err):
		return backoff.Permanent(err)
	case errors.As(err, &problem) && problem.RetryAfter > 0:
		return errors.Join(err, &backoff.RetryAfterError{Duration: problem.RetryAfter})
	}
	return err
}
