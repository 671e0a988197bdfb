package pulse

import (
	"context"
	"database/sql"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// ListSchedules lists the schedules of granted queues, newest first, without payloads.
func (s *Service) ListSchedules(ctx context.Context, params api.ListSchedulesParams) (*api.ScheduleList, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesRead)
	if err != nil {
		return nil, err
	}
	walk := page.Of("listSchedules", params.Name.Or(""))
	before, err := walk.Before(params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	if params.Name.Set {
		return s.scheduleByName(ctx, caller, params.Name.Value, before)
	}
	q := s.reads()
	size := page.Size(params.Limit.Or(page.Default))
	list := &api.ScheduleList{Items: []api.Schedule{}}
	visible := map[orbit.ID]bool{}
	for read := 0; read < stretch; {
		rows, err := q.PageSchedules(ctx, pulsedb.PageSchedulesParams{NamespaceID: caller.NamespaceID, BeforeID: before, Limit: int32(size) + 1})
		if err != nil {
			return nil, err
		}
		if err := seenQueues(ctx, q, caller, rows, visible); err != nil {
			return nil, err
		}
		for _, r := range rows {
			if len(list.Items) == size {
				list.NextCursor.SetTo(walk.Cursor(before[:]))
				return list, nil
			}
			before = r.PulseSchedule.ID
			if visible[r.QueueID] {
				view, err := viewSchedule(r.PulseSchedule, listedVersion(r))
				if err != nil {
					return nil, err
				}
				list.Items = append(list.Items, view)
			}
		}
		if len(rows) <= size {
			return list, nil
		}
		read += len(rows)
	}
	list.NextCursor.SetTo(walk.Cursor(before[:]))
	return list, nil
}

// scheduleByName is the page that holds the one schedule of a name, or nothing.
func (s *Service) scheduleByName(ctx context.Context, c platform.Caller, name string, before orbit.ID) (*api.ScheduleList, error) {
	list := &api.ScheduleList{Items: []api.Schedule{}}
	id, err := s.reads().FindScheduleByName(ctx, pulsedb.FindScheduleByNameParams{NamespaceID: c.NamespaceID, Name: name})
	if errors.Is(err, sql.ErrNoRows) || err == nil && id.Compare(before) >= 0 {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	row, err := s.visibleSchedule(ctx, c, id)
	var missing *fault.Fault
	if errors.As(err, &missing) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	row.PulseScheduleVersion.Payload = ""
	view, err := viewSchedule(row.PulseSchedule, row.PulseScheduleVersion)
	list.Items = append(list.Items, view)
	return list, err
}

// seenQueues adds which queues of the rows the caller sees.
func seenQueues(ctx context.Context, q *pulsedb.Queries, c platform.Caller, rows []pulsedb.PageSchedulesRow, visible map[orbit.ID]bool) error {
	var refs []queueRef
	for _, r := range rows {
		if _, known := visible[r.QueueID]; !known {
			visible[r.QueueID] = c.SeesAllQueues()
			refs = append(refs, queueRef{id: r.QueueID})
		}
	}
	if len(refs) == 0 || c.SeesAllQueues() {
		return nil
	}
	queues, err := findQueues(ctx, q, c, refs)
	for _, queue := range queues {
		if queue != nil {
			visible[queue.ID] = true
		}
	}
	return err
}

// listedVersion is a version without its payload.
func listedVersion(r pulsedb.PageSchedulesRow) pulsedb.PulseScheduleVersion {
	return pulsedb.PulseScheduleVersion{
		Timetable: r.Timetable, JitterMs: r.JitterMs, RunOverlap: r.RunOverlap, CatchUpWindowMs: r.CatchUpWindowMs, CatchUpMax: r.CatchUpMax,
		QueueID: r.QueueID, Type: r.Type, PayloadVersion: r.PayloadVersion, Priority: r.Priority, MaxAttempts: r.MaxAttempts, DeadlineMs: r.DeadlineMs,
	}
}
