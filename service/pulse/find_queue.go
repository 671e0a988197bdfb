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

// queueLook reads queues by id and by name, as they are now.
type queueLook struct {
	refs []queueRef
	rows []pulsedb.PulseQueue
}

func (l *queueLook) readByID(ctx context.Context, q *pulsedb.Queries, ns orbit.ID) (err error) {
	ids := map[orbit.ID]bool{}
	for _, r := range l.refs {
		if !r.id.IsZero() {
			ids[r.id] = true
		}
	}
	l.rows = nil
	if len(ids) > 0 {
		l.rows, err = q.ListQueuesByID(ctx, pulsedb.ListQueuesByIDParams{NamespaceID: ns, Ids: keys(ids)})
	}
	return err
}

// readByName comes after readByID.
func (l *queueLook) readByName(ctx context.Context, q *pulsedb.Queries, ns orbit.ID) error {
	names := map[string]bool{}
	for _, r := range l.refs {
		if r.id.IsZero() {
			names[r.name] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	rows, err := q.ListQueuesByName(ctx, pulsedb.ListQueuesByNameParams{NamespaceID: ns, Names: keys(names)})
	l.rows = append(l.rows, rows...)
	return err
}

// seen gives the queues in the order of refs. One that does not exist, is another tenant's or was not granted is nil, and the three cannot be
// told apart.
func (l *queueLook) seen(c platform.Caller) []*pulsedb.PulseQueue {
	byID, byName := map[orbit.ID]*pulsedb.PulseQueue{}, map[string]*pulsedb.PulseQueue{}
	for i := range l.rows {
		if c.SeesQueue(l.rows[i].Name) {
			byID[l.rows[i].ID], byName[l.rows[i].Name] = &l.rows[i], &l.rows[i]
		}
	}
	queues := make([]*pulsedb.PulseQueue, len(l.refs))
	for i, r := range l.refs {
		if r.id.IsZero() {
			queues[i] = byName[r.name]
		} else {
			queues[i] = byID[r.id]
		}
	}
	return queues
}

// findQueues reads queues as they are now, as seen gives them.
func findQueues(ctx context.Context, q *pulsedb.Queries, c platform.Caller, refs []queueRef) ([]*pulsedb.PulseQueue, error) {
	look := &queueLook{refs: refs}
	if err := look.readByID(ctx, q, c.NamespaceID); err != nil {
		return nil, err
	}
	if err := look.readByName(ctx, q, c.NamespaceID); err != nil {
		return nil, err
	}
	return look.seen(c), nil
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
