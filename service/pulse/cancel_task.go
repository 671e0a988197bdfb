package pulse

import (
	"context"
	"database/sql"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// CancelTask cancels a task that is not running at once, and asks a running one to stop. In a race with a claim, a start or a result exactly one
// goes first and the other sees it. A repeat of the key gets the first reply; another key on a cancelled task gets its state; any
// other ended task is state_conflict.
func (s *Service) CancelTask(ctx context.Context, req api.OptCancelTaskRequest, params api.CancelTaskParams) (*api.CancelTaskOKHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksManage)
	if err != nil {
		return nil, err
	}
	m, err := readMatch(params.IfMatch, false)
	if err != nil {
		return nil, err
	}
	reason := req.Value.Reason.Or("")
	reply, err := s.manage(ctx, caller, "cancelTask", params.TaskID, params.IdempotencyKey, map[string]any{"reason": reason},
		func(ctx context.Context, tx *dbtx.Tx) error {
			return s.cancel(ctx, tx, caller, params.TaskID, m, reason)
		})
	if err != nil {
		return nil, err
	}
	return &api.CancelTaskOKHeaders{ETag: reply.ETag, IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}

func (s *Service) cancel(ctx context.Context, tx *dbtx.Tx, c platform.Caller, id orbit.ID, m match, reason string) error {
	q := pulsedb.New(tx)
	l, err := takeLicence(ctx, q, c.NamespaceID, id)
	if errors.Is(err, dbtx.ErrLost) {
		if err := m.check(taskTag(l.task.Revision, l.task.Generation, nil)); err != nil {
			return err
		}
		return cancelOver(l.task.State)
	}
	if err != nil {
		return err
	}
	if err := m.check(l.tag()); err != nil {
		return err
	}
	if l.attempt == nil || l.attempt.State == orbit.AttemptOffered {
		return s.endTask(ctx, tx, c.NamespaceID, c.ActorID.Null(), l, fateCancel, codeCancelled, reason)
	}
	if l.attempt.CancelRequestedAt != nil {
		return nil
	}
	n, err := q.RequestCancel(ctx, pulsedb.RequestCancelParams{NowAt: tx.Now, NamespaceID: c.NamespaceID, ID: l.attempt.ID, Version: l.attempt.Version})
	if err := dbtx.Swapped(n, err); err != nil {
		return err
	}
	emit(tx, c.NamespaceID, c.ActorID.Null(), kindAttempt, l.attempt.ID, l.attempt.Version+1, "attempt.cancel_requested", facts{"task_id": id, "reason": reason})
	return nil
}

func cancelOver(state orbit.TaskState) error {
	switch state {
	case orbit.TaskCancelled:
		return nil
	case orbit.TaskReview:
		return fault.New(fault.StateConflict, "the task is in review: resolve it, by cancel if that is the answer")
	}
	return fault.New(fault.StateConflict, "the task has ended (%s) and cannot be cancelled", state)
}

// tag is the ETag of the task as the licence holds it.
func (l licence) tag() string {
	if l.attempt == nil {
		return taskTag(l.task.Revision, l.task.Generation, nil)
	}
	return taskTag(l.task.Revision, l.task.Generation, &l.attempt.Version)
}

// manage runs an operator's act on one task exactly once for its key, audited, and answers the task as it is then.
func (s *Service) manage(ctx context.Context, c platform.Caller, operation string, id orbit.ID, key api.OptString, detail map[string]any, act func(ctx context.Context, tx *dbtx.Tx) error) (platform.Reply, error) {
	if f := platform.CheckKey(key.Or("")); f != nil {
		return platform.Reply{}, f
	}
	if err := s.maySee(ctx, c, id); err != nil {
		return platform.Reply{}, err
	}
	scope := platform.ScopeOf(c, operation, taskPath(operation, id))
	try := platform.Try{Key: key.Or(""), Digest: body.From(ctx).Digest, ResourceKind: kindTask, ResourceID: id}
	return s.Platform.Once(ctx, scope, try, func(ctx context.Context, tx *dbtx.Tx) (platform.Reply, error) {
		if err := act(ctx, tx); err != nil {
			return platform.Reply{}, err
		}
		if err := platform.Audit(ctx, tx, c, platform.Act{Action: operation, TargetKind: kindTask, TargetID: id, Detail: detail}); err != nil {
			return platform.Reply{}, err
		}
		view, err := viewTask(ctx, pulsedb.New(tx), c, id)
		if err != nil {
			return platform.Reply{}, err
		}
		return platform.Reply{Status: 200, ETag: view.Etag, Body: encode(&view)}, nil
	})
}

func taskPath(operation string, id orbit.ID) string {
	verbs := map[string]string{"cancelTask": "cancel", "retryTask": "retry", "resolveTask": "resolve"}
	return "/v1/tasks/" + id.String() + ":" + verbs[operation]
}

// maySee refuses a task on a queue that is not granted now, before any replay. A task that is gone is left to the key, which outlives it.
func (s *Service) maySee(ctx context.Context, c platform.Caller, id orbit.ID) error {
	q := pulsedb.New(s.Lane.DB)
	heads, err := q.ListTaskHeads(ctx, pulsedb.ListTaskHeadsParams{NamespaceID: c.NamespaceID, Ids: []orbit.ID{id}})
	if err != nil || len(heads) == 0 {
		return err
	}
	return requireQueue(ctx, q, c, heads[0].QueueID, "task")
}

// lockTask holds a task that has no working row: one in review or ended.
func lockTask(ctx context.Context, q *pulsedb.Queries, ns, id orbit.ID, m match, want orbit.TaskState) (pulsedb.LockTaskRow, error) {
	t, err := q.LockTask(ctx, pulsedb.LockTaskParams{NamespaceID: ns, ID: id})
	if errors.Is(err, sql.ErrNoRows) {
		return t, fault.Missing("task")
	}
	if err != nil {
		return t, err
	}
	if err := m.check(taskTag(t.Revision, t.Generation, nil)); err != nil {
		return t, err
	}
	if t.State != want {
		return t, notIn(ctx, q, ns, id, want)
	}
	return t, nil
}

// notIn refuses a task for its state, named as the API shows it.
func notIn(ctx context.Context, q *pulsedb.Queries, ns, id orbit.ID, want orbit.TaskState) error {
	rows, err := q.ViewTasks(ctx, pulsedb.ViewTasksParams{NamespaceID: ns, Ids: []orbit.ID{id}})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fault.Missing("task")
	}
	shown, _, err := shownState(rows[0])
	if err != nil {
		return err
	}
	return fault.New(fault.StateConflict, "only a task that is %s takes this; this one is %s", want, shown)
}
