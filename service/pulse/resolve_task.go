package pulse

import (
	"context"
	"database/sql"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// ResolveTask ends a review by a person's decision, on exactly what that person saw (If-Match). A repeat of the key gets the first reply; of
// two decisions one wins, and the other is revision_mismatch.
func (s *Service) ResolveTask(ctx context.Context, req *api.ResolveTaskRequest, params api.ResolveTaskParams) (*api.ResolveTaskOKHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksManage)
	if err != nil {
		return nil, err
	}
	m, err := readMatch(params.IfMatch, true)
	if err != nil {
		return nil, err
	}
	if (req.Resolution == api.ResolutionAcceptEvidence) != req.EvidenceID.Set {
		return nil, fault.Invalid("/evidence_id", "one_of", "accept_evidence names the evidence by evidence_id, and nothing else does")
	}
	detail := map[string]any{"resolution": req.Resolution, "reason": req.Reason}
	reply, err := s.manage(ctx, caller, "resolveTask", params.TaskID, params.IdempotencyKey, detail, func(ctx context.Context, tx *dbtx.Tx) error {
		return s.resolve(ctx, tx, caller, params.TaskID, m, req)
	})
	if err != nil {
		return nil, err
	}
	return &api.ResolveTaskOKHeaders{ETag: reply.ETag, IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}

func (s *Service) resolve(ctx context.Context, tx *dbtx.Tx, c platform.Caller, id orbit.ID, m match, req *api.ResolveTaskRequest) error {
	q := pulsedb.New(tx)
	t, err := lockTask(ctx, q, c.NamespaceID, id, m, orbit.TaskReview)
	if err != nil {
		return err
	}
	data := facts{"resolution": req.Resolution, "reason": req.Reason}
	var end pulsedb.EndTaskParams
	switch req.Resolution {
	case api.ResolutionRetry:
		return s.reopen(ctx, tx, c, t, tx.Now, t.MaxAttempts, "task.resolved", data)
	case api.ResolutionAcceptEvidence:
		if err := checkEvidence(ctx, q, c.NamespaceID, id, req.EvidenceID.Value); err != nil {
			return err
		}
		end.State, end.ResultEvidenceID = orbit.TaskSucceeded, req.EvidenceID.Value.Null()
		end.FailureCode, end.FailureMessage = new(""), new("")
	case api.ResolutionFail: // with what led to the review
		end.State = orbit.TaskFailed
	case api.ResolutionCancel:
		end.State = orbit.TaskCancelled
		end.FailureCode, end.FailureMessage = new(codeCancelled), new(clip(req.Reason, maxText))
	}
	queue, err := q.GetQueue(ctx, pulsedb.GetQueueParams{NamespaceID: c.NamespaceID, ID: t.QueueID})
	if err != nil {
		return err
	}
	end.NowAt, end.ExpiresAt, end.NamespaceID, end.ID, end.Revision = tx.Now, expiry(tx.Now, queue.RetentionMs), c.NamespaceID, id, t.Revision
	n, err := q.EndTask(ctx, end)
	if err := dbtx.Swapped(n, err); err != nil {
		return err
	}
	data["state"], data["queue_id"] = end.State, t.QueueID
	emit(tx, c.NamespaceID, c.ActorID.Null(), kindTask, id, t.Revision+1, "task.resolved", data)
	return s.tasksEnded(ctx, tx, c.NamespaceID, []endedTask{{t.OriginKind, t.OriginID, queue.RetentionMs}})
}

// checkEvidence accepts only a success that was reported for this very task.
func checkEvidence(ctx context.Context, q *pulsedb.Queries, ns, taskID, evidenceID orbit.ID) error {
	evidence, err := q.GetEvidenceByID(ctx, pulsedb.GetEvidenceByIDParams{NamespaceID: ns, ID: evidenceID})
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing("evidence")
	}
	if err != nil {
		return err
	}
	attempt, err := q.GetAttempt(ctx, pulsedb.GetAttemptParams{NamespaceID: ns, ID: evidence.AttemptID})
	if err != nil {
		return err
	}
	if attempt.TaskID != taskID {
		return fault.Missing("evidence")
	}
	if evidence.Outcome != orbit.OutcomeSucceeded {
		return fault.New(fault.StateConflict, "the evidence reports %s; only a reported success can be accepted as the result", evidence.Outcome)
	}
	return nil
}
