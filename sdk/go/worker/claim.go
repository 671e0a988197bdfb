package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

const (
	claimWait = 30 * time.Second // the longest the server waits for work
	claimMax  = 100              // the most offers of one claim

	reasonNoHandler = "no_handler"
)

// claim is one claim on its way: its number, and the slots that are kept for its offers. One that waits for work goes by itself, the others
// go with results. There is one at a time, since to give one back refuses every one with a smaller number.
type claim struct {
	seq   int64
	slots int
	sent  time.Time
}

// claimTasks claims for the slots that are free, where no result takes the claim along, until work ends or a claim is refused for good.
func (s *session) claimTasks() error {
	wait := client.Schedule()
	for {
		c, ok := s.awaitClaim()
		if !ok {
			return s.whyEnded()
		}
		offers, err := s.claim(c)
		s.endClaim(c, offers)
		var again *againError
		switch {
		case errors.As(err, &again):
			pause(s.work, max(again.after, wait.NextBackOff()))
		case err != nil:
			return err
		default:
			wait.Reset()
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

// awaitClaim begins a claim as soon as there may be one and no result is about to be sent that could take it along. It gives none once work
// has ended.
func (s *session) awaitClaim() (claim, bool) {
	for {
		s.mu.Lock()
		c := claim{}
		if !slices.ContainsFunc(s.waiting, (*report).fresh) {
			c = s.beginClaim(0)
		}
		s.mu.Unlock()
		if c.slots > 0 {
			return c, true
		}
		select {
		case <-s.slotFree:
		case <-s.work.Done():
			return claim{}, false
		}
	}
}

// beginClaim takes all free slots for a claim, up to its size; none if there may be no claim now. While as many results as there are slots
// wait to be taken, not counting those that go with the claim, it takes no more work, so that a server which gives out tasks and takes no
// results cannot pile them up here. The caller holds mu.
func (s *session) beginClaim(results int) claim {
	n := min(s.free, claimMax)
	if n == 0 || s.claiming || s.unsettled-results >= s.cfg.Concurrency || s.work.Err() != nil {
		return claim{}
	}
	s.claiming = true
	s.free -= n
	s.seq++
	return claim{seq: s.seq, slots: n, sent: time.Now()}
}

// endClaim has the offers of a claim begun in their slots, and the other slots free again.
func (s *session) endClaim(c claim, offers []api.Offer) {
	if len(offers) > 0 {
		s.offers.Go(func() { s.begin(c, offers) })
	}
	s.mu.Lock()
	s.claiming = false
	s.free += c.slots - len(offers)
	s.mu.Unlock()
	s.slotFree.set()
}

// endClaims waits for the claim on its way, and lets no other follow.
func (s *session) endClaims() {
	for {
		s.mu.Lock()
		last := !s.claiming
		s.claiming = true
		s.mu.Unlock()
		if last {
			return
		}
		<-s.slotFree
	}
}

func (s *session) unreserve(n int) {
	s.mu.Lock()
	s.free += n
	s.mu.Unlock()
	s.slotFree.set()
}

// claim makes a claim that waits for work. Where the reply is lost the claim is given back, so that what it took need not wait for its
// offers to run out. An error that is no againError ends the worker.
func (s *session) claim(c claim) ([]api.Offer, error) {
	ctx, cancel := context.WithTimeout(s.work, claimWait+callLimit)
	defer cancel()
	reply, err := s.api.ClaimTasks(ctx, &api.ClaimTasksRequest{
		InstanceID: s.instance,
		Epoch:      s.epoch,
		ClaimSeq:   c.seq,
		Max:        c.slots,
		WaitMs:     api.NewOptInt64(claimWait.Milliseconds()),
		Start:      api.NewOptBool(true),
	}, api.ClaimTasksParams{})
	var refusal *client.Problem
	switch {
	case err == nil:
		return reply.Offers, nil
	case errors.As(err, &refusal) && refusal.Status < 500:
		return nil, s.claimRefused(refusal)
	}
	if s.work.Err() == nil {
		s.log.Warn("no reply to a claim; giving it back", "claim_seq", c.seq, "error", err)
	}
	return nil, s.abandon(c.seq)
}

// claimedWith takes the answer to a claim that went with results. A refusal for good is left to be met by the next claim that goes by itself.
func (s *session) claimedWith(c claim, reply *api.FinishAttemptsResponse, err error) {
	if err == nil {
		err = client.ItemError(reply.Claim.Value.Problem)
	}
	var refusal *client.Problem
	switch {
	case err == nil && reply.Claim.Set:
		s.endClaim(c, reply.Claim.Value.Offers)
	case errors.As(err, &refusal) && refusal.Status < 500:
		s.heedSuperseded(err)
		s.endClaim(c, nil)
	default:
		s.log.Warn("no reply to a claim; giving it back", "claim_seq", c.seq, "error", err)
		go func() { // the results are not to wait for this
			s.giveBack(c)
			s.endClaim(c, nil)
		}()
	}
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

// giveBack gives back whatever a claim took of which nothing is begun.
func (s *session) giveBack(c claim) {
	var again *againError
	if err := s.abandon(c.seq); !errors.As(err, &again) {
		s.log.Warn("a claim was not given back; what it took will run out", "claim_seq", c.seq, "error", err)
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// begin runs what came started, starts the other offers, and gives those back that cannot be handled. Each offer holds a slot until then.
func (s *session) begin(c claim, offers []api.Offer) {
	if s.work.Err() != nil {
		s.giveBack(c)
		s.unreserve(len(offers))
		return
	}
	var start, unknown []api.Offer
	for _, o := range offers {
		switch {
		case s.handlers[o.Type] == nil:
			s.log.Error("no handler for a task's type", "type", o.Type, "task_id", o.TaskID)
			unknown = append(unknown, o)
		case o.StartedAt.Set:
			s.execute(o, time.Duration(o.LeaseMs)*time.Millisecond, s.begun(c.sent, o.StartedAt.Value))
		default:
			start = append(start, o)
		}
	}
	if len(unknown) > 0 {
		s.offers.Go(func() { s.release(unknown) })
	}
	s.start(start)
}

// release gives offers back that have no handler, started or not. What is refused has ended already in some other way.
func (s *session) release(offers []api.Offer) {
	defer s.unreserve(len(offers))
	_, err := repeat(s.begins, s.log, "release offers", func(ctx context.Context) (struct{}, error) {
		req := &api.ReleaseAttemptsRequest{InstanceID: s.instance, Epoch: s.epoch}
		for _, o := range offers {
			req.Items = append(req.Items, api.ReleaseItem{AttemptID: o.AttemptID, Token: o.Token, Reason: api.NewOptString(reasonNoHandler)})
		}
		reply, err := s.api.ReleaseAttempts(ctx, req, api.ReleaseAttemptsParams{})
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, firstRetryable(reply.Items, func(r api.ReleaseResult) error { return client.ItemError(r.Problem) })
	})
	if err != nil {
		s.heedSuperseded(err)
		s.log.Warn("offers not released; they will run out", "offers", len(offers), "error", err)
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
			s.begun(sent, begun.StartedAt)
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
