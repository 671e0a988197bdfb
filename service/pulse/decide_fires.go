package pulse

import (
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/timetable"
)

// Why an instant did not fire.
const (
	codeRunning    = "running"     // the task of an earlier instant has not ended
	codeBuffered   = "buffered"    // an earlier instant waits already
	codeBufferFull = "buffer_full" // so many instants wait already
	codeOvertaken  = "superseded"  // a later instant came before it could begin
	codeArchived   = "archived"    // the schedule ended
	codeTooOld     = "too_old"     // older than the catch-up window
	codeTooMany    = "too_many"    // more than catch_up_max were late
)

const (
	// punctual is how late an instant may be dealt with and still not count as made up for.
	punctual = time.Minute
	// maxLook bounds the instants that one look at a schedule goes through.
	maxLook = 100_000
	// maxBuffered bounds the occurrences of one schedule that wait.
	maxBuffered = 1000
)

// instant is one that is due; with a code it is missed.
type instant struct {
	at   time.Time
	code string
}

// plan is what is to be done about a schedule's due instants, up to a limit, and where that leaves it.
type plan struct {
	due  []instant
	next *time.Time // the first instant after those
}

// watermark is where the plan leaves the schedule, which was at from.
func (p plan) watermark(from time.Time) time.Time {
	if n := len(p.due); n > 0 {
		return p.due[n-1].at
	}
	return from
}

// planFires decides which instants after the watermark are due, and which of those come too late: those older than the window, and of those
// that are not punctual all but the latest catchUpMax.
func planFires(t *timetable.Timetable, watermark, now time.Time, window time.Duration, catchUpMax, limit int) plan {
	var all []instant
	late := 0 // within the window
	at, ok := t.Next(watermark)
	for ; ok && !at.After(now) && len(all) < maxLook; at, ok = t.Next(at) {
		i := instant{at: at}
		switch {
		case at.Before(now.Add(-window)):
			i.code = codeTooOld
		case at.Before(now.Add(-punctual)):
			late++
		}
		all = append(all, i)
	}
	for i := range all {
		if late <= catchUpMax {
			break
		}
		if all[i].code == "" {
			all[i].code = codeTooMany
			late--
		}
	}
	p := plan{due: all}
	if len(all) > limit {
		p.due, p.next = all[:limit], &all[limit].at
	} else if ok {
		p.next = &at
	}
	return p
}

// decideInstant says what an instant does while so many tasks of its schedule have not ended and so many instants wait. With
// cancel_running what can be cancelled was, and nothing waits.
func decideInstant(policy orbit.RunOverlap, live, buffered int) (orbit.OccurrenceOutcome, string) {
	busy := codeRunning
	if live == 0 {
		busy = codeBuffered
	}
	switch {
	case policy == orbit.RunAllow || live == 0 && buffered == 0:
		return orbit.OccurrenceFired, ""
	case policy == orbit.RunSkip:
		return orbit.OccurrenceSkipped, busy
	case policy == orbit.RunBufferOne && buffered > 0:
		return orbit.OccurrenceSkipped, codeBuffered
	case buffered >= maxBuffered:
		return orbit.OccurrenceSkipped, codeBufferFull
	}
	return orbit.OccurrenceBuffered, ""
}
