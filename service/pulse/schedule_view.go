package pulse

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/timetable"
	"github.com/orbit-run/orbit/service/platform"
)

// maySeeSchedule refuses a schedule that does not exist or whose queue was not granted; the two cannot be told apart.
func maySeeSchedule(ctx context.Context, q *pulsedb.Queries, c platform.Caller, id orbit.ID) error {
	queueID, err := q.FindScheduleQueue(ctx, pulsedb.FindScheduleQueueParams{NamespaceID: c.NamespaceID, ID: id})
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing(kindSchedule)
	}
	if err != nil {
		return err
	}
	return requireQueue(ctx, q, c, queueID, kindSchedule)
}

func viewSchedule(s pulsedb.PulseSchedule, v pulsedb.PulseScheduleVersion) (api.Schedule, error) {
	table, err := viewTimetable(v)
	return api.Schedule{
		ID: s.ID, Name: s.Name, Version: s.CurrentVersion, Timetable: table, Task: viewTemplate(v),
		RunOverlap: api.RunOverlap(v.RunOverlap), CatchUpWindowMs: v.CatchUpWindowMs, CatchUpMax: int(v.CatchUpMax),
		Paused: s.PausedAt != nil, PausedAt: optTime(s.PausedAt), PauseReason: optText(s.PauseReason), ArchivedAt: optTime(s.ArchivedAt),
		NextFireAt: optTime(s.NextFireAt), Watermark: s.Watermark, Revision: s.Revision, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}, err
}

// scheduleReply is the reply of a change of a schedule.
func scheduleReply(status int, s pulsedb.PulseSchedule, v pulsedb.PulseScheduleVersion) (platform.Reply, error) {
	view, err := viewSchedule(s, v)
	return platform.Reply{Status: status, ETag: revisionTag(s.Revision), Body: encode(&view)}, err
}

func viewScheduleVersion(v pulsedb.PulseScheduleVersion) (api.ScheduleVersion, error) {
	table, err := viewTimetable(v)
	return api.ScheduleVersion{
		Version: v.Version, Timetable: table, Task: viewTemplate(v), RunOverlap: api.RunOverlap(v.RunOverlap),
		CatchUpWindowMs: v.CatchUpWindowMs, CatchUpMax: int(v.CatchUpMax), ActorID: v.ActorID, CreatedAt: v.CreatedAt,
	}, err
}

func specOf(v pulsedb.PulseScheduleVersion) (timetable.Spec, error) {
	var spec timetable.Spec
	err := json.Unmarshal(v.Timetable, &spec)
	return spec, err
}

func viewTimetable(v pulsedb.PulseScheduleVersion) (api.Timetable, error) {
	spec, err := specOf(v)
	t := api.Timetable{
		Cron: optText(spec.Cron), Calendar: spec.Calendar, At: optTime(spec.At), Zone: api.NewOptString(spec.Zone),
		Gap: api.NewOptTimetableGap(api.TimetableGap(spec.Gap)), Overlap: api.NewOptTimetableOverlap(api.TimetableOverlap(spec.Overlap)),
		StartsAt: optTime(spec.StartsAt), EndsAt: optTime(spec.EndsAt), JitterMs: api.NewOptInt64(v.JitterMs),
	}
	if spec.EveryMs != 0 {
		t.EveryMs, t.PhaseMs = api.NewOptInt64(spec.EveryMs), api.NewOptInt64(spec.PhaseMs)
	}
	return t, err
}

// viewTemplate has no payload where none was read.
func viewTemplate(v pulsedb.PulseScheduleVersion) api.ScheduleTask {
	t := api.ScheduleTask{QueueID: api.NewOptID(v.QueueID), Type: v.Type, Payload: jx.Raw(v.Payload), PayloadVersion: api.NewOptInt64(int64(v.PayloadVersion)),
		Priority: api.NewOptInt(int(v.Priority))}
	if v.MaxAttempts > 0 {
		t.MaxAttempts = api.NewOptInt(int(v.MaxAttempts))
	}
	if v.DeadlineMs > 0 {
		t.DeadlineMs = api.NewOptInt64(v.DeadlineMs)
	}
	return t
}

func viewOccurrence(o pulsedb.PulseScheduleOccurrence) api.Occurrence {
	view := api.Occurrence{
		ID: o.ID, ScheduleID: o.ScheduleID, Version: o.ScheduleVersion, FireAt: o.FireAt, Source: api.OccurrenceSource(o.Source),
		Outcome: api.OccurrenceOutcome(o.Outcome), Code: optText(o.Code), Running: o.LiveScheduleID.Valid, CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt,
	}
	if o.TaskID.Valid {
		view.TaskID.SetTo(o.TaskID.ID)
	}
	return view
}

// optOrigin is what made a task; the occurrence may be gone.
func optOrigin(kind string, id, scheduleID orbit.NullID, fireAt *time.Time) api.OptTaskOrigin {
	if kind == "" {
		return api.OptTaskOrigin{}
	}
	origin := api.TaskOrigin{Kind: kind, ID: id.ID, FireAt: optTime(fireAt)}
	if scheduleID.Valid {
		origin.ScheduleID.SetTo(scheduleID.ID)
	}
	return api.NewOptTaskOrigin(origin)
}
