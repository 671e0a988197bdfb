package pulse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/timetable"
	"github.com/orbit-run/orbit/service/platform"
)

// maxTemplate is the largest payload of a schedule, in bytes: it is written with each fire.
const maxTemplate = 1 << 20

// definition is a version of a schedule that is to be published, checked as far as no database need be asked.
type definition struct {
	row   pulsedb.PulseScheduleVersion // without ids, number, actor and time
	table *timetable.Timetable
	queue queueRef
}

func define(t api.Timetable, overlap orbit.RunOverlap, windowMs api.OptInt64, catchUpMax api.OptInt, task api.ScheduleTask) (definition, error) {
	spec := specFrom(t)
	table, err := newTimetable(spec)
	if err != nil {
		return definition{}, err
	}
	// A template is judged as the submission that it will be.
	submission := submitCall{req: &api.SubmitTaskRequest{QueueID: task.QueueID, Queue: task.Queue, Type: task.Type, Payload: task.Payload}}
	if f := submission.check(); f != nil {
		return definition{}, within("/task", f)
	}
	if len(task.Payload) > maxTemplate {
		return definition{}, fault.New(fault.PayloadTooLarge, "the payload has %d bytes; that of a schedule has at most %d: keep it elsewhere and send a reference", len(task.Payload), maxTemplate)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return definition{}, err
	}
	return definition{table: table, queue: queueRef{id: task.QueueID.Value, name: task.Queue.Value}, row: pulsedb.PulseScheduleVersion{
		Timetable: raw, JitterMs: t.JitterMs.Or(0), RunOverlap: cmp.Or(overlap, orbit.RunSkip),
		CatchUpWindowMs: windowMs.Or(24 * 3_600_000), CatchUpMax: uint32(catchUpMax.Or(1440)),
		Type: task.Type, Payload: cmp.Or(string(task.Payload), "null"), PayloadVersion: uint32(task.PayloadVersion.Or(0)),
		Priority: uint8(task.Priority.Or(5)), MaxAttempts: uint32(task.MaxAttempts.Or(0)), DeadlineMs: task.DeadlineMs.Or(0),
	}}, nil
}

func specFrom(t api.Timetable) timetable.Spec {
	return timetable.Spec{
		Cron: t.Cron.Or(""), EveryMs: t.EveryMs.Or(0), PhaseMs: t.PhaseMs.Or(0), Calendar: t.Calendar, At: truncated(t.At),
		Zone: t.Zone.Or("UTC"), Gap: timetable.Gap(t.Gap.Or(api.TimetableGap(timetable.GapShift))),
		Overlap:  timetable.Overlap(t.Overlap.Or(api.TimetableOverlap(timetable.OverlapFirst))),
		StartsAt: truncated(t.StartsAt), EndsAt: truncated(t.EndsAt),
	}
}

func truncated(t api.OptDateTime) *time.Time {
	if !t.Set {
		return nil
	}
	at := t.Value.UTC().Truncate(time.Microsecond)
	return &at
}

// newTimetable refuses what is no timetable by its member.
func newTimetable(spec timetable.Spec) (*timetable.Timetable, error) {
	for member, at := range map[string]*time.Time{"at": spec.At, "starts_at": spec.StartsAt, "ends_at": spec.EndsAt} {
		if at != nil && !storable(*at) {
			return nil, fault.Invalid("/timetable/"+member, "out_of_range", "the year must be between 1970 and 9999")
		}
	}
	table, err := timetable.New(spec)
	var invalid *timetable.Invalid
	if errors.As(err, &invalid) {
		return nil, fault.Invalid("/timetable/"+invalid.Member, invalid.Code, "%s", invalid.Detail)
	}
	return table, err
}

// within says where in the request a fault is that was found in a part of it.
func within(place string, f *fault.Fault) *fault.Fault {
	if len(f.Errors) == 0 {
		return f
	}
	first := f.Errors[0]
	return fault.Invalid(place+first.Pointer, first.Code, "%s", first.Detail)
}

// complete finds the queue, which the caller must see, and the first instant after one.
func (d *definition) complete(ctx context.Context, q *pulsedb.Queries, c platform.Caller, after time.Time) (next *time.Time, err error) {
	queues, err := findQueues(ctx, q, c, []queueRef{d.queue})
	if err != nil {
		return nil, err
	}
	if queues[0] == nil {
		return nil, fault.Missing(kindQueue)
	}
	d.row.QueueID = queues[0].ID
	if next = nextFire(d.table, after); next == nil {
		return nil, fault.Invalid("/timetable", "never_fires", "no instant of this timetable is to come")
	}
	return next, nil
}

func nextFire(t *timetable.Timetable, after time.Time) *time.Time {
	if at, ok := t.Next(after); ok {
		return &at
	}
	return nil
}

// publish writes a version of a schedule.
func (d *definition) publish(ctx context.Context, q *pulsedb.Queries, c platform.Caller, now time.Time, scheduleID orbit.ID, version int64) error {
	v := &d.row
	v.NamespaceID, v.ScheduleID, v.Version, v.ActorID, v.CreatedAt = c.NamespaceID, scheduleID, version, c.ActorID, now
	return q.InsertScheduleVersion(ctx, pulsedb.InsertScheduleVersionParams{
		NamespaceID: v.NamespaceID, ScheduleID: v.ScheduleID, Version: v.Version, Timetable: v.Timetable, JitterMs: v.JitterMs,
		RunOverlap: v.RunOverlap, CatchUpWindowMs: v.CatchUpWindowMs, CatchUpMax: v.CatchUpMax,
		QueueID: v.QueueID, Type: v.Type, Payload: v.Payload, PayloadVersion: v.PayloadVersion, Priority: v.Priority,
		MaxAttempts: v.MaxAttempts, DeadlineMs: v.DeadlineMs, ActorID: v.ActorID, CreatedAt: v.CreatedAt,
	})
}
