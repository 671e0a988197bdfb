package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// RetainOccurrences removes occurrences whose time is past. Their instants are before the watermark and do not fire again by themselves.
func (s *Service) RetainOccurrences(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	due, err := pulsedb.New(s.Batch.DB).DueExpiredOccurrences(ctx, pulsedb.DueExpiredOccurrencesParams{NowAt: now, Limit: passRows})
	if err != nil {
		return 0, err
	}
	moved := 0
	for _, group := range perNamespace(due, func(r pulsedb.DueExpiredOccurrencesRow) orbit.ID { return r.NamespaceID }) {
		ids := make([]orbit.ID, len(group))
		for i, r := range group {
			ids[i] = r.ID
		}
		n, err := parts(ids, func(ids []orbit.ID) (int, error) { return s.removeOccurrences(ctx, group[0].NamespaceID, ids) })
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

func (s *Service) removeOccurrences(ctx context.Context, ns orbit.ID, ids []orbit.ID) (int, error) {
	removed := 0
	err := s.Batch.Run(ctx, "retainOccurrences", func(ctx context.Context, tx *dbtx.Tx) error {
		n, err := pulsedb.New(tx).DeleteOccurrences(ctx, pulsedb.DeleteOccurrencesParams{NamespaceID: ns, Ids: ids, NowAt: tx.Now})
		removed = int(n)
		return err
	})
	return removed, err
}
