package pulse

import (
	"context"
	"database/sql"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// stretch bounds the rows that one page of a filtered list reads: the page may be short, or empty, and still not be the last.
const stretch = 10_000

// ListQueues lists the queues that were granted, newest first.
func (s *Service) ListQueues(ctx context.Context, params api.ListQueuesParams) (*api.QueueList, error) {
	caller, err := platform.Authorize(ctx, platform.ActionQueuesRead)
	if err != nil {
		return nil, err
	}
	walk := page.Of("listQueues", params.Name.Or(""))
	before, err := walk.Before(params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	q := s.reads()
	var rows []pulsedb.PulseQueue
	var next api.OptString
	if params.Name.Set {
		rows, err = queueByName(ctx, q, caller, params.Name.Value, before)
	} else {
		rows, next, err = pageQueues(ctx, q, caller, walk, before, page.Size(params.Limit.Or(page.Default)))
	}
	if err != nil {
		return nil, err
	}
	closed, err := peekGates(ctx, q, caller.NamespaceID)
	if err != nil {
		return nil, err
	}
	list := &api.QueueList{Items: make([]api.Queue, 0, len(rows)), NextCursor: next}
	for _, r := range rows {
		paused := closed[pulsedb.ListClosedGatesRow{Scope: orbit.GateScopeQueue, ScopeID: r.ID.String()}]
		list.Items = append(list.Items, viewQueue(r, paused))
	}
	return list, nil
}

func queueByName(ctx context.Context, q *pulsedb.Queries, c platform.Caller, name string, before orbit.ID) ([]pulsedb.PulseQueue, error) {
	row, err := q.GetQueueByName(ctx, pulsedb.GetQueueByNameParams{NamespaceID: c.NamespaceID, Name: name})
	if errors.Is(err, sql.ErrNoRows) || err == nil && (!c.SeesQueue(row.Name) || row.ID.Compare(before) >= 0) {
		return nil, nil
	}
	return []pulsedb.PulseQueue{row}, err
}

func pageQueues(ctx context.Context, q *pulsedb.Queries, c platform.Caller, walk page.Walk, before orbit.ID, size int) ([]pulsedb.PulseQueue, api.OptString, error) {
	var granted []pulsedb.PulseQueue
	for read := 0; read < stretch; {
		rows, err := q.ListQueues(ctx, pulsedb.ListQueuesParams{NamespaceID: c.NamespaceID, BeforeID: before, Limit: page.Max})
		if err != nil {
			return nil, api.OptString{}, err
		}
		for _, r := range rows {
			if len(granted) == size {
				return granted, api.NewOptString(walk.Cursor(before[:])), nil
			}
			before = r.ID
			if c.SeesQueue(r.Name) {
				granted = append(granted, r)
			}
		}
		if len(rows) < page.Max {
			return granted, api.OptString{}, nil
		}
		read += len(rows)
	}
	return granted, api.NewOptString(walk.Cursor(before[:])), nil
}
