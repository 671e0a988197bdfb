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

// StartAttempts gives leave to execute, item by item: offered → running, the lease begins. A repeat with the same token and epoch gets the
// original lease. In a race with a closing gate, a newer session, a cancellation or the end of the offer exactly one wins.
func (s *Service) StartAttempts(ctx context.Context, req *api.StartAttemptsRequest) (jx.Raw, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksExecute)
	if err != nil {
		return nil, err
	}
	if err := checkCount(len(req.Items), 1); err != nil {
		return nil, err
	}
	c := &workerCall{caller: caller, instanceID: req.InstanceID, epoch: req.Epoch}
	for k, raw := range req.Items {
		var in api.StartItem
		err := decodeItem(ctx, raw, k, &in)
		c.items = append(c.items, &item{call: c, attemptID: in.AttemptID, token: readToken(in.Token), err: err})
	}
	if err := s.perform(ctx, s.starts, c); err != nil {
		return nil, err
	}
	return encodeItems(c.items, func(i *item) *api.StartResult {
		if i.err != nil {
			status, problem := s.problem(ctx, i.err)
			return &api.StartResult{Status: status, Problem: problem}
		}
		return &api.StartResult{Status: 200, Attempt: api.NewOptStartedAttempt(i.started)}
	}), nil
}

// start does the steps in lock order:
//  1. session head, shared: no newer incarnation opens before the commit;
//  2. root gate, shared: no gate closes before the commit; the other gates are read under it;
//  3. the attempts, by primary key;
//  4. offered → running, or, behind a closed gate, released with its task blocked on that gate.
func (s *Service) start(ctx context.Context, tx *dbtx.Tx, b *workerBatch) error {
	q := pulsedb.New(tx)
	items := b.fenceCurrent()
	gates, err := gatesUnder(ctx, q, b.ns, b.root)
	if err != nil {
		return err
	}
	held, err := b.hold(ctx, q, items)
	if err != nil {
		return err
	}
	passed := map[uint32][]*item{} // by lease
	var refused []ending
	for _, i := range items {
		e, ok := held[i]
		switch gate := gates.closedFor(e.task.QueueID, e.task.Type, i.call.instanceID); {
		case !ok:
		case e.attempt.State == orbit.AttemptRunning:
			i.started = startedAttempt(e.attempt)
		case e.attempt.State != orbit.AttemptOffered:
			i.err = startOver(e.attempt)
		case gate != "":
			i.err = fault.New(fault.StartRefused, "a gate is closed (%s): the task waits for it and no attempt was used", gate)
			e.actor = i.actor()
			refused = append(refused, decideRefused(e, gate))
		default:
			passed[e.queue.LeaseMs] = append(passed[e.queue.LeaseMs], i)
		}
	}
	for leaseMs, items := range passed {
		if err := startTogether(ctx, tx, b.ns, leaseMs, items, held); err != nil {
			return err
		}
	}
	return s.settle(ctx, tx, b.ns, refused)
}

func startTogether(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, leaseMs uint32, items []*item, held map[*item]ending) error {
	until := tx.Now.Add(time.Duration(leaseMs) * time.Millisecond)
	if _, err := pulsedb.New(tx.Later(len(items))).StartAttempts(ctx, pulsedb.StartAttemptsParams{
		NowAt: tx.Now, LeaseMs: leaseMs, LeaseUntil: &until, NamespaceID: ns, Ids: attemptIDs(items)}); err != nil {
		return err
	}
	for _, i := range items {
		a := held[i].attempt
		a.State, a.StartedAt, a.LeaseUntil, a.LeaseMs = orbit.AttemptRunning, &tx.Now, &until, leaseMs
		i.started = startedAttempt(a)
		emit(tx, ns, i.actor(), kindAttempt, a.ID, a.Version+1, "attempt.started", facts{"task_id": a.TaskID})
	}
	return nil
}

func startedAttempt(a pulsedb.PulseAttempt) api.StartedAttempt {
	return api.StartedAttempt{
		AttemptID: a.ID, State: api.AttemptState(a.State), StartedAt: *a.StartedAt,
		LeaseUntil: a.StartedAt.Add(time.Duration(a.LeaseMs) * time.Millisecond), LeaseMs: int64(a.LeaseMs),
	}
}

// startOver tells why an attempt that is over cannot be started.
func startOver(a pulsedb.PulseAttempt) error {
	switch {
	case a.State == orbit.AttemptLost:
		return fault.New(fault.LeaseLost, "the attempt was started and then lost at %s", a.EndedAt.Format(time.RFC3339Nano))
	case a.StartedAt != nil:
		return fault.New(fault.StaleAttempt, "the attempt was started before and has ended (%s)", a.State)
	}
	return fault.New(fault.StaleAttempt, "the offer is over (%s); no attempt was used", a.State)
}
