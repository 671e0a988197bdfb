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
	renewed  time.Time       // when the request was sent that last began or renewed the lease
	progress json.RawMessage // to be told, nil if there is nothing new
	lost     bool            // no longer this worker's: renewing is of no use
	returned bool            // the handler has returned
}

// execute runs the handler of an attempt that was started. Its lease is counted from sent.
func (s *session) execute(offer api.Offer, lease time.Duration, sent time.Time) {
	e := &execution{offer: offer, lease: lease, renewed: sent}
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
			s.unreserve(1)
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
