package pulse

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/loop"
)

// Loops are the background passes of the module, each bounded, each safe on any number of replicas at once.
func (s *Service) Loops() []loop.Loop {
	return []loop.Loop{
		{Name: "wake_waiters", Role: loop.API, Interval: 100 * time.Millisecond, Pass: s.WakeWaiters},
		{Name: "promote_scheduled", Interval: 250 * time.Millisecond, Pass: s.PromoteScheduled, Full: passRows},
		{Name: "fire_schedules", Interval: 500 * time.Millisecond, Pass: s.FireSchedules, Full: passRows},
		{Name: "release_buffered", Interval: 2 * time.Second, Pass: s.ReleaseBuffered, Full: passRows},
		{Name: "recover_leases", Interval: time.Second, Pass: s.RecoverLeases, Full: passRows},
		{Name: "sweep_instances", Interval: time.Second, Pass: s.SweepInstances, Full: passRows},
		{Name: "expire_deadlines", Interval: time.Second, Pass: s.ExpireDeadlines, Full: passRows},
		{Name: "unblock_gates", Interval: time.Second, Pass: s.UnblockGates, Full: passRows},
		{Name: "expire_instances", Interval: 10 * time.Second, Pass: s.ExpireInstances, Full: passRows},
		{Name: "retain_tasks", Interval: 5 * time.Second, Pass: s.RetainTasks, Full: passRows},
		{Name: "retain_occurrences", Interval: 5 * time.Second, Pass: s.RetainOccurrences, Full: passRows},
		{Name: "retain_instances", Interval: 5 * time.Minute, Pass: s.RetainInstances, Full: passRows},
	}
}

// passRows bounds what one pass lists, and txRows what one transaction moves.
const (
	passRows = 500
	txRows   = 100
)

// perNamespace splits a due list, which spans namespaces, into bounded groups of one namespace.
func perNamespace[R any](rows []R, namespace func(R) orbit.ID) [][]R {
	var order []orbit.ID
	by := map[orbit.ID][]R{}
	for _, r := range rows {
		ns := namespace(r)
		if by[ns] == nil {
			order = append(order, ns)
		}
		by[ns] = append(by[ns], r)
	}
	var groups [][]R
	for _, ns := range order {
		for rows := by[ns]; len(rows) > 0; {
			n := min(len(rows), txRows)
			groups, rows = append(groups, rows[:n]), rows[n:]
		}
	}
	return groups
}

// system is the actor of the loops.
var system = orbit.NullID{}

// WakeWaiters is the backstop of long polls: one look a waited queue, whoever made it ready.
func (s *Service) WakeWaiters(ctx context.Context) (int, error) {
	woken := 0
	for _, k := range s.waiters.queues() {
		worth, err := s.isClaimable(ctx, k)
		if err != nil {
			return woken, err
		}
		if worth {
			s.waiters.notify(k, txRows)
			woken++
		}
	}
	return woken, nil
}

// isClaimable tells, by an unlocked look, whether a claim of a queue would find something: there is a ready task, and no pause.
func (s *Service) isClaimable(ctx context.Context, k queueKey) (bool, error) {
	q := pulsedb.New(s.Batch.DB)
	_, err := q.PeekReady(ctx, pulsedb.PeekReadyParams{NamespaceID: k.namespaceID, QueueID: k.queueID})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	gates, err := peekGates(ctx, q, k.namespaceID)
	return !gates.closedForQueue(k.queueID), err
}

// parts moves ids together or, if a row of theirs is held for too long, each by itself: a held one is passed over and harms no other.
func parts(ids []orbit.ID, move func(ids []orbit.ID) (int, error)) (int, error) {
	n, err := move(ids)
	switch {
	case !dbtx.IsLockWait(err):
		return n, err
	case len(ids) == 1:
		return 0, nil
	}
	moved := 0
	for i := range ids {
		n, err := parts(ids[i:i+1], move)
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}
