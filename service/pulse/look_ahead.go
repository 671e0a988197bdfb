package pulse

import (
	"context"
	"errors"
	"time"

	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/loop"
)

// alarms are those of the loops whose items have a time.
type alarms struct{ scheduled, fires, leases, deadlines, sweeps, blocked *loop.Alarm }

func newAlarms() alarms {
	return alarms{loop.NewAlarm(), loop.NewAlarm(), loop.NewAlarm(), loop.NewAlarm(), loop.NewAlarm(), loop.NewAlarm()}
}

const (
	// lookAhead is how often a replica looks at what comes due; so much later than its time, at most, a pass learns of an item that
	// another replica wrote.
	lookAhead = 900 * time.Millisecond
	// horizon is how far ahead an alarm is set: past the next look.
	horizon = 2 * lookAhead
	// clockStep is how much later than a time an alarm goes off, lest the database's clock be not quite there.
	clockStep = 2 * time.Millisecond
)

// LookAhead sets the alarms of loops to the first time in the list of each: one statement instead of a pass of each that finds
// nothing. The times are hints; what is due is decided by the passes. It answers how many lists have something that is due now.
func (s *Service) LookAhead(ctx context.Context) (int, error) {
	rows, err := pulsedb.New(s.Batch.DB).DueSoon(ctx)
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 || rows[0].What != "now" {
		return 0, errors.New("the clock is not the first row")
	}
	now := s.Batch.Shift(rows[0].DueAt)
	byList := map[string]*loop.Alarm{
		"scheduled": s.due.scheduled, "fire": s.due.fires, "lease": s.due.leases, "deadline": s.due.deadlines, "sweep": s.due.sweeps, "blocked": s.due.blocked,
	}
	due := 0
	for _, r := range rows[1:] {
		if r.DueAt.Sub(now) > horizon {
			continue
		}
		if !r.DueAt.After(now) {
			due++
		}
		wakeAt(byList[r.What], now, r.DueAt)
	}
	return due, nil
}

// wakeAt has a loop come when an instant of the database's clock is past.
func wakeAt(a *loop.Alarm, now, at time.Time) { a.In(max(0, at.Sub(now)) + clockStep) }
