package pulse

import (
	"context"
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

func shareHeads(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, calls []*workerCall) (map[orbit.ID]pulsedb.ShareFencesRow, error) {
	ids := map[orbit.ID]bool{}
	for _, c := range calls {
		ids[c.instanceID] = true
	}
	heads := make(map[orbit.ID]pulsedb.ShareFencesRow, len(ids))
	if calls[0].patient {
		rows, err := q.AwaitFences(ctx, pulsedb.AwaitFencesParams{NamespaceID: ns, InstanceIds: keys(ids)})
		for _, r := range rows {
			heads[r.OwnInstanceID] = pulsedb.ShareFencesRow(r)
		}
		return heads, err
	}
	rows, err := q.ShareFences(ctx, pulsedb.ShareFencesParams{NamespaceID: ns, InstanceIds: keys(ids)})
	for _, r := range rows {
		heads[r.OwnInstanceID] = r
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

func errSuperseded(head pulsedb.ShareFencesRow) error {
	if head.ClosedAt != nil {
		return fault.New(fault.SessionSuperseded, "this worker session was closed; open a new one with a new instance_id")
	}
	return fault.New(fault.SessionSuperseded, "a newer incarnation of this worker holds the session (epoch %d); this one must stop", head.Epoch)
}
