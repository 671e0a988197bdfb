package pulse

import (
	"context"
	"database/sql"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// licence is the right to move an open task: its working row, which was deleted, or its live attempt, which is held.
type licence struct {
	task    pulsedb.ListTaskHeadsRow
	attempt *pulsedb.PulseAttempt // nil when a working row was taken
}

// takeLicence takes whichever row an open task has. The task may move while it is looked for, since nothing else is locked:
// then it is looked for again, where the newer row says. Waits for a rival's commit; never holds the task row before the licence. The task
// is as it is under the licence: what was read before may be older than the row that was taken.
func takeLicence(ctx context.Context, q *pulsedb.Queries, ns, taskID orbit.ID) (licence, error) {
	for range 16 {
		head, err := taskHead(ctx, q, ns, taskID)
		if err != nil {
			return licence{}, err
		}
		l := licence{task: head}
		if head.State != orbit.TaskOpen {
			return l, dbtx.ErrLost
		}
		found, err := l.take(ctx, q, ns)
		if err != nil {
			return l, err
		}
		if found {
			l.task, err = taskHead(ctx, q, ns, taskID)
			return l, err
		}
	}
	return licence{}, fault.New(fault.Unavailable, "the task moves too fast to be held; try again")
}

func taskHead(ctx context.Context, q *pulsedb.Queries, ns, taskID orbit.ID) (pulsedb.ListTaskHeadsRow, error) {
	heads, err := q.ListTaskHeads(ctx, pulsedb.ListTaskHeadsParams{NamespaceID: ns, Ids: []orbit.ID{taskID}})
	if err != nil {
		return pulsedb.ListTaskHeadsRow{}, err
	}
	if len(heads) == 0 {
		return pulsedb.ListTaskHeadsRow{}, fault.Missing("task")
	}
	return heads[0], nil
}

func (l *licence) take(ctx context.Context, q *pulsedb.Queries, ns orbit.ID) (bool, error) {
	t := l.task
	n, err := q.TakeReady(ctx, pulsedb.TakeReadyParams{NamespaceID: ns, QueueID: t.QueueID, Priority: t.Priority, RankUs: t.RankUs, TaskID: t.ID})
	if err != nil || n == 1 {
		return n == 1, err
	}
	n, err = q.TakeScheduled(ctx, pulsedb.TakeScheduledParams{DueAt: t.RunAt, NamespaceID: ns, TaskID: t.ID})
	if err != nil || n == 1 {
		return n == 1, err
	}
	n, err = q.TakeBlocked(ctx, pulsedb.TakeBlockedParams{NamespaceID: ns, TaskID: t.ID})
	if err != nil || n == 1 {
		return n == 1, err
	}
	id, err := q.FindLiveAttempt(ctx, pulsedb.FindLiveAttemptParams{NamespaceID: ns, TaskID: t.ID, Generation: t.Generation + 1})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	a, err := q.LockAttempt(ctx, pulsedb.LockAttemptParams{NamespaceID: ns, ID: id})
	if err != nil || a.EndedAt != nil {
		return false, err
	}
	l.attempt = &a
	return true, nil
}

// endTask ends a task whose licence was taken, together with its live attempt if it has one.
func (s *Service) endTask(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, actor orbit.NullID, l licence, f fate, code, message string) error {
	q := pulsedb.New(tx)
	queue, err := q.GetQueue(ctx, pulsedb.GetQueueParams{NamespaceID: ns, ID: l.task.QueueID})
	if err != nil {
		return err
	}
	if l.attempt != nil {
		e := decideOver(ending{actor: actor, attempt: *l.attempt, task: l.task, queue: queue}, f, code, message)
		return s.settle(ctx, tx, ns, []ending{e})
	}
	state, event := orbit.TaskFailed, "task.failed"
	if f == fateCancel {
		state, event = orbit.TaskCancelled, "task.cancelled"
	}
	n, err := q.EndTask(ctx, pulsedb.EndTaskParams{
		State: state, FailureCode: &code, FailureMessage: &message, NowAt: tx.Now,
		ExpiresAt: expiry(tx.Now, queue.RetentionMs), NamespaceID: ns, ID: l.task.ID, Revision: l.task.Revision})
	if err := dbtx.Swapped(n, err); err != nil {
		return err
	}
	emit(tx, ns, actor, kindTask, l.task.ID, l.task.Revision+1, event, facts{"queue_id": l.task.QueueID, "code": code})
	if err := dropDeadline(ctx, tx, ns, l.task.ID, l.task.DeadlineAt); err != nil {
		return err
	}
	return s.tasksEnded(ctx, tx, ns, []endedTask{{l.task.OriginKind, l.task.OriginID, queue.RetentionMs}})
}
