package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

const (
	claimWait = 30 * time.Second // the longest the server waits for work
	claimMax  = 100              // the most offers of one claim

	reasonShutdown  = "shutdown"
	reasonNoHandler = "no_handler"
)

// claimTasks claims for the slots that are free, one claim at a time, until work ends or a claim is refused for good.
func (s *session) claimTasks() error {
	wait := client.Schedule()
	for seq := int64(1); ; seq++ {
		slots := s.reserve()
		if slots == 0 {
			return s.whyEnded()
		}
		offers, err := s.claim(seq, slots)
		s.unreserve(slots - len(offers))
		var again *againError
		switch {
		case errors.As(err, &again):
			pause(s.work, max(again.after, wait.NextBackOff()))
			continue
		case err != nil:
			return err
		}
		wait.Reset()
		if len(offers) > 0 {
			s.offers.Go(func() { s.begin(offers) })
		}
	}
}

// againError is a claim that took nothing, or whose offers were given back, and that another may follow.
type againError struct{ after time.Duration }

func (*againError) Error() string { return "claim again" }

// whyEnded is the error of Run when work has ended: none when its context did.
func (s *session) whyEnded() error {
	if errors.Is(context.Cause(s.work), ErrSuperseded) {
		return ErrSuperseded
	}
	return nil
}

// reserve waits for free slots and takes them all, up to the size of a claim. It gives none once work has ended. While as many
// results as there are slots wait to be sent it takes no more work, so that a server which gives out tasks and takes no results
// cannot pile them up here.
func (s *session) reserve() int {
	for {
		if s.work.Err() != nil {
			return 0
		}
		s.mu.Lock()
		n := min(s.free, claimMax)
		if s.unsettled >= s.cfg.Concurrency {
			n = 0
		}
		s.free -= n
		s.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-s.slotFree:
		case <-s.work.Done():
		}
	}
}

func (s *session) unreserve(n int) {
	s.mu.Lock()
	s.free += n
	s.mu.Unlock()
	s.slotFree.set()
}

// claim makes one claim. Where the reply is lost the claim is given back, so that what it took need not wait for its offers to
// run out. An error that is no againError ends the worker.
func (s *session) claim(seq int64, slots int) ([]api.Offer, error) {
	ctx, cancel := context.WithTimeout(s.work, claimWait+callLimit)
	defer cancel()
	reply, err := s.api.ClaimTasks(ctx, &api.ClaimTasksRequest{
		InstanceID: s.instance,
		Epoch:      s.epoch,
		ClaimSeq:   seq,
		Max:        slots,
		WaitMs:     api.NewOptInt64(claimWait.Milliseconds()),
	}, api.ClaimTasksParams{})
	var refusal *client.Problem
	switch {
	case err == nil:
		return reply.Offers, nil
	case errors.As(err, &refusal) && refusal.Status < 500:
		return nil, s.claimRefused(refusal)
	}
	if s.work.Err() == nil {
		s.log.Warn("no reply to a claim; giving it back", "claim_seq", seq, "error", err)
	}
	return nil, s.abandon(seq)
}

// claimRefused judges a claim that certainly took nothing.
func (s *session) claimRefused(refusal *client.Problem) error {
	switch {
	case refusal.Code == client.CodeSessionSuperseded:
		s.superseded()
		return ErrSuperseded
	case client.Retryable(refusal), refusal.Code == client.CodeStateConflict:
		s.log.Warn("claim refused for now", "error", refusal)
		return &againError{refusal.RetryAfter}
	}
	return fmt.Errorf("worker: claim: %w", refusal)
}

