package pulse

import (
	"context"
	"slices"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// askHeads shares the session heads of calls until the commit: no newer incarnation opens, and none is closed.
func askHeads(ns orbit.ID, calls []*workerCall, heads *map[orbit.ID]pulsedb.ShareFencesRow) dbtx.Question {
	ids := map[orbit.ID]bool{}
	for _, c := range calls {
		ids[c.instanceID] = true
	}
	return func(ctx context.Context, db dbtx.DBTX) (err error) {
		q := pulsedb.New(db)
		var rows []pulsedb.ShareFencesRow
		if calls[0].patient {
			var awaited []pulsedb.AwaitFencesRow
			awaited, err = q.AwaitFences(ctx, pulsedb.AwaitFencesParams{NamespaceID: ns, InstanceIds: keys(ids)})
			for _, r := range awaited {
				rows = append(rows, pulsedb.ShareFencesRow(r))
			}
		} else {
			rows, err = q.ShareFences(ctx, pulsedb.ShareFencesParams{NamespaceID: ns, InstanceIds: keys(ids)})
		}
		*heads = make(map[orbit.ID]pulsedb.ShareFencesRow, len(rows))
		for _, r := range rows {
			(*heads)[r.OwnInstanceID] = r
		}
		return err
	}
}

// fence judges calls by the session heads they share. A call whose instance does not exist or is not its caller's is refused; one whose head
// somebody holds is judged by itself.
func fence(calls []*workerCall, heads map[orbit.ID]pulsedb.ShareFencesRow) {
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
}

// fence answers the items of the calls that were not refused, nor are judged by themselves.
func (b *workerBatch) fence() []*item {
	fence(b.calls, b.heads)
	return fenced(b.items)
}

// fenceCurrent is fence for operations that an old incarnation must not do at all.
func (b *workerBatch) fenceCurrent() []*item {
	fence(b.calls, b.heads)
	for _, c := range b.calls {
		if c.superseded {
			c.err = errSuperseded(c.head)
		}
	}
	return fenced(b.items)
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
