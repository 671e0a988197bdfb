package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// queueRef names a queue by id or, where that is zero, by name.
type queueRef struct {
	id   orbit.ID
	name string
}

// findQueues reads queues as they are now, in the order of refs. A queue that does not exist, is another tenant's or was not
// granted is nil, and the three cannot be told apart.
func findQueues(ctx context.Context, q *pulsedb.Queries, c platform.Caller, refs []queueRef) ([]*pulsedb.PulseQueue, error) {
	byID, byName := map[orbit.ID]*pulsedb.PulseQueue{}, map[string]*pulsedb.PulseQueue{}
	for _, r := range refs {
		if r.id.IsZero() {
			byName[r.name] = nil
		} else {
			byID[r.id] = nil
		}
	}
	var rows []pulsedb.PulseQueue
	if len(byID) > 0 {
		found, err := q.ListQueuesByID(ctx, pulsedb.ListQueuesByIDParams{NamespaceID: c.NamespaceID, Ids: keys(byID)})
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	if len(byName) > 0 {
		found, err := q.ListQueuesByName(ctx, pulsedb.ListQueuesByNameParams{NamespaceID: c.NamespaceID, Names: keys(byName)})
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	for i := range rows {
		if c.SeesQueue(rows[i].Name) {
			byID[rows[i].ID], byName[rows[i].Name] = &rows[i], &rows[i]
		}
	}
	queues := make([]*pulsedb.PulseQueue, len(refs))
	for i, r := range refs {
		if r.id.IsZero() {
			queues[i] = byName[r.name]
		} else {
			queues[i] = byID[r.id]
		}
	}
	return queues, nil
}

// findQueueIDs resolves queues that a worker names by id or name; one that the caller does not see refuses the whole call.
func findQueueIDs(ctx context.Context, q *pulsedb.Queries, c platform.Caller, names []string) ([]orbit.ID, error) {
	refs := make([]queueRef, len(names))
	for i, n := range names {
		if id, err := orbit.ParseID(n); err == nil {
			refs[i].id = id
		} else {
			refs[i].name = n
		}
	}
	queues, err := findQueues(ctx, q, c, refs)
	if err != nil {
		return nil, err
	}
	ids := make([]orbit.ID, 0, len(queues))
	seen := map[orbit.ID]bool{}
	for i, queue := range queues {
		if queue == nil {
			return nil, fault.New(fault.NotFound, "no such queue, or this credential may not see it: %q", names[i])
		}
		if !seen[queue.ID] {
			seen[queue.ID] = true
			ids = append(ids, queue.ID)
		}
	}
	return ids, nil
}

func keys[K comparable, V any](m map[K]V) []K {
	list := make([]K, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	return list
}
