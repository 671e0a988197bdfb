package pulse

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// fence shares the session heads of calls until the commit: no newer incarnation opens, and none is closed. A call whose
// instance does not exist or is not its caller's is refused; one whose head somebody holds is judged by itself.
func fence(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, calls []*workerCall) error {
	heads, err := shareHeads(ctx, q, ns, calls)
	if err != nil {
		return err
	}
	for _, c := range calls {
		head, found := heads[c.instanceID]
		switch {
		case !found && !c.patient:
			c.again = true
		case !found || head.ActorID != c.caller.ActorID:
			c.err = fault.Missing("worker instance")
		default:
			c.head = head
			c.superseded = head.InstanceID != c.instanceID || head.Epoch != c.epoch || head.ClosedAt != nil
		}
	}
	return nil
}

func shareHeads(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, calls []*workerCall) (map[orbit.ID]pulsedb.ShareFenceRow, error) {
	if calls[0].patient {
		head, err := q.ShareFence(ctx, pulsedb.ShareFenceParams{NamespaceID: ns, InstanceID: calls[0].instanceID})
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return map[orbit.ID]pulsedb.ShareFenceRow{head.OwnInstanceID: head}, err
	}
	ids := make([]orbit.ID, len(calls))
	for k, c := range calls {
		ids[k] = c.instanceID
	}
	rows, err := q.ShareFences(ctx, pulsedb.ShareFencesParams{NamespaceID: ns, InstanceIds: ids})
	heads := make(map[orbit.ID]pulsedb.ShareFenceRow, len(rows))
	for _, r := range rows {
		heads[r.OwnInstanceID] = pulsedb.ShareFenceRow(r)
	}
	return heads, err
}

// fenceCurrent is fence for operations that an old incarnation must not do at all, and answers the items of the calls that may.
func fenceCurrent(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, calls []*workerCall, items []*item) ([]*item, error) {
	if err := fence(ctx, q, ns, calls); err != nil {
		return nil, err
	}
	for _, c := range calls {
		if c.superseded {
			c.err = errSuperseded(c.head)
		}
	}
	return fenced(items), nil
}

// fenced leaves out the items of calls that were refused or are judged by themselves.
func fenced(items []*item) []*item {
	return slices.DeleteFunc(slices.Clone(items), func(i *item) bool { return i.call.err != nil || i.call.again })
}

func errSuperseded(head pulsedb.ShareFenceRow) error {
	if head.ClosedAt != nil {
		return fault.New(fault.SessionSuperseded, "this worker session was closed; open a new one with a new instance_id")
	}
	return fault.New(fault.SessionSuperseded, "a newer incarnation of this worker holds the session (epoch %d); this one must stop", head.Epoch)
}
