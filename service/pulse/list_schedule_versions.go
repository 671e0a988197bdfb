package pulse

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// ListScheduleVersions lists what a schedule was, newest first, without payloads.
func (s *Service) ListScheduleVersions(ctx context.Context, params api.ListScheduleVersionsParams) (*api.ScheduleVersionList, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesRead)
	if err != nil {
		return nil, err
	}
	walk := page.Of("listScheduleVersions", params.ScheduleID.String())
	before, err := numberBefore(walk, params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	q := s.reads()
	if err := maySeeSchedule(ctx, q, caller, params.ScheduleID); err != nil {
		return nil, err
	}
	size := page.Size(params.Limit.Or(page.Default))
	rows, err := q.PageScheduleVersions(ctx, pulsedb.PageScheduleVersionsParams{NamespaceID: caller.NamespaceID, ScheduleID: params.ScheduleID,
		BeforeVersion: before, Limit: int32(size) + 1})
	if err != nil {
		return nil, err
	}
	list := &api.ScheduleVersionList{Items: make([]api.ScheduleVersion, 0, len(rows))}
	for i, r := range rows {
		if i == size {
			list.NextCursor.SetTo(walk.Cursor(binary.BigEndian.AppendUint64(nil, uint64(rows[i-1].Version))))
			break
		}
		view, err := viewScheduleVersion(pulsedb.PulseScheduleVersion{
			Version: r.Version, Timetable: r.Timetable, JitterMs: r.JitterMs, RunOverlap: r.RunOverlap, CatchUpWindowMs: r.CatchUpWindowMs, CatchUpMax: r.CatchUpMax,
			QueueID: r.QueueID, Type: r.Type, PayloadVersion: r.PayloadVersion, Priority: r.Priority, MaxAttempts: r.MaxAttempts, DeadlineMs: r.DeadlineMs,
			ActorID: r.ActorID, CreatedAt: r.CreatedAt,
		})
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, view)
	}
	return list, nil
}

// numberBefore reads the cursor of a list that is walked from the greatest number down.
func numberBefore(walk page.Walk, cursor string) (int64, error) {
	position, err := walk.Position(cursor, 8)
	if err != nil || position == nil {
		return math.MaxInt64, err
	}
	return int64(binary.BigEndian.Uint64(position)), nil
}
