package pulse

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// liveBound bounds the live attempts counted for one page of workers, all of them together.
const liveBound = 50_000

// ListWorkers lists the incarnations of the workers of the namespace by id, the greatest first, which is newest first for
// time-ordered ids. Queues that were not granted are left out, and so are workers that serve no other; a page may be short.
func (s *Service) ListWorkers(ctx context.Context, params api.ListWorkersParams) (*api.WorkerList, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksRead)
	if err != nil {
		return nil, err
	}
	walk := page.Of("listWorkers")
	before, err := walk.Before(params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	q := s.reads()
	size := page.Size(params.Limit.Or(page.Default))
	rows, err := q.ListInstances(ctx, pulsedb.ListInstancesParams{NamespaceID: caller.NamespaceID, BeforeID: before, Limit: int32(size) + 1})
	if err != nil {
		return nil, err
	}
	list := &api.WorkerList{}
	if len(rows) > size {
		rows = rows[:size]
		list.NextCursor.SetTo(walk.Cursor(rows[size-1].ID[:]))
	}
	live, err := liveByInstance(ctx, q, caller.NamespaceID, rows)
	if err != nil {
		return nil, err
	}
	list.Items = make([]api.Worker, 0, len(rows))
	for _, r := range rows {
		w, err := viewWorker(r)
		if err != nil {
			return nil, err
		}
		if w.Queues, err = grantedQueues(ctx, q, caller, w.Queues); err != nil {
			return nil, err
		}
		if len(w.Queues) == 0 && !caller.SeesAllQueues() {
			continue
		}
		w.LiveAttempts = live(r.ID)
		list.Items = append(list.Items, w)
	}
	return list, nil
}

// grantedQueues leaves out queues that were not granted to the caller.
func grantedQueues(ctx context.Context, q *pulsedb.Queries, c platform.Caller, ids []orbit.ID) ([]orbit.ID, error) {
	if c.SeesAllQueues() || len(ids) == 0 {
		return ids, nil
	}
	refs := make([]queueRef, len(ids))
	for i, id := range ids {
		refs[i].id = id
	}
	queues, err := findQueues(ctx, q, c, refs)
	granted := make([]orbit.ID, 0, len(ids))
	for _, queue := range queues {
		if queue != nil {
			granted = append(granted, queue.ID)
		}
	}
	return granted, err
}

func viewWorker(r pulsedb.ListInstancesRow) (api.Worker, error) {
	w := api.Worker{
		WorkerName: r.WorkerName, SessionID: r.SessionID, InstanceID: r.ID, Epoch: r.Epoch, State: api.WorkerState(r.State),
		Host: optText(r.Host), Version: optText(r.Version), Queues: []orbit.ID{}, Types: []string{}, Slots: int(r.Slots),
		OpenedAt: r.OpenedAt, HeartbeatAt: r.HeartbeatAt, EndedAt: optTime(r.EndedAt),
	}
	if err := json.Unmarshal(r.Queues, &w.Queues); err != nil {
		return w, fmt.Errorf("queues of instance %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Types, &w.Types); err != nil {
		return w, fmt.Errorf("types of instance %s: %w", r.ID, err)
	}
	return w, nil
}

// liveByInstance counts live attempts in the order of instance ids, up to liveBound in all: where that cuts, the instance it cuts in
// and those after it may have more.
func liveByInstance(ctx context.Context, q *pulsedb.Queries, namespaceID orbit.ID, rows []pulsedb.ListInstancesRow) (func(orbit.ID) api.BoundedCount, error) {
	ids := make([]orbit.NullID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID.Null()
	}
	counts, err := q.CountLiveByInstance(ctx, pulsedb.CountLiveByInstanceParams{NamespaceID: namespaceID, InstanceIds: ids, Limit: liveBound})
	if err != nil {
		return nil, err
	}
	var total int64
	var last orbit.ID
	byID := map[orbit.ID]int64{}
	for _, c := range counts {
		byID[c.LiveInstanceID.ID] = c.Attempts
		total += c.Attempts
		if c.LiveInstanceID.ID.Compare(last) > 0 {
			last = c.LiveInstanceID.ID
		}
	}
	return func(id orbit.ID) api.BoundedCount {
		count := bounded(byID[id])
		if total == liveBound && id.Compare(last) >= 0 {
			count.Capped = true
		}
		return count
	}, nil
}
