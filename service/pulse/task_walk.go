package pulse

import (
	"context"
	"slices"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// candidate is a task as a walk finds it; State is that of its row.
type candidate = pulsedb.PageTasksRow

// taskWalker finds candidates, newest first and each once. Fewer than n means that there are no more.
type taskWalker interface {
	next(ctx context.Context, n int) ([]candidate, error)
}

// maxWalks is the largest number of queues that are walked side by side; beyond it the primary key is walked and filtered.
const maxWalks = 64

// taskWalk chooses the narrowest walk that leads to every task that is asked for: live attempts for offered and running ones while they are few,
// the index of the queues that are asked for or granted while those are few, the primary key otherwise.
func taskWalk(ctx context.Context, q *pulsedb.Queries, c platform.Caller, queue api.OptID, state api.TaskState, before orbit.ID) (taskWalker, error) {
	queues, few, err := walkedQueues(ctx, q, c, queue, state)
	if err != nil {
		return nil, err
	}
	if !few {
		return &keyWalk{q: q, namespaceID: c.NamespaceID, before: before}, nil
	}
	if state == api.TaskStateOffered || state == api.TaskStateRunning {
		live, few, err := liveWalk(ctx, q, c.NamespaceID, queues, before)
		if err != nil || few {
			return live, err
		}
	}
	walk := &queuesWalk{queues: make([]queueWalk, len(queues))}
	for i, id := range queues {
		walk.queues[i] = queueWalk{q: q, namespaceID: c.NamespaceID, queueID: id, state: rowState(state), before: before}
	}
	return walk, nil
}

// walkedQueues answers the queues whose index is worth walking, and false if the primary key is: for a caller who asks for everything, and where
// queues are many.
func walkedQueues(ctx context.Context, q *pulsedb.Queries, c platform.Caller, queue api.OptID, state api.TaskState) ([]orbit.ID, bool, error) {
	if queue.Set {
		row, err := grantedQueue(ctx, q, c, queue.Value, kindQueue)
		return []orbit.ID{row.ID}, true, err
	}
	if state == "" && c.SeesAllQueues() {
		return nil, false, nil
	}
	const looked = 1000
	rows, err := q.ListQueues(ctx, pulsedb.ListQueuesParams{NamespaceID: c.NamespaceID, BeforeID: page.Top(), Limit: looked})
	if err != nil || len(rows) == looked {
		return nil, false, err
	}
	var ids []orbit.ID
	for _, r := range rows {
		if c.SeesQueue(r.Name) {
			ids = append(ids, r.ID)
		}
	}
	return ids, len(ids) <= maxWalks, nil
}

// rowState is the state that the row of a task shown in state has; empty for any.
func rowState(state api.TaskState) orbit.TaskState {
	switch state {
	case api.TaskStateQueued, api.TaskStateOffered, api.TaskStateRunning:
		return orbit.TaskOpen
	}
	return orbit.TaskState(state)
}

// keyWalk walks the primary key.
type keyWalk struct {
	q           *pulsedb.Queries
	namespaceID orbit.ID
	before      orbit.ID
}

func (w *keyWalk) next(ctx context.Context, n int) ([]candidate, error) {
	rows, err := w.q.PageTasks(ctx, pulsedb.PageTasksParams{NamespaceID: w.namespaceID, BeforeID: w.before, Limit: int32(n)})
	if len(rows) > 0 {
		w.before = rows[len(rows)-1].ID
	}
	return rows, err
}

// queueWalk walks the index of one queue, in one state or in all of them.
type queueWalk struct {
	q                    *pulsedb.Queries
	namespaceID, queueID orbit.ID
	state                orbit.TaskState // empty for all
	before               orbit.ID
	found                []candidate // read and not yet taken
	over                 bool
}

func (w *queueWalk) fill(ctx context.Context, n int) error {
	if len(w.found) > 0 || w.over {
		return nil
	}
	rows, err := w.read(ctx, int32(n))
	if err != nil {
		return err
	}
	w.found, w.over = rows, len(rows) < n
	if len(rows) > 0 {
		w.before = rows[len(rows)-1].ID
	}
	return nil
}

func (w *queueWalk) read(ctx context.Context, n int32) ([]candidate, error) {
	var found []candidate
	if w.state == "" {
		rows, err := w.q.PageTasksByQueue(ctx, pulsedb.PageTasksByQueueParams{NamespaceID: w.namespaceID, QueueID: w.queueID, BeforeID: w.before,
			Limit: n, Limit_2: n, Limit_3: n, Limit_4: n, Limit_5: n, Limit_6: n})
		for _, r := range rows {
			found = append(found, candidate(r))
		}
		return found, err
	}
	rows, err := w.q.PageTasksByState(ctx, pulsedb.PageTasksByStateParams{
		NamespaceID: w.namespaceID, QueueID: w.queueID, State: w.state, BeforeID: w.before, Limit: n})
	for _, r := range rows {
		found = append(found, candidate(r))
	}
	return found, err
}

// queuesWalk merges the walks of several queues.
type queuesWalk struct{ queues []queueWalk }

func (w *queuesWalk) next(ctx context.Context, n int) ([]candidate, error) {
	step := n
	if len(w.queues) > 1 {
		step = n/len(w.queues) + 20
	}
	found := make([]candidate, 0, n)
	for len(found) < n {
		newest := -1
		for i := range w.queues {
			if err := w.queues[i].fill(ctx, step); err != nil {
				return nil, err
			}
			if len(w.queues[i].found) > 0 && (newest < 0 || w.queues[i].found[0].ID.Compare(w.queues[newest].found[0].ID) > 0) {
				newest = i
			}
		}
		if newest < 0 {
			break
		}
		found = append(found, w.queues[newest].found[0])
		w.queues[newest].found = w.queues[newest].found[1:]
	}
	return found, nil
}

// listWalk walks what was found before.
type listWalk struct{ found []candidate }

func (w *listWalk) next(_ context.Context, n int) ([]candidate, error) {
	n = min(n, len(w.found))
	taken := w.found[:n]
	w.found = w.found[n:]
	return taken, nil
}

// liveWalk walks the tasks that have a live attempt, and answers false if they are more than a stretch.
func liveWalk(ctx context.Context, q *pulsedb.Queries, namespaceID orbit.ID, queues []orbit.ID, before orbit.ID) (taskWalker, bool, error) {
	var found []candidate
	read := 0
	for _, id := range queues {
		rows, err := q.ListLiveTasks(ctx, pulsedb.ListLiveTasksParams{NamespaceID: namespaceID, QueueID: id.Null(), Limit: int32(stretch - read + 1)})
		if err != nil {
			return nil, false, err
		}
		if read += len(rows); read > stretch {
			return nil, false, nil
		}
		for _, r := range rows {
			if r.TaskID.Compare(before) < 0 {
				found = append(found, candidate{ID: r.TaskID, QueueID: r.QueueID, Type: r.Type, State: orbit.TaskOpen})
			}
		}
	}
	slices.SortFunc(found, func(a, b candidate) int { return b.ID.Compare(a.ID) })
	return &listWalk{found: found}, true, nil
}
