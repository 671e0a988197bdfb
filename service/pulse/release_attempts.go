package pulse

import (
	"context"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// ReleaseAttempts gives offers back, and what came started and had no heartbeat, by item or all of a claim; no attempt is used. With a claim_seq it also refuses whatever of
// that claim, or of an earlier one, is still under way. A repeat gets the same results for items and none for a claim_seq.
func (s *Service) ReleaseAttempts(ctx context.Context, req *api.ReleaseAttemptsRequest) (jx.Raw, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksExecute)
	if err != nil {
		return nil, err
	}
	c := &workerCall{caller: caller, instanceID: req.InstanceID, epoch: req.Epoch}
	var items []*item
	switch byItem := len(req.Items) > 0; {
	case byItem == req.ClaimSeq.Set:
		return nil, fault.Invalid("/items", "one_of", "give exactly one of items and claim_seq")
	case byItem:
		items, err = s.releaseItems(ctx, c, req.Items)
	default:
		items, err = s.abandonClaim(ctx, c, req.ClaimSeq.Value)
	}
	if err != nil {
		return nil, err
	}
	return encodeItems(items, func(i *item) *api.ReleaseResult {
		if i.err != nil {
			status, problem := s.problem(ctx, i.err)
			return &api.ReleaseResult{Status: status, Problem: problem}
		}
		return &api.ReleaseResult{Status: 200, Attempt: api.NewOptReleasedAttempt(i.released)}
	}), nil
}

func (s *Service) releaseItems(ctx context.Context, c *workerCall, raws []jx.Raw) ([]*item, error) {
	if err := checkCount(len(raws), 1); err != nil {
		return nil, err
	}
	for k, raw := range raws {
		var in api.ReleaseItem
		err := decodeItem(ctx, raw, k, &in)
		c.items = append(c.items, &item{call: c, attemptID: in.AttemptID, token: readToken(in.Token), reason: in.Reason.Or(codeReleased), err: err})
	}
	return c.items, s.perform(ctx, s.releases, c)
}

func (s *Service) release(ctx context.Context, tx *dbtx.Tx, b *workerBatch) error {
	items := b.fenceCurrent()
	held, err := b.hold(ctx, pulsedb.New(tx), items)
	if err != nil {
		return err
	}
	var decided []ending
	for _, i := range items {
		e, ok := held[i]
		switch a := e.attempt; {
		case !ok:
		case unbegun(a):
			e.actor = i.actor()
			decided = append(decided, decideUnstarted(e, orbit.AttemptReleased, i.reason, i.reason != codeShutdown))
			i.released = releasedAttempt(a)
		case a.State == orbit.AttemptReleased:
			i.released = releasedAttempt(a)
		case a.StartedAt != nil:
			i.err = fault.New(fault.StateConflict, "the attempt was started and is %s: only what was not begun is given back; a running attempt is finished, as failed if it is to be tried again", a.State)
		default:
			i.err = startOver(a)
		}
	}
	return s.settle(ctx, tx, b.ns, decided)
}

// abandonClaim ends a claim whose reply was lost. It holds the session head exclusively: a claim under way has committed, and its offers
// are found here, or it comes later and is refused.
func (s *Service) abandonClaim(ctx context.Context, c *workerCall, claimSeq int64) ([]*item, error) {
	var items []*item
	ns := c.caller.NamespaceID
	err := s.Lane.Run(ctx, "releaseAttempts", func(ctx context.Context, tx *dbtx.Tx) error {
		items = nil
		q := pulsedb.New(tx)
		session, err := lockOwnSession(ctx, q, c)
		if err != nil {
			return err
		}
		if session.ClosedAt != nil {
			return errSuperseded(pulsedb.ShareFencesRow{ClosedAt: session.ClosedAt})
		}
		// A repeat, or a claim before one that was abandoned, changes nothing.
		if _, err := q.AbandonClaims(ctx, pulsedb.AbandonClaimsParams{ClaimSeq: claimSeq, NamespaceID: ns, ID: session.ID, Epoch: c.epoch}); err != nil {
			return err
		}
		rows, err := q.ListClaimAttempts(ctx, pulsedb.ListClaimAttemptsParams{NamespaceID: ns, InstanceID: c.instanceID.Null(), ClaimSeq: claimSeq})
		if err != nil {
			return err
		}
		var ids []orbit.ID
		for _, r := range rows {
			if r.State == orbit.AttemptOffered || startedWithClaim(r.OfferedAt, r.StartedAt, r.Heartbeats) {
				ids = append(ids, r.ID)
			}
		}
		items, err = s.releaseClaimed(ctx, tx, c, ids)
		return err
	})
	return items, err
}

func (s *Service) releaseClaimed(ctx context.Context, tx *dbtx.Tx, c *workerCall, ids []orbit.ID) ([]*item, error) {
	q := pulsedb.New(tx)
	ns := c.caller.NamespaceID
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := lockAttempts(ctx, q, ns, ids, true) // an offer that is held elsewhere is waited for, not left behind
	if err != nil {
		return nil, err
	}
	var decided []ending
	var items []*item
	for _, r := range rows {
		a := r.PulseAttempt
		if !unbegun(a) {
			continue
		}
		e := endingOf(r)
		e.actor = c.caller.ActorID.Null()
		decided = append(decided, decideUnstarted(e, orbit.AttemptReleased, codeAbandoned, false))
		items = append(items, &item{attemptID: e.attempt.ID, released: releasedAttempt(e.attempt)})
	}
	return items, s.settle(ctx, tx, ns, decided)
}

func releasedAttempt(a pulsedb.PulseAttempt) api.ReleasedAttempt {
	return api.ReleasedAttempt{AttemptID: a.ID, TaskID: a.TaskID, State: api.AttemptStateReleased}
}

// unbegun is what can be given back: an offer, or what came started and had no heartbeat.
func unbegun(a pulsedb.PulseAttempt) bool {
	return a.State == orbit.AttemptOffered || a.State == orbit.AttemptRunning && startedWithClaim(a.OfferedAt, a.StartedAt, a.Heartbeats)
}

// startedWithClaim tells an attempt that its claim started, and of which nothing was heard since: to a worker that lost the reply it is an offer.
func startedWithClaim(offeredAt time.Time, startedAt *time.Time, heartbeats int64) bool {
	return startedAt != nil && startedAt.Equal(offeredAt) && heartbeats == 0
}
