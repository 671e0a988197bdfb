package pulse

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// RecoverLeases ends offers and leases whose time is past: an offer goes back to its queue, a started attempt is lost, by the queue's
// policy for unknown outcomes. Only this swap ends a lease; a heartbeat or a result that comes before it still counts.
//
// A replica judges only what it could have seen renewed: it must have been alive without a gap, on one database server, for as
// long as the lease. After an outage of the service or the database nothing is lost until workers had their time to come back.
func (s *Service) RecoverLeases(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	fresh, err := s.Fresh(ctx, s.Batch.DB, now)
	if err != nil {
		return 0, err
	}
	due, err := pulsedb.New(s.Batch.DB).DueLeases(ctx, pulsedb.DueLeasesParams{NowAt: now, Limit: passRows, FreshMs: fresh.Milliseconds()})
	if err != nil {
		return 0, err
	}
	moved := 0
	for _, group := range perNamespace(due, func(r pulsedb.DueLeasesRow) orbit.ID { return r.NamespaceID }) {
		ids := make([]orbit.ID, len(group))
		for i, r := range group {
			ids[i] = r.ID
		}
		n, err := s.endLive(ctx, "recoverLeases", group[0].NamespaceID, ids, func(e ending, now time.Time, fresh time.Duration) (ending, bool) {
			if e.attempt.LeaseUntil.After(now) || time.Duration(e.attempt.LeaseMs)*time.Millisecond > fresh {
				return e, false
			}
			if e.attempt.State == orbit.AttemptOffered {
				return decideUnstarted(e, orbit.AttemptExpired, codeOfferExpired, true), true
			}
			return decideLost(e, codeLeaseLost), true
		})
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// judge says what becomes of a live attempt, at a time and by a replica that has been fresh for so long; false leaves it alone.
type judge func(e ending, now time.Time, fresh time.Duration) (ending, bool)

// endLive ends live attempts of a namespace as decide says. Those that are held elsewhere, or over, or that decide leaves alone, are
// skipped: the next pass sees them again.
func (s *Service) endLive(ctx context.Context, op string, ns orbit.ID, ids []orbit.ID, decide judge) (int, error) {
	return parts(ids, func(ids []orbit.ID) (int, error) { return s.endTogether(ctx, op, ns, ids, decide) })
}

func (s *Service) endTogether(ctx context.Context, op string, ns orbit.ID, ids []orbit.ID, decide judge) (int, error) {
	moved := 0
	err := s.Batch.Run(ctx, op, func(ctx context.Context, tx *dbtx.Tx) error {
		moved = 0
		q := pulsedb.New(tx)
		held, err := q.LockAttempts(ctx, pulsedb.LockAttemptsParams{NamespaceID: ns, Ids: ids})
		if err != nil {
			return err
		}
		fresh, err := s.Fresh(ctx, tx, tx.Now) // of the server that this very transaction is on
		if err != nil {
			return err
		}
		var decided []ending
		for _, r := range held {
			if r.PulseAttempt.EndedAt != nil {
				continue
			}
			if e, ok := decide(endingOf(r), tx.Now, fresh); ok {
				decided = append(decided, e)
			}
		}
		moved = len(decided)
		return s.settle(ctx, tx, ns, decided)
	})
	return moved, err
}

// SweepInstances ends what superseded and closed incarnations left: their offers go back, their started attempts are lost. The fence
// lets nothing new of theirs begin, so that an empty list is final.
func (s *Service) SweepInstances(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	q := pulsedb.New(s.Batch.DB)
	due, err := q.DueSweeps(ctx, pulsedb.DueSweepsParams{NowAt: now, Limit: txRows})
	if err != nil {
		return 0, err
	}
	moved := 0
	for _, i := range due {
		ids, err := q.ListInstanceAttempts(ctx, pulsedb.ListInstanceAttemptsParams{NamespaceID: i.NamespaceID, InstanceID: i.ID.Null(), Limit: txRows})
		if err != nil {
			return moved, err
		}
		if len(ids) == 0 {
			if _, err := q.SweepDone(ctx, pulsedb.SweepDoneParams{NamespaceID: i.NamespaceID, ID: i.ID}); err != nil {
				return moved, err
			}
			continue
		}
		n, err := s.endLive(ctx, "sweepInstances", i.NamespaceID, ids, func(e ending, _ time.Time, _ time.Duration) (ending, bool) {
			if e.attempt.State == orbit.AttemptOffered {
				return decideUnstarted(e, orbit.AttemptReleased, codeSuperseded, true), true
			}
			return decideLost(e, codeSuperseded), true
		})
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// ExpireInstances shows incarnations without a sign of life as expired. Their leases end by themselves; a heartbeat revives them while their
// epoch is current.
func (s *Service) ExpireInstances(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	q := pulsedb.New(s.Batch.DB)
	since := now.Add(-silence)
	due, err := q.DueSilentInstances(ctx, pulsedb.DueSilentInstancesParams{SilentSince: since, Limit: passRows})
	if err != nil {
		return 0, err
	}
	for _, i := range due {
		if _, err := q.ExpireInstance(ctx, pulsedb.ExpireInstanceParams{NamespaceID: i.NamespaceID, ID: i.ID, SilentSince: since}); err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

// ExpireDeadlines fails open tasks whose deadline is past, with their live attempt; its worker learns at its next heartbeat. A task in
// review does not end by a deadline.
func (s *Service) ExpireDeadlines(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	due, err := pulsedb.New(s.Batch.DB).DueDeadlines(ctx, pulsedb.DueDeadlinesParams{NowAt: now, Limit: passRows})
	if err != nil {
		return 0, err
	}
	rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] }) // so that replicas do not wait for each other row by row
	moved := 0
	for _, group := range perNamespace(due, func(r pulsedb.DueDeadlinesRow) orbit.ID { return r.NamespaceID }) {
		ids := make([]orbit.ID, len(group))
		for i, r := range group {
			ids[i] = r.TaskID
		}
		n, err := parts(ids, func(ids []orbit.ID) (int, error) { return s.failOverdue(ctx, group[0].NamespaceID, ids) })
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// failOverdue fails tasks of a namespace in one transaction. One that somebody moved meanwhile is passed over: should it still be due, the
// next pass sees it again.
func (s *Service) failOverdue(ctx context.Context, ns orbit.ID, ids []orbit.ID) (int, error) {
	moved := 0
	err := s.Batch.Run(ctx, "expireDeadlines", func(ctx context.Context, tx *dbtx.Tx) error {
		moved = 0
		for _, id := range ids {
			l, err := takeLicence(ctx, pulsedb.New(tx), ns, id)
			var gone *fault.Fault
			if errors.Is(err, dbtx.ErrLost) || errors.As(err, &gone) {
				continue
			}
			if err != nil {
				return err
			}
			if l.task.DeadlineAt == nil || l.task.DeadlineAt.After(tx.Now) {
				return errOtherDeadline
			}
			if err := s.endTask(ctx, tx, ns, system, l, fateFail, codeDeadlineExceeded, textDeadlineExceeded); err != nil {
				return err
			}
			moved++
		}
		return nil
	})
	if errors.Is(err, errOtherDeadline) {
		return 0, nil
	}
	return moved, err
}

// errOtherDeadline abandons a transaction that took the licence of a task which was reopened meanwhile; the next pass sees the others again.
var errOtherDeadline = errors.New("the deadline is another one")
