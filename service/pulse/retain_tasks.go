package pulse

import (
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// RetainTasks removes ended tasks whose time is past, with their attempts, receipts and evidence. The task rows are held meanwhile, so that a
// manual retry either comes first and keeps its task, or finds none. Events and idempotency keys have their own lives.
func (s *Service) RetainTasks(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	due, err := pulsedb.New(s.Batch.DB).DueExpiredTasks(ctx, pulsedb.DueExpiredTasksParams{NowAt: now, Limit: passRows})
	if err != nil {
		return 0, err
	}
	moved := 0
	for _, group := range perNamespace(due, func(r pulsedb.DueExpiredTasksRow) orbit.ID { return r.NamespaceID }) {
		ids := make([]orbit.ID, len(group))
		for i, r := range group {
			ids[i] = r.ID
		}
		n, err := parts(ids, func(ids []orbit.ID) (int, error) { return s.removeTasks(ctx, group[0].NamespaceID, ids) })
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

func (s *Service) removeTasks(ctx context.Context, ns orbit.ID, ids []orbit.ID) (int, error) {
	removed := 0
	err := s.Batch.Run(ctx, "retainTasks", func(ctx context.Context, tx *dbtx.Tx) error {
		q := pulsedb.New(tx)
		held, err := q.LockExpiredTasks(ctx, pulsedb.LockExpiredTasksParams{NamespaceID: ns, Ids: ids, NowAt: tx.Now})
		removed = len(held)
		if err != nil || removed == 0 {
			return err
		}
		attempts, err := q.LockAttemptIDs(ctx, pulsedb.LockAttemptIDsParams{NamespaceID: ns, TaskIds: held})
		if err != nil {
			return err
		}
		if len(attempts) > 0 {
			if err := removeAttempts(ctx, q, ns, attempts); err != nil {
				return err
			}
		}
		n, err := q.DeleteTasks(ctx, pulsedb.DeleteTasksParams{NamespaceID: ns, Ids: held})
		return dbtx.SwappedAll(n, err, removed)
	})
	return removed, err
}

func removeAttempts(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, ids []orbit.ID) error {
	if _, err := q.DeleteEvidence(ctx, pulsedb.DeleteEvidenceParams{NamespaceID: ns, AttemptIds: ids}); err != nil {
		return err
	}
	if _, err := q.DeleteReceipts(ctx, pulsedb.DeleteReceiptsParams{NamespaceID: ns, AttemptIds: ids}); err != nil {
		return err
	}
	n, err := q.DeleteAttempts(ctx, pulsedb.DeleteAttemptsParams{NamespaceID: ns, Ids: ids})
	return dbtx.SwappedAll(n, err, len(ids))
}

// instanceLife is how long an ended incarnation is still listed.
const instanceLife = 7 * 24 * time.Hour

// RetainInstances forgets incarnations that ended long ago and owe no sweep.
func (s *Service) RetainInstances(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	q := pulsedb.New(s.Batch.DB)
	moved := 0
	for _, state := range []orbit.InstanceState{orbit.InstanceSuperseded, orbit.InstanceClosed} {
		due, err := q.DueEndedInstances(ctx, pulsedb.DueEndedInstancesParams{State: state, BeforeAt: now.Add(-instanceLife), Limit: passRows})
		if err != nil {
			return moved, err
		}
		for _, i := range due {
			n, err := q.DeleteInstance(ctx, pulsedb.DeleteInstanceParams{NamespaceID: i.NamespaceID, ID: i.ID})
			if err != nil {
				return moved, err
			}
			moved += int(n)
		}
	}
	return moved, nil
}
