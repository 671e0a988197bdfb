package pulse

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// ListAttemptEvidence lists the results of an attempt that were not taken, newest first, without their bodies.
func (s *Service) ListAttemptEvidence(ctx context.Context, params api.ListAttemptEvidenceParams) (*api.EvidenceList, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksRead)
	if err != nil {
		return nil, err
	}
	walk := page.Of("listAttemptEvidence", params.AttemptID.String())
	beforeAt, beforeID, err := evidenceBefore(walk, params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	q := s.reads()
	if err := requireAttempt(ctx, q, caller, params.AttemptID); err != nil {
		return nil, err
	}
	size := page.Size(params.Limit.Or(page.Default))
	rows, err := q.ListEvidence(ctx, pulsedb.ListEvidenceParams{
		NamespaceID: caller.NamespaceID, AttemptID: params.AttemptID, BeforeAt: beforeAt, BeforeID: beforeID, Limit: int32(size) + 1})
	if err != nil {
		return nil, err
	}
	list := &api.EvidenceList{}
	if len(rows) > size {
		rows = rows[:size]
		list.NextCursor.SetTo(evidenceCursor(walk, rows[size-1]))
	}
	list.Items = make([]api.EvidenceSummary, len(rows))
	for i, r := range rows {
		list.Items[i] = api.EvidenceSummary{
			ID: r.ID, AttemptID: params.AttemptID, Reason: r.Reason, Outcome: api.Outcome(r.Outcome),
			Error: optFailure(r.ErrorCode, r.ErrorMessage), CreatedAt: r.CreatedAt,
		}
	}
	return list, nil
}

func evidenceCursor(walk page.Walk, last pulsedb.ListEvidenceRow) string {
	position := binary.BigEndian.AppendUint64(nil, uint64(last.CreatedAt.UnixMicro()))
	return walk.Cursor(append(position, last.ID[:]...))
}

func evidenceBefore(walk page.Walk, cursor string) (time.Time, orbit.ID, error) {
	position, err := walk.Position(cursor, 8+len(orbit.ID{}))
	if err != nil || position == nil {
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), orbit.ID{}, err
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(position))).UTC(), orbit.ID(position[8:]), nil
}
