package pulse

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// GetTask reads one task with its payload and, when it succeeded, its result.
func (s *Service) GetTask(ctx context.Context, params api.GetTaskParams) (*api.TaskHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksRead)
	if err != nil {
		return nil, err
	}
	q := s.reads()
	row, err := q.ViewTask(ctx, pulsedb.ViewTaskParams{NamespaceID: caller.NamespaceID, ID: params.TaskID})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.Missing(kindTask)
	}
	if err != nil {
		return nil, err
	}
	if err := requireQueue(ctx, q, caller, row.PulseTask.QueueID, kindTask); err != nil {
		return nil, err
	}
	summary, err := taskSummary(withoutPayload(row))
	if err != nil {
		return nil, err
	}
	task := withPayload(summary, row.PulseTask)
	if row.PulseTask.State == orbit.TaskSucceeded {
		if task.Result, err = taskResult(ctx, q, row.PulseTask); err != nil {
			return nil, err
		}
	}
	return &api.TaskHeaders{ETag: task.Etag, Response: task}, nil
}

func withPayload(t api.TaskSummary, row pulsedb.PulseTask) api.Task {
	return api.Task{
		ID: t.ID, QueueID: t.QueueID, Type: t.Type, State: t.State, Waiting: t.Waiting, Priority: t.Priority, RunAt: t.RunAt, DeadlineAt: t.DeadlineAt,
		MaxAttempts: t.MaxAttempts, AttemptsUsed: t.AttemptsUsed, Generation: t.Generation, CancelRequested: t.CancelRequested,
		AttemptID: t.AttemptID, Origin: t.Origin, Failure: t.Failure, Etag: t.Etag, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, FinishedAt: t.FinishedAt,
		ExpiresAt: t.ExpiresAt, Payload: jx.Raw(row.Payload), PayloadVersion: int64(row.PayloadVersion),
	}
}

// taskResult reads the result of a task that succeeded: the evidence a person accepted, or what its last generation reported. A
// succeeded task never changes; its result is gone only when retention has taken the task meanwhile.
func taskResult(ctx context.Context, q *pulsedb.Queries, t pulsedb.PulseTask) (jx.Raw, error) {
	var result *string
	var err error
	if t.ResultEvidenceID.Valid {
		var e pulsedb.PulseAttemptEvidence
		e, err = q.GetEvidenceByID(ctx, pulsedb.GetEvidenceByIDParams{NamespaceID: t.NamespaceID, ID: t.ResultEvidenceID.ID})
		result = e.Result
	} else {
		var r pulsedb.GetTaskResultRow
		r, err = q.GetTaskResult(ctx, pulsedb.GetTaskResultParams{NamespaceID: t.NamespaceID, TaskID: t.ID, Generation: t.Generation})
		result = r.Result
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil, resultGone(ctx, q, t)
	}
	if err != nil {
		return nil, err
	}
	if result == nil {
		return jx.Raw("null"), nil
	}
	return jx.Raw(*result), nil
}

func resultGone(ctx context.Context, q *pulsedb.Queries, t pulsedb.PulseTask) error {
	_, err := q.GetTaskQueue(ctx, pulsedb.GetTaskQueueParams{NamespaceID: t.NamespaceID, ID: t.ID})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fault.Missing(kindTask)
	case err != nil:
		return err
	}
	return fmt.Errorf("invariant broken: task %s succeeded and has no result", t.ID)
}
