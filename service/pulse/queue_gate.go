package pulse

import (
	"context"
	"fmt"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/platform"
)

// gateMove is what pauseQueue and resumeQueue differ in.
type gateMove struct {
	operation, verb, event string
	to                     orbit.GateState
}

// moveQueueGate sets the gate of a queue exactly once for a key. A gate that is there already is left as it is, with no event.
//
// The root row is held exclusively until the commit, and starts share it: once this has returned, every start sees the new state.
func (s *Service) moveQueueGate(ctx context.Context, queueID orbit.ID, key api.OptString, m gateMove, reason string) (platform.Reply, error) {
	caller, err := platform.Authorize(ctx, platform.ActionQueuesManage)
	if err != nil {
		return platform.Reply{}, err
	}
	queue, err := grantedQueue(ctx, s.reads(), caller, queueID, kindQueue)
	if err != nil {
		return platform.Reply{}, err
	}
	scope := platform.ScopeOf(caller, m.operation, "/v1/queues/"+queueID.String()+":"+m.verb)
	try := platform.Try{Key: key.Or(""), Digest: body.From(ctx).Digest, ResourceKind: kindQueue, ResourceID: queueID}
	return s.Platform.Once(ctx, scope, try, func(ctx context.Context, tx *dbtx.Tx) (platform.Reply, error) {
		gate, err := s.setQueueGate(ctx, tx, caller, queue, m, reason)
		view := api.QueueGate{State: api.GateState(gate.State), Reason: optText(gate.Reason), ControlVersion: gate.ControlVersion, UpdatedAt: gate.UpdatedAt}
		return platform.Reply{Status: 200, Body: encode(&view)}, err
	})
}

func (s *Service) setQueueGate(ctx context.Context, tx *dbtx.Tx, c platform.Caller, queue pulsedb.PulseQueue, m gateMove, reason string) (pulsedb.PulseExecutionGate, error) {
	q := pulsedb.New(tx)
	if _, err := q.LockRootGate(ctx, queue.NamespaceID); err != nil {
		return pulsedb.PulseExecutionGate{}, fmt.Errorf("root gate: %w", err)
	}
	gate, err := queueGate(ctx, q, queue)
	if err != nil || gate.State == m.to {
		return gate, err
	}
	if err := writeGate(ctx, tx, gate, m.to, reason); err != nil {
		return gate, err
	}
	more := int32(1)
	if m.to == orbit.GateOpen {
		more = -1
		tx.OnCommit(func() {
			s.announce(batch.Queue{NamespaceID: queue.NamespaceID, ID: queue.ID}, txRows)
			s.due.blocked.In(0)
		})
	}
	n, err := q.CountClosedGates(ctx, pulsedb.CountClosedGatesParams{More: more, NamespaceID: queue.NamespaceID})
	if err := dbtx.Swapped(n, err); err != nil {
		return gate, fmt.Errorf("root gate: %w", err)
	}
	gate.State, gate.Reason, gate.ControlVersion, gate.UpdatedAt = m.to, reason, gate.ControlVersion+1, tx.Now
	emit(tx, queue.NamespaceID, c.ActorID.Null(), kindGate, queue.ID, gate.ControlVersion, m.event, facts{"scope": gate.Scope, "name": queue.Name})
	return gate, platform.Audit(ctx, tx, c, platform.Act{Action: m.operation, TargetKind: kindQueue, TargetID: queue.ID,
		Detail: map[string]any{"name": queue.Name, "reason": reason}})
}

// writeGate makes the row at the first change, as version 1, and swaps it at every further one.
func writeGate(ctx context.Context, tx *dbtx.Tx, gate pulsedb.PulseExecutionGate, to orbit.GateState, reason string) error {
	q := pulsedb.New(tx)
	if gate.ControlVersion == 0 {
		return q.InsertGate(ctx, pulsedb.InsertGateParams{NamespaceID: gate.NamespaceID, Scope: gate.Scope, ScopeID: gate.ScopeID,
			State: to, Reason: reason, UpdatedAt: tx.Now})
	}
	n, err := q.SetGate(ctx, pulsedb.SetGateParams{State: to, Reason: reason, NowAt: tx.Now,
		NamespaceID: gate.NamespaceID, Scope: gate.Scope, ScopeID: gate.ScopeID, ControlVersion: gate.ControlVersion})
	return dbtx.Swapped(n, err)
}
