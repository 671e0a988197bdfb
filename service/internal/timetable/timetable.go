// Package timetable says when a schedule fires. Everything in it is a pure function of a specification and an instant: no clock is read,
// nothing is remembered, and the zone database is part of the program.
//
// A wall time is what the clocks of a zone show. A fixed wall time (a calendar entry, or a cron expression whose second, minute and hour
// all name numbers) is meant once a day of the clocks, and Gap and Overlap say what becomes of it where clocks are changed. A
// moving one (the second, the minute or the hour begins with *) is meant every so often: it fires at each instant at which the clocks
// match, so that the real time between fires goes on through a change. Intervals and one-shots are instants and know no zone.
package timetable

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/orbit-run/orbit"
)

// Gap is what becomes of a fixed wall time that the clocks skip.
type Gap string

// The values of Gap.
const (
	GapShift Gap = "shift" // it fires at the instant the gap ends
	GapSkip  Gap = "skip"  // it does not fire
)

// Overlap is what becomes of a fixed wall time that the clocks show twice.
type Overlap string

// The values of Overlap.
const (
	OverlapFirst  Overlap = "first"  // it fires the first time
	OverlapSecond Overlap = "second" // it fires the last time
	OverlapBoth   Overlap = "both"   // it fires each time
)

// Spec is a timetable as it is kept. Exactly one of Cron, EveryMs, Calendar and At is set.
type Spec struct {
	Cron     string     `json:"cron,omitempty"`     // 5 or 6 fields, a macro, or @every with a duration
	EveryMs  int64      `json:"every_ms,omitempty"` // at the instants PhaseMs + k·EveryMs since 1970, milliseconds
	PhaseMs  int64      `json:"phase_ms,omitempty"`
	Calendar []string   `json:"calendar,omitempty"` // wall times, as 2006-01-02T15:04 or 2006-01-02T15:04:05
	At       *time.Time `json:"at,omitempty"`       // one instant

	Zone     string     `json:"zone"`    // IANA name; what Cron and Calendar are read in
	Gap      Gap        `json:"gap"`     // of fixed wall times
	Overlap  Overlap    `json:"overlap"` // of fixed wall times
	StartsAt *time.Time `json:"starts_at,omitempty"`
	EndsAt   *time.Time `json:"endsat,omitempty"` // fires before it only
}

// Bounds of a specification.
const (
	MinEvery    = time.Second
	MaxEvery    = 3650 * 24 * time.Hour
	MaxCalendar = 1000
	maxCron     = 256
)

// Invalid is why a specification is none.
type Invalid struct {
	Member string // its JSON name
	Code   string
	Detail string
}

func (i *Invalid) Error() string { return i.Member + ": " + i.Detail }

// Timetable is a specification that can be asked. It is immutable and safe for concurrent use.
type Timetable struct {
	spec         Spec
	clocks       *clocks
	walls        walls // nil for instants
	moving       bool
	everyUs      int64 // 0 unless an interval
	phaseUs      int64
	at           *time.Time
	starts, ends *time.Time
}

// New checks a specification; what is wrong with it is *Invalid. Whether it ever fires is for Next to say.
func New(s Spec) (*Timetable, error) {
	t := &Timetable{spec: s, starts: s.StartsAt, ends: s.EndsAt}
	if n := set(s.Cron != "") + set(s.EveryMs != 0) + set(len(s.Calendar) > 0) + set(s.At != nil); n != 1 {
		return nil, &Invalid{"cron", "one_of", "a timetable has exactly one of cron, every_ms, calendar and at"}
	}
	if s.StartsAt != nil && s.EndsAt != nil && !s.EndsAt.After(*s.StartsAt) {
		return nil, &Invalid{"ends_at", "not_after_start", "ends_at must be after starts_at"}
	}
	if s.PhaseMs != 0 && s.EveryMs == 0 {
		return nil, &Invalid{"phase_ms", "one_of", "phase_ms belongs to every_ms"}
	}
	clocks, err := clocksOf(s.Zone)
	if err != nil {
		return nil, &Invalid{"zone", "unknown_zone", err.Error()}
	}
	t.clocks = clocks
	if !slices.Contains([]Gap{GapShift, GapSkip}, s.Gap) {
		return nil, &Invalid{"gap", "enum", "gap is shift or skip"}
	}
	if !slices.Contains([]Overlap{OverlapFirst, OverlapSecond, OverlapBoth}, s.Overlap) {
		return nil, &Invalid{"overlap", "enum", "overlap is first, second or both"}
	}
	switch {
	case s.At != nil:
		at := s.At.UTC().Truncate(time.Microsecond)
		t.at = &at
		return t, nil
	case s.EveryMs != 0:
		return t, t.setInterval(time.Duration(s.EveryMs)*time.Millisecond, s.PhaseMs, "every_ms")
	case len(s.Calendar) > 0:
		return t, t.setCalendar(s.Calendar)
	}
	return t, t.setCron(s.Cron)
}

