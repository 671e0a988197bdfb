package pulse

import (
	"context"
	"errors"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/timetable"
	"github.com/orbit-run/orbit/service/platform"
)

// heldSchedule is a schedule whose row the transaction holds, with its current version.
type heldSchedule struct {
	pulsedb.PulseSchedule
	version pulsedb.PulseScheduleVersion
	table   *timetable.Timetable
}

// holdSchedule waits for a schedule's row; Missing if the schedule does not exist for the caller.
func (s *Service) holdSchedule(ctx context.Context, tx *dbtx.Tx, c platform.Caller, id orbit.ID) (*heldSchedule, error) {
	q := pulsedb.New(tx)
	if err := maySeeSchedule(ctx, q, c, id); err != nil {
		return nil, err
	}
	row, err := q.LockSchedule(ctx, pulsedb.LockScheduleParams{NamespaceID: c.NamespaceID, ID: id})
	if err != nil {
		return nil, err
	}
	held, err := s.withVersions(ctx, q, c.NamespaceID, []pulsedb.PulseSchedule{row})
	if err != nil {
		return nil, err
	}
	return held[0], requireQueue(ctx, q, c, held[0].version.QueueID, kindSchedule)
}

// withVersions reads the current versions of schedules whose rows are held.
func (s *Service) withVersions(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, rows []pulsedb.PulseSchedule) ([]*heldSchedule, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	ids := make([]orbit.ID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	versions, err := q.ListCurrentVersions(ctx, pulsedb.ListCurrentVersionsParams{NamespaceID: ns, Ids: ids})
	if err != nil {
		return nil, err
	}
	of := map[orbit.ID]pulsedb.PulseScheduleVersion{}
	for _, v := range versions {
		of[v.ScheduleID] = v
	}
	held := make([]*heldSchedule, len(rows))
	for i, r := range rows {
		v, ok := of[r.ID]
		if !ok {
			return nil, errors.New("invariant broken: schedule " + r.ID.String() + " has no current version")
		}
		table, err := s.tableOf(v)
		if err != nil {
			return nil, err
		}
		held[i] = &heldSchedule{r, v, table}
	}
	return held, nil
}

// versionKey names a version, which never changes.
type versionKey struct {
	scheduleID orbit.ID
	version    int64
}

// tableOf remembers the timetables of versions.
func (s *Service) tableOf(v pulsedb.PulseScheduleVersion) (*timetable.Timetable, error) {
	key := versionKey{v.ScheduleID, v.Version}
	if t, ok := s.timetables.Get(key); ok {
		return t, nil
	}
	spec, err := specOf(v)
	if err != nil {
		return nil, err
	}
	t, err := timetable.New(spec)
	if err != nil {
		return nil, err
	}
	s.timetables.Add(key, t)
	return t, nil
}

// wish is one instant of a schedule that is to occur, and what became of it.
type wish struct {
	instant
	known *pulsedb.ListOccurrencesBetweenRow // its occurrence, which was skipped or missed; nil if there is none yet

	occurrence pulsedb.PulseScheduleOccurrence
}

// occasion is what is to occur of one schedule.
type occasion struct {
	schedule *heldSchedule
	overlap  orbit.RunOverlap
	source   orbit.OccurrenceSource
	actor    orbit.NullID // who asked for it; null for the timetable
	wishes   []*wish
}

// occur makes the occurrences of schedules of one namespace, whose rows are held, and the tasks of those that fire. What it collects is
// sent with the transaction's next statement.
func (s *Service) occur(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, occasions []*occasion) error {
	crowds, err := s.crowds(ctx, tx, ns, occasions)
	if err != nil {
		return err
	}
	queues, err := queuesOf(ctx, pulsedb.New(tx), ns, occasions)
	if err != nil {
		return err
	}
	var fresh [][]any
	tasks := map[orbit.ID][]newTask{} // by actor
	for _, o := range occasions {
		crowd := crowds[o.schedule.ID]
		for i, w := range o.wishes {
			outcome, code := orbit.OccurrenceMissed, w.code
			switch {
			case code != "":
			case o.overlap == orbit.RunCancelRunning && i < len(o.wishes)-1:
				outcome, code = orbit.OccurrenceSkipped, codeOvertaken
			default:
				outcome, code = decideInstant(o.overlap, crowd.live, crowd.buffered)
			}
			w.occurrence = o.occurrence(tx, w, outcome, code, queues[o.schedule.version.QueueID])
			switch outcome {
			case orbit.OccurrenceFired:
				crowd.live++
				task, f := scheduledTask(tx.Now, o.schedule.version, queues[o.schedule.version.QueueID], w.occurrence)
				if f != nil {
					return f
				}
				actor := o.actor.ID
				if !o.actor.Valid {
					actor = o.schedule.version.ActorID
				}
				tasks[actor] = append(tasks[actor], task)
			case orbit.OccurrenceBuffered:
				crowd.buffered++
			}
			if w.known == nil {
				fresh = append(fresh, rowOf(w.occurrence))
			} else if err := changeKnown(ctx, tx, w); err != nil {
				return err
			}
			if w.known == nil || outcome != orbit.OccurrenceSkipped {
				emitOccurrence(tx, w.occurrence)
			}
		}
	}
	if err := batch.Insert(tx, pulsedb.InsertOccurrence, fresh); err != nil {
		return err
	}
	return s.submitScheduled(tx, ns, tasks)
}

// crowd is how many tasks of a schedule have not ended, and how many of its instants wait.
type crowd struct{ live, buffered int }

// crowds counts, for those schedules whose policy asks. With cancel_running it makes room.
func (s *Service) crowds(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, occasions []*occasion) (map[orbit.ID]*crowd, error) {
	crowds := map[orbit.ID]*crowd{}
	var asking []orbit.ID
	for _, o := range occasions {
		crowds[o.schedule.ID] = &crowd{}
		if !o.fires() || o.overlap == orbit.RunAllow {
			continue
		}
		if o.overlap == orbit.RunCancelRunning {
			if err := s.makeRoom(ctx, tx, o); err != nil {
				return nil, err
			}
		}
		asking = append(asking, o.schedule.ID)
	}
	if len(asking) == 0 {
		return crowds, nil
	}
	q := pulsedb.New(tx)
	live, err := liveSchedules(ctx, q, ns, asking)
	if err != nil {
		return nil, err
	}
	for _, id := range live {
		crowds[id].live++
	}
	buffered, err := q.CountBuffered(ctx, pulsedb.CountBufferedParams{NamespaceID: ns, ScheduleIds: nullIDs(asking)})
	for _, r := range buffered {
		crowds[r.ScheduleID].buffered = int(r.Buffered)
	}
	return crowds, err
}

// liveSchedules gives the schedule of each task that has not ended, with ends that are on their way waited for.
func liveSchedules(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, schedules []orbit.ID) ([]orbit.ID, error) {
	rows, err := q.ListLiveOccurrences(ctx, pulsedb.ListLiveOccurrencesParams{NamespaceID: ns, ScheduleIds: nullIDs(schedules)})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	ids := make([]orbit.ID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return q.ShareLiveOccurrences(ctx, pulsedb.ShareLiveOccurrencesParams{NamespaceID: ns, Ids: ids})
}

func nullIDs(ids []orbit.ID) []orbit.NullID {
	list := make([]orbit.NullID, len(ids))
	for i, id := range ids {
		list[i] = id.Null()
	}
	return list
}

// fires tells whether anything of it is more than missed.
func (o *occasion) fires() bool {
	for _, w := range o.wishes {
		if w.code == "" {
			return true
		}
	}
	return false
}

// makeRoom gives up what waits, and then cancels what runs, so that the end of a task finds nothing to begin.
func (s *Service) makeRoom(ctx context.Context, tx *dbtx.Tx, o *occasion) error {
	if err := s.skipBuffered(ctx, tx, o.schedule, o.actor, codeOvertaken); err != nil {
		return err
	}
	q := pulsedb.New(tx)
	live, err := q.ListLiveOccurrences(ctx, pulsedb.ListLiveOccurrencesParams{NamespaceID: o.schedule.NamespaceID, ScheduleIds: nullIDs([]orbit.ID{o.schedule.ID})})
	if err != nil {
		return err
	}
	for _, r := range live {
		err := s.cancel(ctx, tx, platform.Caller{NamespaceID: o.schedule.NamespaceID, ActorID: o.actor.ID}, r.TaskID.ID, "", "a later instant of its schedule came")
		var refused *fault.Fault // it ended meanwhile, or waits for a person
		if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return nil
}

// skipBuffered gives up everything that waits.
func (s *Service) skipBuffered(ctx context.Context, tx *dbtx.Tx, h *heldSchedule, actor orbit.NullID, code string) error {
	q := pulsedb.New(tx)
	waiting, err := q.ListBuffered(ctx, pulsedb.ListBufferedParams{NamespaceID: h.NamespaceID, ScheduleID: h.ID.Null(), Limit: maxBuffered})
	if err != nil || len(waiting) == 0 {
		return err
	}
	queue, err := q.GetQueue(ctx, pulsedb.GetQueueParams{NamespaceID: h.NamespaceID, ID: h.version.QueueID})
	if err != nil {
		return err
	}
	for _, o := range waiting {
		if _, err := pulsedb.New(tx.Later(1)).SkipOccurrence(ctx, pulsedb.SkipOccurrenceParams{
			Code: code, NowAt: tx.Now, ExpiresAt: expiry(tx.Now, queue.RetentionMs), NamespaceID: o.NamespaceID, ID: o.ID, Version: o.Version}); err != nil {
			return err
		}
		o.Outcome, o.Code, o.Version, o.ActorID = orbit.OccurrenceSkipped, code, o.Version+1, actor
		emitOccurrence(tx, o)
	}
	return nil
}

func queuesOf(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, occasions []*occasion) (map[orbit.ID]*pulsedb.PulseQueue, error) {
	queues := map[orbit.ID]*pulsedb.PulseQueue{}
	for _, o := range occasions {
		queues[o.schedule.version.QueueID] = nil
	}
	rows, err := q.ListQueuesByID(ctx, pulsedb.ListQueuesByIDParams{NamespaceID: ns, Ids: keys(queues)})
	for i := range rows {
		queues[rows[i].ID] = &rows[i]
	}
	return queues, err
}

// occurrence is the row of an instant as it is to be.
func (o *occasion) occurrence(tx *dbtx.Tx, w *wish, outcome orbit.OccurrenceOutcome, code string, queue *pulsedb.PulseQueue) pulsedb.PulseScheduleOccurrence {
	h := o.schedule
	r := pulsedb.PulseScheduleOccurrence{
		NamespaceID: h.NamespaceID, ID: orbit.NewID(tx.Now), ScheduleID: h.ID, FireAt: w.at, ScheduleVersion: h.version.Version,
		Source: o.source, Outcome: outcome, Code: code, Version: 1, ActorID: o.actor, CreatedAt: tx.Now, UpdatedAt: tx.Now,
	}
	if w.known != nil {
		r.ID, r.Version = w.known.ID, w.known.Version+1
	}
	switch outcome {
	case orbit.OccurrenceFired:
		r.TaskID, r.LiveScheduleID = orbit.NewID(tx.Now).Null(), h.ID.Null()
	case orbit.OccurrenceBuffered:
		r.BufferedScheduleID = h.ID.Null()
	default:
		r.ExpiresAt = expiry(tx.Now, queue.RetentionMs)
	}
	return r
}

func rowOf(o pulsedb.PulseScheduleOccurrence) []any {
	return []any{o.NamespaceID, o.ID, o.ScheduleID, o.FireAt, o.ScheduleVersion, o.Source, o.Outcome, o.Code, o.TaskID, o.LiveScheduleID, o.BufferedScheduleID,
		o.ActorID, o.CreatedAt, o.UpdatedAt, o.ExpiresAt}
}

// changeKnown moves an occurrence that was skipped or missed on; one that is skipped again stays as it is.
func changeKnown(ctx context.Context, tx *dbtx.Tx, w *wish) error {
	o := w.occurrence
	switch o.Outcome {
	case orbit.OccurrenceFired:
		return fireOccurrence(ctx, tx, o)
	case orbit.OccurrenceBuffered:
		_, err := pulsedb.New(tx.Later(1)).BufferOccurrence(ctx, pulsedb.BufferOccurrenceParams{Source: o.Source, ActorID: o.ActorID,
			ScheduleVersion: o.ScheduleVersion, NowAt: tx.Now, NamespaceID: o.NamespaceID, ID: o.ID, Version: o.Version - 1})
		return err
	}
	return nil
}

// fireOccurrence writes that an occurrence, at its version before, has its task.
func fireOccurrence(ctx context.Context, tx *dbtx.Tx, o pulsedb.PulseScheduleOccurrence) error {
	_, err := pulsedb.New(tx.Later(1)).FireOccurrence(ctx, pulsedb.FireOccurrenceParams{TaskID: o.TaskID, Source: o.Source, ActorID: o.ActorID,
		ScheduleVersion: o.ScheduleVersion, NowAt: tx.Now, NamespaceID: o.NamespaceID, ID: o.ID, Version: o.Version - 1})
	return err
}

var occurrenceEvents = map[orbit.OccurrenceOutcome]string{
	orbit.OccurrenceFired: "schedule.fired", orbit.OccurrenceBuffered: "schedule.buffered",
	orbit.OccurrenceSkipped: "schedule.skipped", orbit.OccurrenceMissed: "schedule.missed",
}

func emitOccurrence(tx *dbtx.Tx, o pulsedb.PulseScheduleOccurrence) {
	data := facts{"schedule_id": o.ScheduleID, "schedule_version": o.ScheduleVersion, "fire_at": o.FireAt, "source": o.Source}
	if o.Code != "" {
		data["code"] = o.Code
	}
	if o.TaskID.Valid {
		data["task_id"] = o.TaskID.ID
	}
	emit(tx, o.NamespaceID, o.ActorID, kindOccurrence, o.ID, o.Version, occurrenceEvents[o.Outcome], data)
}

// originSchedule is the kind of a task's origin that is an occurrence.
const originSchedule = "schedule"

// scheduledTask is the submission of an occurrence that fires. A late one may run at once, and its deadline counts from now.
func scheduledTask(now time.Time, v pulsedb.PulseScheduleVersion, queue *pulsedb.PulseQueue, o pulsedb.PulseScheduleOccurrence) (newTask, *fault.Fault) {
	runAt := o.FireAt
	if o.Source != orbit.SourceTrigger {
		runAt = runAt.Add(timetable.Jitter(o.ScheduleID, o.FireAt, time.Duration(v.JitterMs)*time.Millisecond))
	}
	req := &api.SubmitTaskRequest{Type: v.Type, Payload: []byte(v.Payload), PayloadVersion: api.NewOptInt64(int64(v.PayloadVersion)),
		Priority: api.NewOptInt(int(v.Priority)), RunAt: api.NewOptDateTime(runAt)}
	if v.MaxAttempts > 0 {
		req.MaxAttempts.SetTo(int(v.MaxAttempts))
	}
	if v.DeadlineMs > 0 {
		from := runAt
		if from.Before(now) {
			from = now
		}
		req.DeadlineAt.SetTo(from.Add(time.Duration(v.DeadlineMs) * time.Millisecond))
	}
	task, f := makeTask(now, o.TaskID.ID, &submitCall{req: req}, queue)
	task.originKind, task.originID = originSchedule, o.ID.Null()
	return task, f
}

// submitScheduled inserts tasks as a submission of each actor does.
func (s *Service) submitScheduled(tx *dbtx.Tx, ns orbit.ID, tasks map[orbit.ID][]newTask) error {
	var working []workingRow
	for actor, of := range tasks {
		if err := s.writeTasks(tx, platform.Caller{NamespaceID: ns, ActorID: actor}, of); err != nil {
			return err
		}
		working = append(working, workingRows(of)...)
	}
	return s.insertWorkingRows(tx, ns, working)
}
