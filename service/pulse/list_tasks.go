package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// ListTasks lists tasks of the queues that were granted, newest first, without payloads and results.
//
// A page reads a bounded stretch. Filters that no index answers are applied to what was read, so that a page may be short, or empty, and still
// not be the last. Without a state filter each task is met exactly once; with one, a task that changes its state meanwhile may be missed.
func (s *Service) ListTasks(ctx context.Context, params api.ListTasksParams) (*api.TaskList, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksRead)
	if err != nil {
		return nil, err
	}
	f := taskFilter{caller: caller, state: params.State.Or(""), taskType: params.Type.Or(""), visible: map[orbit.ID]bool{}}
	walk := page.Of("listTasks", idText(params.QueueID), string(f.state), f.taskType)
	before, err := walk.Before(params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	q := s.reads()
	candidates, err := taskWalk(ctx, q, caller, params.QueueID, f.state, before)
	if err != nil {
		return nil, err
	}
	return pageTasks(ctx, q, f, walk, candidates, page.Size(params.Limit.Or(page.Default)))
}

func idText(id api.OptID) string {
	if !id.Set {
		return ""
	}
	return id.Value.String()
}

// pageTasks reads candidates in growing steps until the page is full, the stretch is read or the walk is over.
func pageTasks(ctx context.Context, q *pulsedb.Queries, f taskFilter, walk page.Walk, candidates taskWalker, size int) (*api.TaskList, error) {
	list := &api.TaskList{Items: make([]api.TaskSummary, 0, size)}
	for read, step := 0, size; ; step = min(2*step, 1000, stretch-read) {
		found, err := candidates.next(ctx, step)
		if err != nil {
			return nil, err
		}
		views, err := f.view(ctx, q, found)
		if err != nil {
			return nil, err
		}
		for _, v := range views {
			if len(list.Items) == size {
				last := list.Items[size-1].ID
				list.NextCursor.SetTo(walk.Cursor(last[:]))
				return list, nil
			}
			list.Items = append(list.Items, v)
		}
		if len(found) < step {
			return list, nil
		}
		if read += len(found); len(list.Items) == size || read >= stretch {
			last := found[len(found)-1].ID
			list.NextCursor.SetTo(walk.Cursor(last[:]))
			return list, nil
		}
	}
}

// taskFilter is what is asked of a task beyond its place in the walk.
type taskFilter struct {
	caller   platform.Caller
	state    api.TaskState // empty for any
	taskType string        // empty for any
	visible  map[orbit.ID]bool
}

// view reads the candidates that pass the filter as they are now, in one statement. The state is judged by what is shown, whatever it was
// when the candidate was found.
func (f taskFilter) view(ctx context.Context, q *pulsedb.Queries, found []candidate) ([]api.TaskSummary, error) {
	if err := f.learnQueues(ctx, q, found); err != nil {
		return nil, err
	}
	state := rowState(f.state)
	ids := make([]orbit.ID, 0, len(found))
	for _, c := range found {
		if f.visible[c.QueueID] && (f.taskType == "" || c.Type == f.taskType) && (state == "" || c.State == state) {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := q.ViewTasks(ctx, pulsedb.ViewTasksParams{NamespaceID: f.caller.NamespaceID, Ids: ids})
	if err != nil {
		return nil, err
	}
	views := make([]api.TaskSummary, 0, len(rows))
	for _, r := range rows {
		v, err := taskSummary(r)
		if err != nil {
			return nil, err
		}
		if f.state == "" || v.State == f.state {
			views = append(views, v)
		}
	}
	return views, nil
}

// learnQueues judges the queues of the candidates that were not met before.
func (f taskFilter) learnQueues(ctx context.Context, q *pulsedb.Queries, found []candidate) error {
	var refs []queueRef
	for _, c := range found {
		if _, known := f.visible[c.QueueID]; !known {
			f.visible[c.QueueID] = f.caller.SeesAllQueues()
			refs = append(refs, queueRef{id: c.QueueID})
		}
	}
	if len(refs) == 0 || f.caller.SeesAllQueues() {
		return nil
	}
	queues, err := findQueues(ctx, q, f.caller, refs)
	if err != nil {
		return err
	}
	for i, r := range refs {
		f.visible[r.id] = queues[i] != nil
	}
	return nil
}
