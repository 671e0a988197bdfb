package worker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// Limits of one heartbeat call. The byte limit leaves room below the server's 32 MiB.
const (
	beatItems = 1000
	beatBytes = 24 << 20
)

// sendHeartbeats renews all leases, and gives a sign of life when there are none, until calls ends.
func (s *session) sendHeartbeats() {
	last, failed := time.Now(), time.Duration(0)
	for {
		wait := s.beatInterval()
		if failed > 0 {
			wait = min(wait, failed)
		}
		due := time.NewTimer(time.Until(last.Add(wait)))
		select {
		case <-due.C:
			last, failed = time.Now(), s.beat()
		case <-s.beatDue: // an attempt with a shorter lease may have come
		case <-s.calls.Done():
			due.Stop()
			return
		}
		due.Stop()
	}
}

// beatInterval leaves two more tries within the shortest lease.
func (s *session) beatInterval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	interval := s.interval
	for _, e := range s.live {
		interval = min(interval, e.lease/3)
	}
	return interval
}

// beat sends one round of heartbeats. It gives 0, or how soon to try again where a call had no reply.
func (s *session) beat() time.Duration {
	limit := min(max(s.beatInterval(), time.Second), callLimit)
	again := time.Duration(0)
	for _, call := range s.beatCalls() {
		if err := s.beatCall(call, limit); err != nil {
			s.log.Warn("heartbeat failed", "attempts", len(call), "error", err)
			again = time.Second
			var p *client.Problem
			if errors.As(err, &p) {
				again = max(again, p.RetryAfter)
			}
		}
	}
	return again
}

// renewal is one attempt's part in a heartbeat.
type renewal struct {
	run      *execution
	progress json.RawMessage
}

// beatCalls takes what is to be renewed, cut into calls; at least one call, if need be an empty one.
func (s *session) beatCalls() [][]renewal {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := [][]renewal{nil}
	bytes := 0
	for _, e := range s.live {
		progress, ok := e.takeProgress()
		if !ok {
			continue
		}
		last := len(calls) - 1
		if len(calls[last]) == beatItems || bytes+len(progress) > beatBytes {
			calls, last, bytes = append(calls, nil), last+1, 0
		}
		bytes += len(progress)
		calls[last] = append(calls[last], renewal{e, progress})
	}
	return calls
}

func (s *session) beatCall(call []renewal, limit time.Duration) error {
	sent := time.Now()
	reply, err := s.heartbeat(call, limit)
	if callRefused(err) && withoutProgress(call) {
		s.log.Error("heartbeat refused; sending it again without progress", "error", err)
		sent = time.Now()
		reply, err = s.heartbeat(call, limit)
	}
	if err == nil && len(reply.Items) != len(call) {
		err = errMisanswered
	}
	if err != nil {
		for _, r := range call {
			r.run.keepProgress(r.progress)
		}
		s.heedSuperseded(err)
		return err
	}
	for i, r := range call {
		s.renewed(r, reply.Items[i], sent)
	}
	return nil
}

// callRefused reports a definite no to the whole call that is about its content.
func callRefused(err error) bool {
	return err != nil && !client.Retryable(err) && !client.HasCode(err, client.CodeSessionSuperseded)
}

// withoutProgress makes sure that what a handler told cannot cost the leases of all, and reports whether there was any.
func withoutProgress(call []renewal) (any bool) {
	for i := range call {
		any = any || call[i].progress != nil
		call[i].progress = nil
	}
	return any
}

func (s *session) heartbeat(call []renewal, limit time.Duration) (*api.HeartbeatAttemptsResponse, error) {
	ctx, cancel := context.WithTimeout(s.calls, limit)
	defer cancel()
	req := &api.HeartbeatAttemptsRequest{InstanceID: s.instance, Epoch: s.epoch, Items: []api.HeartbeatItem{}}
	for _, r := range call {
		req.Items = append(req.Items, api.HeartbeatItem{
			AttemptID: r.run.offer.AttemptID, Token: r.run.offer.Token, Progress: jx.Raw(r.progress),
		})
	}
	return s.api.HeartbeatAttempts(ctx, req, api.HeartbeatAttemptsParams{})
}

// renewed takes the answer about one attempt.
func (s *session) renewed(r renewal, answer api.HeartbeatResult, sent time.Time) {
	if renewed, ok := answer.Attempt.Get(); ok {
		r.run.setRenewed(sent)
		if renewed.CancelRequested {
			r.run.cancel(ErrCancelled)
		}
		return
	}
	err := client.ItemError(answer.Problem)
	switch {
	case client.Retryable(err):
		r.run.keepProgress(r.progress)
	case client.HasCode(err, client.CodeInvalidRequest), client.HasCode(err, client.CodePayloadTooLarge):
		s.log.Error("progress refused", "attempt_id", r.run.offer.AttemptID, "error", err)
	default:
		s.heedSuperseded(err)
		if r.run.setLost() {
			s.log.Warn("attempt lost", "attempt_id", r.run.offer.AttemptID, "task_id", r.run.offer.TaskID, "error", err)
		}
	}
}

// takeProgress gives what is new, and false for an attempt that is of no use to renew.
func (e *execution) takeProgress() (json.RawMessage, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	progress := e.progress
	e.progress = nil
	return progress, !e.lost
}

// keepProgress puts back what was not told, unless something newer is there.
func (e *execution) keepProgress(progress json.RawMessage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.progress == nil {
		e.progress = progress
	}
}

func (e *execution) setRenewed(sent time.Time) {
	e.mu.Lock()
	e.renewed = sent
	e.mu.Unlock()
}

// setLost ends the handler's context, and reports whether it was still running: an attempt whose result is on its way is not
// running for the server either, once the result is there.
func (e *execution) setLost() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.returned || e.lost {
		return false
	}
	e.lost = true
	e.cancel(ErrLeaseLost)
	return true
}
