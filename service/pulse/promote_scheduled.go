package pulse

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// PromoteScheduled makes due tasks ready. The scheduled row's deletion is the licence: what a cancel or a rival pass took is skipped. The
// task row is not written.
func (s *Service) PromoteScheduled(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	due, err := pulsedb.New(s.Batch.DB).DueScheduled(ctx, pulsedb.DueScheduledParams{NowAt: now, Limit: passRows})
	if err != nil {
		return 0, err
	}
	moved := 0
	for _, group := range perNamespace(due, func(r pulsedb.DueScheduledRow) orbit.ID { return r.NamespaceID }) {
		n, err := s.promote(ctx, group)
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// promote makes rows of one namespace ready, in order of their due times. Rows that are held elsewhere are left for the next pass.
func (s *Service) promote(ctx context.Context, due []pulsedb.DueScheduledRow) (int, error) {
	ns := due[0].NamespaceID
	ids := make([]orbit.ID, len(due))
	for i, r := range due {
		ids[i] = r.TaskID
	}
	moved := 0
	err := s.Batch.Run(ctx, "promoteScheduled", func(ctx context.Context, tx *dbtx.Tx) error {
		moved = 0
		q := pulsedb.New(tx)
		held, err := q.LockScheduled(ctx, pulsedb.LockScheduledParams{FromAt: due[0].DueAt, ToAt: due[len(due)-1].DueAt, NamespaceID: ns, TaskIds: ids})
		if err != nil {
			return err
		}
		rows := make([]workingRow, len(held))
		for i, r := range held {
			if _, err := pulsedb.New(tx.Later(1)).TakeScheduled(ctx, pulsedb.TakeScheduledParams{DueAt: r.DueAt, NamespaceID: ns, TaskID: r.TaskID}); err != nil {
				return err
			}
			rows[i] = workingRow{taskID: r.TaskID, queueID: r.QueueID, priority: r.Priority, rankUs: r.RankUs, runAt: tx.Now}
		}
		moved = len(held)
		return s.insertWorkingRows(tx, ns, rows)
	})
	return moved, err
}

// UnblockGates makes tasks ready whose gate is open again. Should it close at that moment, their start is refused again.
func (s *Service) UnblockGates(ctx context.Context) (int, error) {
	moved := 0
	page := pulsedb.DueBlockersParams{Limit: passRows}
	for {
		blockers, err := pulsedb.New(s.Batch.DB).DueBlockers(ctx, page)
		if err != nil {
			return moved, err
		}
		for _, b := range blockers {
			n, err := s.unblockIfOpen(ctx, b)
			moved += n
			if err != nil {
				return moved, err
			}
			page.NamespaceID, page.BlockerKind, page.BlockerID = b.NamespaceID, b.BlockerKind, b.BlockerID
		}
		if len(blockers) < passRows {
			return moved, nil
		}
	}
}

func (s *Service) unblockIfOpen(ctx context.Context, b pulsedb.DueBlockersRow) (int, error) {
	open, err := s.gateIsOpen(ctx, b)
	if err != nil || !open {
		return 0, err
	}
	moved := 0
	for moved < passRows {
		n, err := s.unblock(ctx, b)
		moved += n
		if err != nil || n < txRows {
			return moved, err
		}
	}
	return moved, nil
}

func (s *Service) gateIsOpen(ctx context.Context, b pulsedb.DueBlockersRow) (bool, error) {
	scope, scopeID, _ := strings.Cut(b.BlockerID, ":")
	gate, err := pulsedb.New(s.Batch.DB).GetGate(ctx, pulsedb.GetGateParams{NamespaceID: b.NamespaceID, Scope: orbit.GateScope(scope), ScopeID: scopeID})
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return gate.State == orbit.GateOpen, err
}

func (s *Service) unblock(ctx context.Context, b pulsedb.DueBlockersRow) (int, error) {
	moved := 0
	err := s.Batch.Run(ctx, "unblockGates", func(ctx context.Context, tx *dbtx.Tx) error {
		q := pulsedb.New(tx)
		held, err := q.LockBlocked(ctx, pulsedb.LockBlockedParams{NamespaceID: b.NamespaceID, BlockerKind: b.BlockerKind, BlockerID: b.BlockerID, Limit: txRows})
		moved = len(held)
		if err != nil || moved == 0 {
			return err
		}
		ids := make([]orbit.ID, moved)
		rows := make([]workingRow, moved)
		for i, r := range held {
			ids[i] = r.TaskID
			rows[i] = workingRow{taskID: r.TaskID, queueID: r.QueueID, priority: r.Priority, rankUs: r.RankUs, runAt: tx.Now}
		}
		n, err := q.DeleteBlocked(ctx, pulsedb.DeleteBlockedParams{NamespaceID: b.NamespaceID, TaskIds: ids})
		if err := dbtx.SwappedAll(n, err, moved); err != nil {
			return err
		}
		return s.insertWorkingRows(tx, b.NamespaceID, rows)
	})
	return moved, err
}
