package pulse

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// GetAttempt reads one attempt with its progress and, once a result was taken, its receipt and result.
func (s *Service) GetAttempt(ctx context.Context, params api.GetAttemptParams) (*api.Attempt, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksRead)
	if err != nil {
		return nil, err
	}
	q := s.reads()
	row, err := q.ViewAttempt(ctx, pulsedb.ViewAttemptParams{NamespaceID: caller.NamespaceID, ID: params.AttemptID})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.Missing(kindAttempt)
	}
	if err != nil {
		return nil, err
	}
	if err := requireQueue(ctx, q, caller, row.QueueID, kindAttempt); err != nil {
		return nil, err
	}
	attempt := withBodies(attemptSummary(withoutBodies(row)), row)
	if row.Reply.Valid {
		var receipt api.AttemptReceipt
		if err := receipt.Decode(jx.DecodeStr(row.Reply.String)); err != nil {
			return nil, fmt.Errorf("kept receipt of attempt %s: %w", row.ID, err)
		}
		attempt.Receipt.SetTo(receipt)
	}
	return &attempt, nil
}

func withoutBodies(r pulsedb.ViewAttemptRow) pulsedb.ListTaskAttemptsRow {
	return pulsedb.ListTaskAttemptsRow{
		ID: r.ID, TaskID: r.TaskID, QueueID: r.QueueID, Generation: r.Generation, InstanceID: r.InstanceID, Epoch: r.Epoch, ClaimSeq: r.ClaimSeq,
		State: r.State, LeaseUntil: r.LeaseUntil, CancelRequestedAt: r.CancelRequestedAt, OfferedAt: r.OfferedAt, StartedAt: r.StartedAt,
		EndedAt: r.EndedAt, EndCode: r.EndCode, EndMessage: r.EndMessage, WorkerName: r.WorkerName,
	}
}

func withBodies(a api.AttemptSummary, r pulsedb.ViewAttemptRow) api.Attempt {
	return api.Attempt{
		ID: a.ID, TaskID: a.TaskID, QueueID: a.QueueID, Generation: a.Generation, State: a.State, WorkerName: a.WorkerName,
		InstanceID: a.InstanceID, Epoch: a.Epoch, ClaimSeq: a.ClaimSeq, CancelRequested: a.CancelRequested, OfferedAt: a.OfferedAt,
		OfferExpiresAt: a.OfferExpiresAt, StartedAt: a.StartedAt, LeaseUntil: a.LeaseUntil, EndedAt: a.EndedAt, Failure: a.Failure,
		Progress: rawJSON(r.Progress), Result: rawJSON(r.Result),
	}
}
