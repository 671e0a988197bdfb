package worker

import (
	"context"
	"errors"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// Limits of one finish call. The byte limit leaves room below the server's 32 MiB.
const (
	finishItems = 100
	finishBytes = 24 << 20
)

// report is a result on its way to the server.
type report struct {
	run    *execution
	item   api.FinishItem
	tried  bool // was sent before
	alone  bool // was in a call that was refused as a whole
	second bool // replaces a result that was refused
}

func (r *report) fresh() bool { return !r.tried }

// enqueue frees the slot of the handler in the same moment, so that the call which takes the result can claim for it.
func (s *session) enqueue(r *report) {
	s.mu.Lock()
	s.waiting = append(s.waiting, r)
	s.unsettled++
	s.free++
	s.mu.Unlock()
	s.resultDue.set()
	s.slotFree.set()
}

// sendResults sends what is waiting, again and again until each result has a receipt or a definite no, or calls ends. While one
// call is under way the next batch gathers.
func (s *session) sendResults() {
	wait := client.Schedule()
	for {
		batch, c := s.nextBatch()
		if len(batch) == 0 {
			select {
			case <-s.resultDue:
			case <-s.calls.Done():
				return
			}
			continue
		}
		again, after := s.finish(batch, c)
		if len(again) < len(batch) {
			wait.Reset()
		}
		if len(again) > 0 {
			s.requeue(again)
			if len(again) == len(batch) {
				pause(s.calls, max(after, wait.NextBackOff()))
			}
		}
		if s.calls.Err() != nil {
			return
		}
	}
}

// nextBatch takes from the front, and a claim with it. A report that must go alone does; results that found no answer before take no claim
// along, which would share their fate.
func (s *session) nextBatch() ([]*report, claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes, again := 0, 0, false
	for n < len(s.waiting) && n < finishItems {
		r := s.waiting[n]
		bytes += len(r.item.Result)
		if n > 0 && (bytes > finishBytes || r.alone) {
			break
		}
		n++
		again, r.tried = again || r.tried, true
		if r.alone {
			break
		}
	}
	batch := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	s.slotFree.set() // for a claim that none of these takes along
	if n == 0 || again {
		return batch, claim{}
	}
	return batch, s.beginClaim(n)
}

// requeue puts reports behind the others, so that one which finds no answer holds up none.
func (s *session) requeue(reports []*report) {
	s.mu.Lock()
	s.waiting = append(s.waiting, reports...)
	s.mu.Unlock()
}

// finish sends one call, with a claim if there is one, and settles what it can. It gives what must be sent again, and how long the server asks to wait first.
func (s *session) finish(batch []*report, c claim) (again []*report, after time.Duration) {
	ctx, cancel := context.WithTimeout(s.calls, callLimit)
	defer cancel()
	req := &api.FinishAttemptsRequest{InstanceID: s.instance, Epoch: s.epoch}
	for _, r := range batch {
		req.Items = append(req.Items, r.item)
	}
	if c.slots > 0 {
		req.Claim = api.NewOptFinishClaim(api.FinishClaim{ClaimSeq: c.seq, Max: c.slots, Start: api.NewOptBool(true)})
	}
	reply, err := s.api.FinishAttempts(ctx, req, api.FinishAttemptsParams{})
	if err == nil && len(reply.Items) != len(batch) {
		err = errMisanswered
	}
	if c.slots > 0 {
		s.claimedWith(c, reply, err)
	}
	if err != nil {
		return s.notFinished(batch, err)
	}
	for i, r := range batch {
		itemErr := client.ItemError(reply.Items[i].Problem)
		switch {
		case reply.Items[i].Receipt.Set:
			s.settle(r)
		case client.Retryable(itemErr) || itemErr == nil:
			again = append(again, r)
			after = max(after, retryAfter(itemErr))
		default:
			again = append(again, s.refused(r, itemErr, reply.Items[i].EvidenceID.Value)...)
		}
	}
	return again, after
}

// notFinished judges a call that was not answered item by item.
func (s *session) notFinished(batch []*report, err error) (again []*report, after time.Duration) {
	var p *client.Problem
	switch {
	case s.calls.Err() != nil:
		return batch, 0
	case client.Retryable(err), errors.As(err, &p) && (p.Status == 401 || p.Status == 403):
		s.log.Warn("results not taken yet", "results", len(batch), "error", err)
		return batch, retryAfter(err)
	case len(batch) > 1:
		s.log.Warn("a call with results was refused; sending them one by one", "results", len(batch), "error", err)
		for _, r := range batch {
			r.alone = true
		}
		return batch, 0
	}
	return s.refused(batch[0], err, ""), 0
}

// refused takes a definite no. Where it is about the result itself, a failure is reported in its place, once: the attempt would
// else end as lost.
func (s *session) refused(r *report, err error, evidenceID string) (again []*report) {
	s.heedSuperseded(err)
	log := s.log.With("attempt_id", r.run.offer.AttemptID, "task_id", r.run.offer.TaskID, "outcome", r.item.Outcome, "error", err)
	about := client.HasCode(err, client.CodeInvalidRequest) || client.HasCode(err, client.CodePayloadTooLarge)
	if about && !r.second {
		log.Error("result refused; reporting a failure")
		r.item = refused("the server refused the result: "+err.Error()).item(r.item.AttemptID, r.item.Token)
		r.second = true
		return []*report{r}
	}
	log.Warn("result not taken", "evidence_id", evidenceID)
	s.settle(r)
	return nil
}

func (s *session) settle(r *report) {
	s.mu.Lock()
	delete(s.live, r.run.offer.AttemptID)
	s.unsettled--
	s.mu.Unlock()
	s.slotFree.set()
	s.resultSent.set()
}

func retryAfter(err error) time.Duration {
	var p *client.Problem
	if errors.As(err, &p) {
		return p.RetryAfter
	}
	return 0
}
