package pulse

import (
	"context"
	"database/sql"
	"errors"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// GetEvidence reads one result that was not taken, with its body.
func (s *Service) GetEvidence(ctx context.Context, params api.GetEvidenceParams) (*api.Evidence, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksRead)
	if err != nil {
		return nil, err
	}
	q := s.reads()
	if err := requireAttempt(ctx, q, caller, params.AttemptID); err != nil {
		return nil, err
	}
	row, err := q.GetEvidence(ctx, pulsedb.GetEvidenceParams{NamespaceID: caller.NamespaceID, ID: params.EvidenceID, AttemptID: params.AttemptID})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.Missing("evidence of this attempt")
	}
	if err != nil {
		return nil, err
	}
	return &api.Evidence{
		ID: row.ID, AttemptID: row.AttemptID, Reason: row.Reason, Outcome: api.Outcome(row.Outcome),
		Error: optFailure(row.ErrorCode, row.ErrorMessage), CreatedAt: row.CreatedAt, Result: rawJSON(row.Result),
	}, nil
}
