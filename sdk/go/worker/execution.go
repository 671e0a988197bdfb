package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
)

// execution is an attempt that was started, until its result is settled.
type execution struct {
	offer  api.Offer
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
	lease  time.Duration

	mu       sync.Mutex
	renewed  time.Time       // when the lease last began or was renewed, or a little before
	progress json.RawMessage // to be told, nil if there is nothing new
	lost     bool            // no longer this worker's: renewing is of no use
	returned bool            // the handler has returned
}

// execute runs the handler of an attempt that was started. Its lease is counted from begun.
func (s *session) execute(offer api.Offer, lease time.Duration, begun time.Time) {
	e := &execution{offer: offer, lease: lease, renewed: begun}
	e.ctx, e.cancel = context.WithCancelCause(s.values)
	s.mu.Lock()
	s.live[offer.AttemptID] = e
	if s.interrupted != nil {
		e.cancel(s.interrupted)
	}
	s.mu.Unlock()
	s.beatDue.set()
	s.handling.Go(func() {
		var o outcome
		defer func() {
			e.setReturned()
			s.enqueue(&report{run: e, item: o.item(offer.AttemptID, offer.Token)})
			e.cancel(nil)
		}()
		s.handle(e, &o)
	})
}

// handle calls the handler inside its span, and sets o even if the handler panics or ends its goroutine.
func (s *session) handle(e *execution, o *outcome) {
	ctx, done := s.telemetry.begin(e.ctx, &e.offer)
	defer func() { done(*o) }()
	*o = outcome{kind: api.OutcomeFailed, failure: Failure{Code: CodePanic, Message: "the handler ended its goroutine"}}
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error("handler panicked", "type", e.offer.Type, "task_id", e.offer.TaskID, "panic", cause, "stack", string(debug.Stack()))
			o.failure.Message = fmt.Sprint(cause)
		}
	}()
	value, err := s.handlers[e.offer.Type](ctx, taskOf(&e.offer, e))
	*o = outcomeOf(ctx, value, err)
}

func (e *execution) setProgress(raw json.RawMessage) {
	e.mu.Lock()
	e.progress = raw
	e.mu.Unlock()
}

func (e *execution) leaseRemaining() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost {
		return 0
	}
	return e.lease - time.Since(e.renewed)
}

func (e *execution) setReturned() {
	e.mu.Lock()
	e.returned = true
	e.mu.Unlock()
}

// clocks are a moment of the database's clock, and one of this process's that was the same or a little earlier.
type clocks struct{ theirs, ours time.Time }

// begun is when an attempt was started, or a little before, for a call that was sent at a time and started it at one of the database's clock.
// The claim may have waited long for the task: how long is known from an earlier call that did not.
func (s *session) begun(sent, started time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.clocks.ours.Add(started.Sub(s.clocks.theirs))
	if !sent.Before(at) {
		s.clocks = clocks{theirs: started, ours: sent}
		return sent
	}
	if now := time.Now(); at.After(now) {
		return now
	}
	return at
}
