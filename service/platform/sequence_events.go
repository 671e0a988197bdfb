package platform

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// A pass of the sequencer takes this many namespaces, and of each this many batches.
const (
	sequenceNamespaces = 64
	sequenceBatches    = 1000
)

// SequenceEvents gives positions to committed batches, a transaction a namespace.
//
// Positions are given under the lock of the namespace's head, which is held to the commit: who sees a position sees all below it. Any
// number of replicas do this; one that meets a locked head leaves that namespace to its holder. Answers how many batches it placed.
func (s *Service) SequenceEvents(ctx context.Context) (int, error) {
	placed := 0
	namespaces, err := s.turns.sequence.next(sequenceNamespaces, func(after orbit.ID, limit int32) ([]orbit.ID, error) {
		return platformdb.New(s.Batch.DB).HostSpooledNamespaces(ctx, platformdb.HostSpooledNamespacesParams{AfterNamespace: after, Limit: limit})
	})
	for _, namespaceID := range namespaces {
		n, failed := s.sequence(ctx, namespaceID)
		placed += n
		err = errors.Join(err, failed)
	}
	return placed, err
}

func (s *Service) sequence(ctx context.Context, namespaceID orbit.ID) (placed int, err error) {
	err = s.Batch.Run(ctx, "sequence_events", func(ctx context.Context, tx *dbtx.Tx) error {
		placed = 0
		q := platformdb.New(tx)
		next, err := q.LockEventHead(ctx, namespaceID)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // another replica is at it
		}
		if err != nil {
			return err
		}
		spool, err := q.ListSpool(ctx, platformdb.ListSpoolParams{NamespaceID: namespaceID, Limit: sequenceBatches})
		if err != nil || len(spool) == 0 {
			return err
		}
		position := next
		sids, rows := make([]uint64, len(spool)), make([][]any, len(spool))
		for i, b := range spool {
			sids[i], rows[i] = b.Sid, []any{namespaceID, position, b.BatchID, b.EventCount}
			position += int64(b.EventCount)
		}
		if err := batch.Insert(tx, platformdb.InsertLog, rows); err != nil {
			return err
		}
		if _, err := platformdb.New(tx.Later(len(sids))).DeleteSpool(ctx, platformdb.DeleteSpoolParams{NamespaceID: namespaceID, Sids: sids}); err != nil {
			return err
		}
		if _, err := platformdb.New(tx.Later(1)).AdvanceEventHead(ctx, platformdb.AdvanceEventHeadParams{NamespaceID: namespaceID, NextPosition: next, NewPosition: position}); err != nil {
			return err
		}
		placed = len(spool)
		return nil
	})
	return placed, err
}

// turns are where the passes over all namespaces go on, so that none waits for ever behind busy ones.
type turns struct{ sequence, trim turn }

type turn struct {
	mu   sync.Mutex
	last orbit.ID
}

// next lists the following namespaces, from the beginning again after the last.
func (t *turn) next(limit int32, list func(after orbit.ID, limit int32) ([]orbit.ID, error)) ([]orbit.ID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, err := list(t.last, limit)
	if err == nil && len(found) < int(limit) && !t.last.IsZero() {
		var more []orbit.ID
		last := t.last
		more, err = list(orbit.ID{}, limit-int32(len(found)))
		for _, id := range more {
			if id.Compare(last) <= 0 {
				found = append(found, id)
			}
		}
	}
	t.last = orbit.ID{}
	if len(found) == int(limit) {
		t.last = found[len(found)-1]
	}
	return found, err
}
