package pulse

import (
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

func (v *verification) schedules(ctx context.Context, namespaceID orbit.ID) error {
	return sweep(ctx, v, table[pulsedb.VerifySchedulesRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.VerifySchedulesRow, error) {
			return v.q.VerifySchedules(ctx, pulsedb.VerifySchedulesParams{NamespaceID: namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.VerifySchedulesRow) place { return place{namespaceID: namespaceID, id: r.ID} },
		judge: v.judgeSchedule,
	})
}

// judgeSchedule: versions are complete up to the current one, and a schedule that may fire has the first instant after its watermark as its
// wake-up.
func (v *verification) judgeSchedule(s pulsedb.VerifySchedulesRow) []defect {
	events := history{count: s.EventCount, first: s.EventFirst, last: s.EventLast, trimmedBelow: s.TrimmedBelow, oldest: s.OldestEventAt}
	defects := events.judge("pulse.schedule.events", s.Revision, s.CreatedAt, s.UpdatedAt)
	if s.Timetable == "" || s.Versions != s.CurrentVersion {
		return append(defects, broken("pulse.schedule.versions", "the schedule is at version %d and has %d versions", s.CurrentVersion, s.Versions))
	}
	if s.PausedAt != nil || s.ArchivedAt != nil {
		return defects
	}
	table, err := v.tableOf(pulsedb.PulseScheduleVersion{ScheduleID: s.ID, Version: s.CurrentVersion, Timetable: []byte(s.Timetable)})
	if err != nil {
		return append(defects, broken("pulse.schedule.timetable", "the timetable cannot be read: %s", err))
	}
	want := nextFire(table, s.Watermark)
	if (want == nil) != (s.NextFireAt == nil) || want != nil && !want.Equal(*s.NextFireAt) {
		defects = append(defects, broken("pulse.schedule.next_fire", "the first instant after the watermark %s is %s, but the schedule wakes at %s", s.Watermark, when(want), when(s.NextFireAt)))
	}
	return defects
}

func when(t *time.Time) string {
	if t == nil {
		return "no time"
	}
	return t.Format(time.RFC3339Nano)
}

func (v *verification) occurrences(ctx context.Context, namespaceID orbit.ID) error {
	return sweep(ctx, v, table[pulsedb.VerifyOccurrencesRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.VerifyOccurrencesRow, error) {
			return v.q.VerifyOccurrences(ctx, pulsedb.VerifyOccurrencesParams{NamespaceID: namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.VerifyOccurrencesRow) place { return place{namespaceID: namespaceID, id: r.ID} },
		judge: judgeOccurrence,
	})
}

// judgeOccurrence: it counts as running exactly while its task has not ended, and its instant is not after the watermark.
func judgeOccurrence(o pulsedb.VerifyOccurrencesRow) []defect {
	events := history{count: o.EventCount, first: o.EventFirst, last: o.EventLast, trimmedBelow: o.TrimmedBelow, oldest: o.OldestEventAt}
	defects := events.judge("pulse.occurrence.events", o.Version, o.CreatedAt, o.UpdatedAt)
	unfinished := o.TaskState == orbit.TaskOpen || o.TaskState == orbit.TaskReview
	if o.LiveScheduleID.Valid != unfinished {
		defects = append(defects, broken("pulse.occurrence.running", "the occurrence counts as running: %t, and its task is %q", o.LiveScheduleID.Valid, o.TaskState))
	}
	if o.TaskState != "" && o.OriginID.ID != o.ID {
		defects = append(defects, broken("pulse.occurrence.task", "the task %s was made by %s", o.TaskID.ID, o.OriginID.ID))
	}
	if o.Source == orbit.SourceTimetable && (o.Watermark == nil || o.FireAt.After(*o.Watermark)) {
		defects = append(defects, broken("pulse.occurrence.watermark", "the instant %s has an occurrence, but the schedule is at %s", when(&o.FireAt), when(o.Watermark)))
	}
	return defects
}
