package pulse

import (
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// RetryTask reopens a failed task with a new budget. A deadline that is past is dropped; one to come is kept, and a run_at that is not before
// it is invalid_request. A repeat of the key gets the first reply; of two retries under different keys one wins, and the other is
// state_conflict.
func (s *Service) RetryTask(ctx context.Context, req api.OptRetryTaskRequest, params api.RetryTaskParams) (*api.RetryTaskOKHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksManage)
	if err != nil {
		return nil, err
	}
	m, err := readMatch(params.IfMatch, false)
	if err != nil {
		return nil, err
	}
	r := req.Value
	if r.RunAt.Set && !storable(r.RunAt.Value) {
		return nil, fault.Invalid("/run_at", "out_of_range", "the year must be between 1970 and 9999")
	}
	reply, err := s.manage(ctx, caller, "retryTask", params.TaskID, params.IdempotencyKey, map[string]any{"reason": r.Reason.Or("")},
		func(ctx context.Context, tx *dbtx.Tx) error {
			t, err := lockTask(ctx, pulsedb.New(tx), caller.NamespaceID, params.TaskID, m, orbit.TaskFailed)
			if err != nil {
				return err
			}
			return s.reopen(ctx, tx, caller, t, r.RunAt.Or(tx.Now), uint32(r.MaxAttempts.Or(int(t.MaxAttempts))), "task.requeued", facts{"cause": "retry", "reason": r.Reason.Or("")})
		})
	if err != nil {
		return nil, err
	}
	return &api.RetryTaskOKHeaders{ETag: reply.ETag, IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}

// reopen puts a held task that failed or is in review back into its queue, with a new budget.
func (s *Service) reopen(ctx context.Context, tx *dbtx.Tx, c platform.Caller, t pulsedb.LockTaskRow, runAt time.Time, budget uint32, event string, data facts) error {
	q := pulsedb.New(tx)
	runAt = runAt.UTC().Truncate(time.Microsecond)
	deadline := t.DeadlineAt
	if deadline != nil && !deadline.After(tx.Now) {
		deadline = nil
	}
	if deadline != nil && !deadline.After(runAt) {
		return fault.Invalid("/run_at", "not_before_deadline", "the task has a deadline at %s, and would fail before it may run", deadline.Format(time.RFC3339Nano))
	}
	row := workingRow{taskID: t.ID, queueID: t.QueueID, priority: t.Priority, runAt: runAt, rankUs: max(runAt.UnixMicro(), tx.Now.UnixMicro())}
	n, err := q.ReopenTask(ctx, pulsedb.ReopenTaskParams{
		RunAt: row.runAt, RankUs: row.rankUs, DeadlineAt: deadline, MaxAttempts: budget, NowAt: tx.Now, NamespaceID: c.NamespaceID, ID: t.ID, Revision: t.Revision})
	if err := dbtx.Swapped(n, err); err != nil {
		return err
	}
	if deadline != nil {
		if err := batch.Insert(tx, pulsedb.InsertDeadline, [][]any{{*deadline, c.NamespaceID, t.ID}}); err != nil {
			return err
		}
	}
	if t.State == orbit.TaskFailed {
		if err := taskReopened(ctx, q, c.NamespaceID, t.OriginKind, t.OriginID); err != nil {
			return err
		}
	}
	data["queue_id"] = t.QueueID
	emit(tx, c.NamespaceID, c.ActorID.Null(), kindTask, t.ID, t.Revision+1, event, data)
	return s.insertWorkingRows(tx, c.NamespaceID, []workingRow{row})
}
