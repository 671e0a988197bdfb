package pulse

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/timetable"
	"github.com/orbit-run/orbit/service/platform"
)

// PreviewSchedule says when a stored schedule, or a timetable that is not stored, fires next. It changes nothing.
func (s *Service) PreviewSchedule(ctx context.Context, req *api.PreviewScheduleRequest) (*api.SchedulePreview, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesRead)
	if err != nil {
		return nil, err
	}
	if req.ScheduleID.Set == req.Timetable.Set {
		return nil, fault.Invalid("/timetable", "one_of", "name a schedule by schedule_id, or give a timetable")
	}
	if req.After.Set && !storable(req.After.Value) {
		return nil, fault.Invalid("/after", "out_of_range", "the year must be between 1970 and 9999")
	}
	table, jitter, err := s.previewed(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return nil, err
	}
	preview := &api.SchedulePreview{Items: []api.ScheduleFire{}}
	at, ok := table.Next(req.After.Or(now).Truncate(time.Microsecond))
	for ; ok && len(preview.Items) < req.Count.Or(10); at, ok = table.Next(at) {
		fire := api.ScheduleFire{FireAt: at, Local: at.In(table.Location()).Format(time.RFC3339Nano)}
		if req.ScheduleID.Set {
			fire.RunAt.SetTo(at.Add(timetable.Jitter(req.ScheduleID.Value, at, jitter)))
		}
		preview.Items = append(preview.Items, fire)
	}
	return preview, nil
}

func (s *Service) previewed(ctx context.Context, c platform.Caller, req *api.PreviewScheduleRequest) (*timetable.Timetable, time.Duration, error) {
	if !req.ScheduleID.Set {
		table, err := newTimetable(specFrom(req.Timetable.Value))
		return table, 0, err
	}
	row, err := s.visibleSchedule(ctx, c, req.ScheduleID.Value)
	if err != nil {
		return nil, 0, err
	}
	table, err := s.tableOf(row.PulseScheduleVersion)
	return table, time.Duration(row.PulseScheduleVersion.JitterMs) * time.Millisecond, err
}

// visibleSchedule reads a schedule with its current version; Missing if it does not exist for the caller.
func (s *Service) visibleSchedule(ctx context.Context, c platform.Caller, id orbit.ID) (pulsedb.ViewScheduleRow, error) {
	q := s.reads()
	row, err := q.ViewSchedule(ctx, pulsedb.ViewScheduleParams{NamespaceID: c.NamespaceID, ID: id})
	if errors.Is(err, sql.ErrNoRows) {
		return row, fault.Missing(kindSchedule)
	}
	if err != nil {
		return row, err
	}
	return row, requireQueue(ctx, q, c, row.PulseScheduleVersion.QueueID, kindSchedule)
}