func set(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (t *Timetable) setInterval(every time.Duration, phaseMs int64, member string) error {
	switch {
	case every < MinEvery || every > MaxEvery || every%time.Millisecond != 0:
		return &Invalid{member, "out_of_range", "an interval is whole milliseconds from 1 s to 3,650 days"}
	case phaseMs < 0 || phaseMs >= every.Milliseconds():
		return &Invalid{"phase_ms", "out_of_range", "the phase is at least 0 and less than the interval"}
	}
	t.everyUs, t.phaseUs = every.Microseconds(), phaseMs*1000
	return nil
}

func (t *Timetable) setCron(text string) error {
	if len(text) > maxCron {
		return &Invalid{"cron", "too_long", "a cron expression has at most 256 characters"}
	}
	if rest, ok := strings.CutPrefix(text, "@every "); ok {
		every, err := time.ParseDuration(strings.TrimSpace(rest))
		if err != nil {
			return &Invalid{"cron", "cron", "@every takes a duration such as 90s, 15m or 1h30m"}
		}
		return t.setInterval(every, 0, "cron")
	}
	f, moving, err := parseCron(text)
	if err != nil {
		return &Invalid{"cron", "cron", err.Error()}
	}
	t.walls, t.moving = f, moving
	return nil
}

// list is a sorted set of wall times.
type list []int64

func (l list) next(from, to int64) (int64, bool) {
	i, _ := slices.BinarySearch(l, from)
	if i == len(l) || l[i] >= to {
		return 0, false
	}
	return l[i], true
}

func (t *Timetable) setCalendar(entries []string) error {
	if len(entries) > MaxCalendar {
		return &Invalid{"calendar", "too_long", "a calendar has at most 1,000 entries"}
	}
	l := make(list, 0, len(entries))
	for _, e := range entries {
		wall, err := time.Parse("2006-01-02T15:04:05", e)
		if err != nil {
			wall, err = time.Parse("2006-01-02T15:04", e)
		}
		if err != nil || strings.ContainsAny(e, ".,") || wall.Year() < 1970 {
			return &Invalid{"calendar", "wall_time", "an entry is a date and a time of the zone's clocks from 1970 on, as 2026-12-24T18:00 or 2026-12-24T18:00:30"}
		}
		l = append(l, wall.Unix())
	}
	slices.Sort(l)
	t.walls = slices.Compact(l)
	return nil
}

// Location is the zone the timetable is read in.
func (t *Timetable) Location() *time.Location { return t.clocks.zone }

// Next gives the first fire after an instant; false if there is none, or none within 50 years. Fires of cron and calendar are on whole seconds, those
// of intervals on whole milliseconds, all in UTC.
func (t *Timetable) Next(after time.Time) (time.Time, bool) {
	if t.starts != nil && after.Before(*t.starts) {
		after = t.starts.Add(-time.Microsecond)
	}
	var at time.Time
	ok := true
	switch {
	case t.at != nil:
		at, ok = *t.at, t.at.After(after)
	case t.everyUs != 0:
		k := floorDiv(after.UnixMicro()-t.phaseUs, t.everyUs) + 1
		at = time.UnixMicro(t.phaseUs + k*t.everyUs).UTC()
	default:
		at, ok = t.nextWall(after.Unix() + 1)
	}
	if !ok || t.ends != nil && !at.Before(*t.ends) || at.Year() > 9999 {
		return time.Time{}, false
	}
	return at, true
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// never is after every wall time.
const never = 1 << 62

// nextWall goes from segment to segment of the zone's offset; within one, wall time runs as real time does.
func (t *Timetable) nextWall(from int64) (time.Time, bool) {
	for {
		s := t.clocks.segmentAt(from)
		// The next wall time of the set, whatever the clocks do until then: what lies before it may be passed over. No clock
		// goes back, or on, by more than a day.
		first, ok := t.walls.next(from+s.offset-day, never)
		if !ok {
			return time.Time{}, false
		}
		if near := first - 2*day; near > from {
			from = near
			s = t.clocks.segmentAt(from)
		}
		if from == s.start && t.shifts(s) {
			return time.Unix(from, 0).UTC(), true
		}
		wall, ok := t.walls.next(from+s.offset, s.end+s.offset)
		switch {
		case !ok:
			from = s.end
		case t.meant(wall, wall-s.offset):
			return time.Unix(wall-s.offset, 0).UTC(), true
		default:
			from = wall - s.offset + 1
		}
	}
}

// shifts tells whether the beginning of a segment ends a gap in which there is a wall time that fires then.
func (t *Timetable) shifts(s segment) bool {
	if t.moving || t.spec.Gap == GapSkip {
		return false
	}
	for wall := s.start + t.clocks.offset(s.start-1); ; wall++ {
		var ok bool
		if wall, ok = t.walls.next(wall, s.start+s.offset); !ok {
			return false
		}
		if len(t.clocks.instantsOf(wall)) == 0 {
			return true
		}
	}
}

// meant tells whether a wall time fires at this one of its instants.
func (t *Timetable) meant(wall, at int64) bool {
	if t.moving || t.spec.Overlap == OverlapBoth {
		return true
	}
	instants := t.clocks.instantsOf(wall)
	if t.spec.Overlap == OverlapSecond {
		return at == instants[len(instants)-1]
	}
	return at == instants[0]
}

// Jitter spreads the runs of instants over a span: the delay of one instant of one schedule, at least 0 and less than the span, in whole
// milliseconds. It is the same for whoever asks and whenever.
func Jitter(schedule orbit.ID, at time.Time, span time.Duration) time.Duration {
	if span < time.Millisecond {
		return 0
	}
	h := sha256.Sum256(binary.BigEndian.AppendUint64(schedule[:], uint64(at.UnixMicro())))
	return time.Duration(binary.BigEndian.Uint64(h[:8])%uint64(span.Milliseconds())) * time.Millisecond
}
