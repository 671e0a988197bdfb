package pulse

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/combine"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// recheck is how often a waiting claim makes sure that its credential still opens.
const recheck = 2 * time.Second

// ClaimTasks offers ready tasks to an instance, by priority and then by rank, and waits for some if there are none. An offer uses no attempt
// and ends by itself. A repeat is a new claim; after a lost reply its claim_seq is released. Of several claims at once each gets other tasks.
func (s *Service) ClaimTasks(ctx context.Context, req *api.ClaimTasksRequest) (*api.ClaimTasksResponse, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksExecute)
	if err != nil {
		return nil, err
	}
	c := &claimCall{workerCall: workerCall{caller: caller, instanceID: req.InstanceID, epoch: req.Epoch}, seq: req.ClaimSeq, limit: req.Max, start: req.Start.Or(false)}
	if c.queues, err = s.claimQueues(ctx, c, req.Queues); err != nil {
		return nil, err
	}
	wait := time.Duration(req.WaitMs.Or(0)) * time.Millisecond
	if wait == 0 {
		s.claim(ctx, c)
	} else {
		err = s.claimWaiting(ctx, c, wait)
	}
	if len(c.offers) > 0 && (err != nil || ctx.Err() != nil) {
		s.giveBack(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return &api.ClaimTasksResponse{ClaimSeq: req.ClaimSeq, Offers: c.offers}, c.err
}

// claimWaiting looks for tasks and, as long as there are none, waits: to be handed some, or to be woken and look again. An error ends the
// poll from outside; what the claim itself met is in the call.
func (s *Service) claimWaiting(ctx context.Context, c *claimCall, wait time.Duration) error {
	p := s.waiters.wait(ctx, c)
	defer s.waiters.leave(p)
	defer s.presence.join(c, p.wake)()
	end := time.NewTimer(wait)
	defer end.Stop()
	c.forget()
	for known := s.presence.isCurrent(c.incarnation()) && s.waiters.knowEmpty(p.queues); ; known = false {
		if !known {
			s.claim(ctx, c)
		}
		if c.answered() {
			return nil
		}
		again, err := s.awaitWork(ctx, p, end.C)
		if err == nil && len(c.offers) > 0 {
			err = s.Platform.StillValid(ctx) // nobody asked while the poll was handed its offers
		}
		if !again || c.answered() {
			return err
		}
	}
}

// giveBack releases the offers of a claim whose caller is gone, so that others need not wait for them to run out.
func (s *Service) giveBack(ctx context.Context, c *claimCall) {
	if _, err := s.abandonClaim(context.WithoutCancel(ctx), &c.workerCall, c.seq); err != nil {
		s.Log.Debug("offers of a caller that is gone were not released, and run out", "error", err)
	}
}

// claimCall is one look for tasks.
type claimCall struct {
	workerCall
	seq    int64
	queues []orbit.ID
	limit  int
	start  bool // what its queue lets start at once

	offers []api.Offer
	size   int // bytes of their payloads
}

// forget keeps nothing of an earlier run of the transaction.
func (c *claimCall) forget() { c.err, c.again, c.offers, c.size = nil, false, []api.Offer{}, 0 }

// answered reports whether the claim has something to say.
func (c *claimCall) answered() bool { return c.err != nil || len(c.offers) > 0 }

// takes reports whether the call has room for one more offer with a payload of so many bytes.
func (c *claimCall) takes(bytes int) bool {
	return len(c.offers) < c.limit && (c.size+bytes <= maxOfferBytes || len(c.offers) == 0)
}

// claim looks once, together with other claims of the namespace. A claim whose caller is gone is dropped.
func (s *Service) claim(ctx context.Context, c *claimCall) {
	ns := c.caller.NamespaceID
	c.offers = []api.Offer{}
	s.claims.Do(combine.Call[*claimCall]{NamespaceID: ns, Items: c.limit, Work: c, Gone: func() bool { return ctx.Err() != nil }})
	if c.again {
		c.patient = true
		s.claimTogether(ns, []*claimCall{c})
		c.patient = false
	}
}

// awaitWork returns true when the poll was handed something or another claim is worth it, and false when the poll is over: its time is up, the
// replica drains, its caller is gone, or its credential no longer opens. A poll that is being handed something is not over before that is settled.
func (s *Service) awaitWork(ctx context.Context, p *poll, end <-chan time.Time) (again bool, err error) {
	check := time.NewTicker(recheck)
	defer check.Stop()
	s.waiters.park(p)
	defer s.waiters.unpark(p)
	for {
		select {
		case <-p.settled:
			return true, nil
		case <-p.wake:
			err := s.Platform.StillValid(ctx)
			return err == nil && ctx.Err() == nil, err
		case <-check.C:
			if err := s.Platform.StillValid(ctx); err != nil {
				return false, err
			}
		case <-end:
			return false, nil
		case <-s.waiters.drained:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}

// claimQueues resolves the queues of a claim: those it names, or else those its instance was opened with, without any that was
// no longer granted.
func (s *Service) claimQueues(ctx context.Context, c *claimCall, names []string) ([]orbit.ID, error) {
	if len(names) > 0 {
		return findQueueIDs(ctx, s.reads(), c.caller, names)
	}
	bound, err := s.queuesOf(ctx, c.caller.NamespaceID, c.instanceID)
	if err != nil {
		return nil, err
	}
	ids := make([]orbit.ID, 0, len(bound))
	for _, queue := range bound {
		if c.caller.SeesQueue(queue.name) {
			ids = append(ids, queue.id)
		}
	}
	return ids, nil
}

// instanceKey names an incarnation; what it was opened with never changes, and neither do the names of queues.
type instanceKey struct{ namespaceID, instanceID orbit.ID }

// queuesOf gives the queues that an incarnation was opened with. That it is the caller's, and current, is for the fence to say.
func (s *Service) queuesOf(ctx context.Context, ns, instanceID orbit.ID) ([]queueRef, error) {
	key := instanceKey{ns, instanceID}
	if bound, ok := s.opened.Get(key); ok {
		return bound, nil
	}
	q := s.reads()
	instance, err := q.GetInstance(ctx, pulsedb.GetInstanceParams{NamespaceID: ns, ID: instanceID})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.Missing("worker instance")
	}
	if err != nil {
		return nil, err
	}
	var ids []orbit.ID
	if err := json.Unmarshal(instance.Queues, &ids); err != nil || len(ids) == 0 {
		return nil, err
	}
	rows, err := q.ListQueuesByID(ctx, pulsedb.ListQueuesByIDParams{NamespaceID: ns, Ids: ids})
	if err != nil {
		return nil, err
	}
	bound := make([]queueRef, len(rows))
	for i, r := range rows {
		bound[i] = queueRef{id: r.ID, name: r.Name}
	}
	s.opened.Add(key, bound)
	return bound, nil
}

// claimTogether looks for several claims of a namespace in one transaction. If it failed before its commit each looks by itself; after an
// unknown commit each is told, and releases its claim_seq.
func (s *Service) claimTogether(ns orbit.ID, claims []*claimCall) {
	calls := make([]*workerCall, len(claims))
	for k, c := range claims {
		calls[k] = &c.workerCall
	}
	var heads map[orbit.ID]pulsedb.ShareFencesRow
	var root pulsedb.ShareRootGateRow
	var ahead front
	// In lock order: the session heads, shared; the root gate, shared if anything may be started; the ready rows.
	questions := []dbtx.Question{askHeads(ns, calls, &heads), askRootGate(ns, anyStarts(claims), &root), ahead.ask(ns, claims)}
	err := s.Batch.Run(context.Background(), "claimTasks", func(ctx context.Context, tx *dbtx.Tx) error {
		for _, c := range claims {
			c.forget()
		}
		fence(calls, heads)
		open := admitted(claims)
		gates, err := claimGates(ctx, pulsedb.New(tx), ns, open, root)
		if err != nil {
			return err
		}
		return s.claimFenced(ctx, tx, ns, open, gates, &ahead)
	}, questions...)
	if err == nil {
		return
	}
	var unknown *dbtx.UnknownCommit
	for _, c := range claims {
		c.forget()
		if c.patient || errors.As(err, &unknown) {
			c.err = err
		} else {
			c.again = true
		}
	}
}
