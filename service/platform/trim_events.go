package platform

import (
	"context"
	"database/sql"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

const (
	trimNamespaces = 64
	trimBatches    = 200
)

// TrimEvents removes the oldest events of each namespace once they are older than EventLife, whole batches from the beginning of the feed. A
// reader that asks below what is left is told so. Answers how many batches it removed.
func (s *Service) TrimEvents(ctx context.Context) (int, error) {
	removed := 0
	namespaces, err := s.turns.trim.next(trimNamespaces, func(after orbit.ID, limit int32) ([]orbit.ID, error) {
		return platformdb.New(s.Batch.DB).HostEventHeads(ctx, platformdb.HostEventHeadsParams{AfterNamespace: after, Limit: limit})
	})
	for _, namespaceID := range namespaces {
		n, failed := s.trim(ctx, namespaceID)
		removed += n
		err = errors.Join(err, failed)
	}
	return removed, err
}

func (s *Service) trim(ctx context.Context, namespaceID orbit.ID) (removed int, err error) {
	err = s.Batch.Run(ctx, "trim_events", func(ctx context.Context, tx *dbtx.Tx) error {
		removed = 0
		q := platformdb.New(tx)
		if _, err := q.LockEventHead(ctx, namespaceID); errors.Is(err, sql.ErrNoRows) {
			return nil // the sequencer or another replica's trim is at it; next time
		} else if err != nil {
			return err
		}
		oldest, err := q.ListOldLog(ctx, platformdb.ListOldLogParams{NamespaceID: namespaceID, Limit: trimBatches})
		if err != nil {
			return err
		}
		var batches []orbit.ID
		var below, events int64
		for _, b := range oldest {
			if !b.OccurredAt.Before(tx.Now.Add(-s.EventLife)) {
				break
			}
			batches, below = append(batches, b.BatchID), b.FirstPosition+int64(b.EventCount)
			events += int64(b.EventCount)
		}
		if len(batches) == 0 {
			return nil
		}
		n, err := q.TrimEventHead(ctx, platformdb.TrimEventHeadParams{NamespaceID: namespaceID, Below: below})
		if err := dbtx.Swapped(n, err); err != nil {
			return err
		}
		n, err = q.DeleteLog(ctx, platformdb.DeleteLogParams{NamespaceID: namespaceID, Below: below})
		if err := dbtx.SwappedAll(n, err, len(batches)); err != nil {
			return err
		}
		n, err = q.DeleteEvents(ctx, platformdb.DeleteEventsParams{NamespaceID: namespaceID, BatchIds: batches})
		if err := dbtx.SwappedAll(n, err, int(events)); err != nil {
			return err
		}
		removed = len(batches)
		return nil
	})
	return removed, err
}
