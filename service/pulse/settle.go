package pulse

import (
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// settle ends live attempts and moves their tasks, in one transaction with everything that follows from it: attempt, task,
// working row, deadline, events. The caller holds the attempts' rows, which are the licences; the task rows need no lock of
// their own then, and their revisions, read under the licence, are swapped.
func (s *Service) settle(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, endings []ending) error {
	if len(endings) == 0 {
		return nil
	}
	if err := endAttempts(ctx, tx, ns, endings); err != nil {
		return err
	}
	if err := endTasks(ctx, tx, ns, endings); err != nil {
		return err
	}
	var back []workingRow
	for _, e := range endings {
		switch e.fate {
		case fateRequeue:
			row, err := requeue(ctx, tx, ns, e)
			if err != nil {
				return err
			}
			back = append(back, row)
		case fatePark:
			if err := park(ctx, tx, ns, e); err != nil {
				return err
			}
		}
	}
	if err := s.insertWorkingRows(tx, ns, back); err != nil {
		return err
	}
	for _, e := range endings {
		if e.fate != fateRequeue {
			if err := dropDeadline(ctx, tx, ns, e.task.ID, e.task.DeadlineAt); err != nil {
				return err
			}
		}
		emitEnding(tx, ns, e)
	}
	return s.endOccurrences(ctx, tx, ns, endings)
}

// endOccurrences tells the schedules, if any, whose tasks have ended.
func (s *Service) endOccurrences(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, endings []ending) error {
	var ended []endedTask
	for _, e := range endings {
		if e.fate != fateRequeue && e.fate != fatePark {
			ended = append(ended, endedTask{e.task.OriginKind, e.task.OriginID, e.queue.RetentionMs})
		}
	}
	return s.tasksEnded(ctx, tx, ns, ended)
}

func endAttempts(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, endings []ending) error {
	type group struct {
		state         orbit.AttemptState
		code, message string
	}
	ids := map[group][]orbit.ID{}
	for _, e := range endings {
		g := group{e.state, e.code, e.message}
		ids[g] = append(ids[g], e.attempt.ID)
	}
	for g, ids := range ids {
		if _, err := pulsedb.New(tx.Later(len(ids))).EndAttempts(ctx, pulsedb.EndAttemptsParams{
			State: g.state, NowAt: tx.Now, EndCode: g.code, EndMessage: g.message, NamespaceID: ns, Ids: ids}); err != nil {
			return err
		}
	}
	return nil
}

func endTasks(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, endings []ending) error {
	type group struct {
		state         orbit.TaskState
		code, message string
		used          bool
		retention     int64
	}
	ids := map[group][]orbit.ID{}
	for _, e := range endings {
		g := group{code: e.code, message: e.message, used: e.used, retention: e.queue.RetentionMs}
		switch e.fate {
		case fateSucceed:
			g.state, g.code, g.message = orbit.TaskSucceeded, "", ""
		case fateFail:
			g.state = orbit.TaskFailed
		case fateCancel:
			g.state = orbit.TaskCancelled
		default:
			continue
		}
		ids[g] = append(ids[g], e.task.ID)
	}
	for g, ids := range ids {
		if _, err := pulsedb.New(tx.Later(len(ids))).EndTasks(ctx, pulsedb.EndTasksParams{
			State: g.state, FailureCode: g.code, FailureMessage: g.message, Used: count(g.used), NowAt: tx.Now,
			ExpiresAt: expiry(tx.Now, g.retention), NamespaceID: ns, Ids: ids}); err != nil {
			return err
		}
	}
	return nil
}

func requeue(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, e ending) (workingRow, error) {
	row := workingRow{taskID: e.task.ID, queueID: e.task.QueueID, priority: e.task.Priority, runAt: e.task.RunAt, rankUs: e.task.RankUs, blocker: e.blocker}
	if e.delay > 0 {
		row.runAt = tx.Now.Add(e.delay).Truncate(time.Microsecond)
		row.rankUs = row.runAt.UnixMicro()
	}
	idle := uint32(0)
	if !e.used {
		idle = e.task.IdleOffers + uint32(count(e.idle))
	}
	_, err := pulsedb.New(tx.Later(1)).RequeueTask(ctx, pulsedb.RequeueTaskParams{
		RunAt: row.runAt, RankUs: row.rankUs, FailureCode: failure(e, e.code), FailureMessage: failure(e, e.message),
		AttemptsUsed: e.task.AttemptsUsed + uint32(count(e.used)), IdleOffers: idle, NowAt: tx.Now,
		NamespaceID: ns, ID: e.task.ID, Revision: e.task.Revision})
	return row, err
}

// failure keeps the last real failure on the task: an unstarted offer is none.
func failure(e ending, text string) *string {
	if !e.used {
		return nil
	}
	return &text
}

func park(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, e ending) error {
	_, err := pulsedb.New(tx.Later(1)).ParkTask(ctx, pulsedb.ParkTaskParams{
		FailureCode: e.code, FailureMessage: e.message, NowAt: tx.Now, NamespaceID: ns, ID: e.task.ID, Revision: e.task.Revision})
	return err
}

// dropDeadline removes the deadline of a task that is no longer open; a task in review keeps the time, but does not end by it.
func dropDeadline(ctx context.Context, tx *dbtx.Tx, ns, taskID orbit.ID, at *time.Time) error {
	if at == nil {
		return nil
	}
	_, err := pulsedb.New(tx.Later(1)).DropDeadline(ctx, pulsedb.DropDeadlineParams{DeadlineAt: *at, NamespaceID: ns, TaskID: taskID})
	return err
}

func emitEnding(tx *dbtx.Tx, ns orbit.ID, e ending) {
	actor := e.actor
	emit(tx, ns, actor, kindAttempt, e.attempt.ID, e.attempt.Version+1, "attempt.ended",
		facts{"task_id": e.task.ID, "state": e.state, "code": e.code})
	data := facts{"attempt_id": e.attempt.ID, "queue_id": e.task.QueueID, "code": e.code}
	version := e.task.Revision + 1
	switch e.fate {
	case fateSucceed:
		emit(tx, ns, actor, kindTask, e.task.ID, version, "task.succeeded", data)
	case fateFail:
		emit(tx, ns, actor, kindTask, e.task.ID, version, "task.failed", data)
	case fateCancel:
		emit(tx, ns, actor, kindTask, e.task.ID, version, "task.cancelled", data)
	case fatePark:
		emit(tx, ns, actor, kindTask, e.task.ID, version, "task.parked", data)
	case fateRequeue:
		data["delay_ms"] = e.delay.Milliseconds()
		emit(tx, ns, actor, kindTask, e.task.ID, version, "task.requeued", data)
	}
}

// workingRow is where an open task without a live attempt waits.
type workingRow struct {
	taskID, queueID orbit.ID
	priority        uint8
	rankUs          int64
	runAt           time.Time
	blocker         string
}

const blockerGate = "gate"

// insertWorkingRows puts tasks where they wait: blocked, scheduled, or ready, by which waiting claims are then told.
func (s *Service) insertWorkingRows(tx *dbtx.Tx, ns orbit.ID, rows []workingRow) error {
	var ready, scheduled, blocked [][]any
	readies := map[orbit.ID]int{}
	var first time.Time // of the scheduled ones
	for _, r := range rows {
		switch {
		case r.blocker != "":
			blocked = append(blocked, []any{ns, blockerGate, r.blocker, r.priority, r.rankUs, r.taskID, r.queueID})
		case r.runAt.After(tx.Now):
			scheduled = append(scheduled, []any{r.runAt, ns, r.taskID, r.queueID, r.priority, r.rankUs})
			if first.IsZero() || r.runAt.Before(first) {
				first = r.runAt
			}
		default:
			ready = append(ready, []any{ns, r.queueID, r.priority, r.rankUs, r.taskID})
			readies[r.queueID]++
		}
	}
	if err := batch.Insert(tx, pulsedb.InsertBlocked, blocked); err != nil {
		return err
	}
	if err := batch.Insert(tx, pulsedb.InsertScheduled, scheduled); err != nil {
		return err
	}
	if err := batch.Insert(tx, pulsedb.InsertReady, ready); err != nil {
		return err
	}
	for queueID, n := range readies {
		tx.OnCommit(func() { s.announce(batch.Queue{NamespaceID: ns, ID: queueID}, n) })
	}
	if len(scheduled) > 0 {
		tx.OnCommit(func() { wakeAt(s.due.scheduled, tx.Now, first) })
	}
	return nil
}

func expiry(now time.Time, retentionMs int64) *time.Time {
	at := now.Add(time.Duration(retentionMs) * time.Millisecond)
	return &at
}

func count(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
