package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// endedTask is what a schedule must be told of a task that ended.
type endedTask struct {
	originKind  string
	originID    orbit.NullID
	retentionMs int64
}

// tasksEnded ends the occurrences of tasks that end in this transaction, and begins what waited for them. Tasks that were submitted cost
// nothing.
func (s *Service) tasksEnded(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, ended []endedTask) error {
	var ids []orbit.ID
	for _, e := range ended {
		if e.originKind != originSchedule {
			continue
		}
		if _, err := pulsedb.New(tx.Later(1)).EndOccurrence(ctx, pulsedb.EndOccurrenceParams{
			ExpiresAt: expiry(tx.Now, e.retentionMs), NamespaceID: ns, ID: e.originID.ID}); err != nil {
			return err
		}
		ids = append(ids, e.originID.ID)
	}
	if len(ids) == 0 {
		return nil
	}
	schedules, err := pulsedb.New(tx).ListBufferedBehind(ctx, pulsedb.ListBufferedBehindParams{NamespaceID: ns, Ids: ids})
	if err != nil || len(schedules) == 0 {
		return err
	}
	_, err = s.beginWaiting(ctx, tx, ns, schedules)
	return err
}

// taskReopened counts a task of a schedule again whose failure a person retries.
func taskReopened(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, originKind string, originID orbit.NullID) error {
	if originKind != originSchedule {
		return nil
	}
	_, err := q.ReopenOccurrence(ctx, pulsedb.ReopenOccurrenceParams{NamespaceID: ns, ID: originID.ID})
	return err
}

// beginWaiting begins the first waiting occurrence of each schedule that has no task running. A schedule whose row is held elsewhere is left to the
// scan: the end of a task, which holds that task, must not wait for it.
func (s *Service) beginWaiting(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, scheduleIDs []orbit.ID) (int, error) {
	q := pulsedb.New(tx)
	rows, err := q.LockSchedules(ctx, pulsedb.LockSchedulesParams{NamespaceID: ns, Ids: scheduleIDs})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	busy, err := busySchedules(ctx, q, ns, scheduleIDs)
	if err != nil {
		return 0, err
	}
	begun := 0
	for _, r := range rows {
		if busy[r.ID] || r.PausedAt != nil {
			continue
		}
		waiting, err := q.ListBuffered(ctx, pulsedb.ListBufferedParams{NamespaceID: ns, ScheduleID: r.ID.Null(), Limit: 1})
		if err != nil {
			return begun, err
		}
		for _, o := range waiting {
			if err := s.begin(ctx, tx, o); err != nil {
				return begun, err
			}
			begun++
		}
	}
	return begun, nil
}

// begin gives a waiting occurrence its task, of the version it is of.
func (s *Service) begin(ctx context.Context, tx *dbtx.Tx, o pulsedb.PulseScheduleOccurrence) error {
	q := pulsedb.New(tx)
	v, err := q.GetScheduleVersion(ctx, pulsedb.GetScheduleVersionParams{NamespaceID: o.NamespaceID, ScheduleID: o.ScheduleID, Version: o.ScheduleVersion})
	if err != nil {
		return err
	}
	queue, err := q.GetQueue(ctx, pulsedb.GetQueueParams{NamespaceID: o.NamespaceID, ID: v.QueueID})
	if err != nil {
		return err
	}
	o.Outcome, o.TaskID, o.Version = orbit.OccurrenceFired, orbit.NewID(tx.Now).Null(), o.Version+1
	task, f := scheduledTask(tx.Now, v, &queue, o)
	if f != nil {
		return f
	}
	if err := fireOccurrence(ctx, tx, o); err != nil {
		return err
	}
	emitOccurrence(tx, o)
	actor := v.ActorID
	if o.ActorID.Valid {
		actor = o.ActorID.ID
	}
	return s.submitScheduled(tx, o.NamespaceID, map[orbit.ID][]newTask{actor: {task}})
}

// ReleaseBuffered is the repair of what the end of a task begins: it finds what waits with nothing running, because the schedule was held at
// that moment, or was paused.
func (s *Service) ReleaseBuffered(ctx context.Context) (int, error) {
	begun := 0
	page := pulsedb.DueBufferedSchedulesParams{AfterID: orbit.NullID{Valid: true}, Limit: passRows}
	for {
		waiting, err := pulsedb.New(s.Batch.DB).DueBufferedSchedules(ctx, page)
		if err != nil {
			return begun, err
		}
		for _, group := range perNamespace(waiting, func(r pulsedb.DueBufferedSchedulesRow) orbit.ID { return r.NamespaceID }) {
			ids := make([]orbit.ID, len(group))
			for i, r := range group {
				ids[i] = r.BufferedScheduleID.ID
			}
			n, err := s.releaseIdle(ctx, group[0].NamespaceID, ids)
			begun += n
			if err != nil {
				return begun, err
			}
		}
		if len(waiting) < passRows {
			return begun, nil
		}
		page.AfterID = waiting[len(waiting)-1].BufferedScheduleID
	}
}

// releaseIdle looks first, without locks, which schedules have nothing running: the others need not be held.
func (s *Service) releaseIdle(ctx context.Context, ns orbit.ID, ids []orbit.ID) (int, error) {
	busy, err := busySchedules(ctx, s.reads(), ns, ids)
	if err != nil {
		return 0, err
	}
	var idle []orbit.ID
	for _, id := range ids {
		if !busy[id] {
			idle = append(idle, id)
		}
	}
	if len(idle) == 0 {
		return 0, nil
	}
	begun := 0
	err = s.Batch.Run(ctx, "releaseBuffered", func(ctx context.Context, tx *dbtx.Tx) error {
		begun, err = s.beginWaiting(ctx, tx, ns, idle)
		return err
	})
	return begun, err
}

// busySchedules tells which schedules have a task that has not ended.
func busySchedules(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, ids []orbit.ID) (map[orbit.ID]bool, error) {
	live, err := q.ListLiveOccurrences(ctx, pulsedb.ListLiveOccurrencesParams{NamespaceID: ns, ScheduleIds: nullIDs(ids)})
	busy := map[orbit.ID]bool{}
	for _, r := range live {
		busy[r.ScheduleID] = true
	}
	return busy, err
}
