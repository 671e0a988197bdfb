package pulse

import (
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/loop"
)

// Loops are the background passes of the module, each bounded, each safe on any number of replicas at once. Those whose items have a time
// rest until look_ahead, or whoever writes such an item, sets their alarm.
func (s *Service) Loops() []loop.Loop {
	return []loop.Loop{
		{Name: "wake_waiters", Role: loop.API, Interval: peekPace, Idle: peekIdle, Pass: s.WakeWaiters, Wake: s.waiters.peek},
		{Name: "attend_waiters", Role: loop.API, Interval: attendPace, Pass: s.AttendWaiters},
		{Name: "look_ahead", Interval: lookAhead, Pass: s.LookAhead},
		{Name: "promote_scheduled", Interval: 100 * time.Millisecond, Idle: rest, Pass: s.PromoteScheduled, Full: passRows, Wake: s.due.scheduled},
		{Name: "fire_schedules", Interval: 100 * time.Millisecond, Idle: rest, Pass: s.FireSchedules, Full: passRows, Wake: s.due.fires},
		{Name: "release_buffered", Interval: 2 * time.Second, Idle: 5 * time.Second, Pass: s.ReleaseBuffered, Full: passRows},
		{Name: "recover_leases", Interval: time.Second, Idle: rest, Pass: s.RecoverLeases, Full: passRows, Wake: s.due.leases},
		{Name: "sweep_instances", Interval: time.Second, Idle: rest, Pass: s.SweepInstances, Full: passRows, Wake: s.due.sweeps},
		{Name: "expire_deadlines", Interval: time.Second, Idle: rest, Pass: s.ExpireDeadlines, Full: passRows, Wake: s.due.deadlines},
		{Name: "unblock_gates", Interval: time.Second, Idle: rest, Pass: s.UnblockGates, Full: passRows, Wake: s.due.blocked},
		{Name: "expire_instances", Interval: 10 * time.Second, Idle: 20 * time.Second, Pass: s.ExpireInstances, Full: passRows},
		{Name: "retain_tasks", Interval: 5 * time.Second, Idle: time.Minute, Pass: s.RetainTasks, Full: passRows},
		{Name: "retain_occurrences", Interval: 5 * time.Second, Idle: time.Minute, Pass: s.RetainOccurrences, Full: passRows},
		{Name: "retain_instances", Interval: 5 * time.Minute, Pass: s.RetainInstances, Full: passRows},
	}
}

// rest is the longest pause of a loop that has an alarm, should none go off.
const rest = 30 * time.Second

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