// abandon gives back whatever the claim took, even if it is still on its way to the server.
func (s *session) abandon(seq int64) error {
	_, err := repeat(s.begins, s.log, "give a claim back", func(ctx context.Context) (*api.ReleaseAttemptsResponse, error) {
		return s.api.ReleaseAttempts(ctx, &api.ReleaseAttemptsRequest{
			InstanceID: s.instance, Epoch: s.epoch, ClaimSeq: api.NewOptInt64(seq),
		}, api.ReleaseAttemptsParams{})
	})
	switch {
	case client.HasCode(err, client.CodeSessionSuperseded):
		s.superseded()
		return ErrSuperseded
	case err != nil && s.begins.Err() == nil:
		return fmt.Errorf("worker: give claim %d back: %w", seq, err)
	}
	return &againError{}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// begin starts the offers that can be handled and gives the others back. Each offer holds a slot until then.
func (s *session) begin(offers []api.Offer) {
	var start, unknown []api.Offer
	for _, o := range offers {
		if s.handlers[o.Type] == nil {
			s.log.Error("no handler for a task's type", "type", o.Type, "task_id", o.TaskID)
			unknown = append(unknown, o)
		} else {
			start = append(start, o)
		}
	}
	if len(unknown) > 0 {
		s.offers.Go(func() { s.release(unknown, reasonNoHandler) })
	}
	if s.work.Err() != nil && len(start) > 0 {
		s.release(start, reasonShutdown)
		return
	}
	s.start(start)
}

// release gives offers back. What is refused has ended already in some other way.
func (s *session) release(offers []api.Offer, reason string) {
	defer s.unreserve(len(offers))
	_, err := repeat(s.begins, s.log, "release offers", func(ctx context.Context) (struct{}, error) {
		req := &api.ReleaseAttemptsRequest{InstanceID: s.instance, Epoch: s.epoch}
		for _, o := range offers {
			req.Items = append(req.Items, api.ReleaseItem{AttemptID: o.AttemptID, Token: o.Token, Reason: api.NewOptString(reason)})
		}
		reply, err := s.api.ReleaseAttempts(ctx, req, api.ReleaseAttemptsParams{})
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, firstRetryable(reply.Items, func(r api.ReleaseResult) error { return client.ItemError(r.Problem) })
	})
	if err != nil {
		s.heedSuperseded(err)
		s.log.Warn("offers not released; they will run out", "reason", reason, "offers", len(offers), "error", err)
	}
}

// firstRetryable is the error that makes a whole call be repeated: an item of it is not settled, and repeating the others does
// no harm.
func firstRetryable[T any](items []T, errorOf func(T) error) error {
	for _, item := range items {
		if err := errorOf(item); client.Retryable(err) {
			return err
		}
	}
	return nil
}

// start asks for leave to execute until each offer has an answer, and runs those that got it.
func (s *session) start(offers []api.Offer) {
	// The first try counts: a repeat gets the lease that it may have begun.
	sent := time.Now()
	for len(offers) > 0 {
		reply, err := repeat(s.begins, s.log, "start attempts", func(ctx context.Context) (*api.StartAttemptsResponse, error) {
			req := &api.StartAttemptsRequest{InstanceID: s.instance, Epoch: s.epoch}
			for _, o := range offers {
				req.Items = append(req.Items, api.StartItem{AttemptID: o.AttemptID, Token: o.Token})
			}
			reply, err := s.api.StartAttempts(ctx, req, api.StartAttemptsParams{})
			if err == nil && len(reply.Items) != len(offers) {
				return nil, errMisanswered
			}
			return reply, err
		})
		if err != nil {
			s.heedSuperseded(err)
			s.log.Error("offers not started", "offers", len(offers), "error", err)
			s.unreserve(len(offers))
			return
		}
		offers = s.started(offers, reply.Items, sent)
		if len(offers) > 0 {
			pause(s.begins, 100*time.Millisecond)
		}
	}
}

// errMisanswered is a reply that does not answer item by item: no more use than one that cannot be read.
var errMisanswered = errors.New("worker: the reply has another number of items than the request")

// started runs what was started, drops what was refused, and gives what has no answer yet.
func (s *session) started(offers []api.Offer, answers []api.StartResult, sent time.Time) (open []api.Offer) {
	for i, answer := range answers {
		offer := offers[i]
		begun, ok := answer.Attempt.Get()
		err := client.ItemError(answer.Problem)
		switch {
		case ok:
			s.execute(offer, time.Duration(begun.LeaseMs)*time.Millisecond, sent)
		case client.Retryable(err):
			open = append(open, offer)
		default:
			s.heedSuperseded(err)
			s.log.Info("start refused", "attempt_id", offer.AttemptID, "task_id", offer.TaskID, "error", err)
			s.unreserve(1)
		}
	}
	return open
}
