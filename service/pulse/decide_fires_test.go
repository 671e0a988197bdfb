package pulse

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/timetable"
)

// Whatever the limit of one look, look after look deals with every due instant once and in order, and ends at the first that is to come.
func TestPlansDealWithEveryInstantOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Int64Range(1, 600).Draw(t, "every") * 1000
		table, err := timetable.New(timetable.Spec{EveryMs: every, Zone: "UTC", Gap: timetable.GapShift, Overlap: timetable.OverlapFirst})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.UnixMicro(1_800_000_000_000_000 + rapid.Int64Range(0, 1e9).Draw(t, "begin")).UTC()
		now := begin.Add(time.Duration(rapid.Int64Range(0, 3_600_000_000).Draw(t, "passed")) * time.Microsecond)
		window := time.Duration(rapid.IntRange(60, 3600).Draw(t, "window")) * time.Second
		most, limit := rapid.IntRange(0, 100).Draw(t, "most"), rapid.IntRange(1, 50).Draw(t, "limit")
		watermark, madeUp := begin, 0
		want, _ := table.Next(begin)
		for looks := 0; ; looks++ {
			p := planFires(table, watermark, now, window, most, limit)
			if len(p.due) > limit {
				t.Fatalf("%d instants, the limit is %d", len(p.due), limit)
			}
			for _, due := range p.due {
				if !due.at.Equal(want) || due.at.After(now) {
					t.Fatalf("%s is due, want %s", due.at, want)
				}
				late := due.at.Before(now.Add(-punctual))
				switch {
				case due.at.Before(now.Add(-window)) != (due.code == codeTooOld):
					t.Fatalf("%s is %q, the window begins at %s", due.at, due.code, now.Add(-window))
				case !late && due.code != "":
					t.Fatalf("%s is in time, and %s", due.at, due.code)
				case late && due.code == "":
					madeUp++
				case madeUp > 0 && late:
					t.Fatalf("%s is %s, though an earlier instant was made up for", due.at, due.code)
				}
				want, _ = table.Next(due.at)
			}
			if p.next == nil || !p.next.Equal(want) {
				t.Fatalf("%v comes next, want %s", p.next, want)
			}
			watermark = p.watermark(watermark)
			if p.next.After(now) {
				break
			}
		}
		if madeUp > most {
			t.Fatalf("%d late instants were made up for, at most %d should be", madeUp, most)
		}
	})
}

func TestInstantsKeepToTheirPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]orbit.RunOverlap{orbit.RunSkip, orbit.RunBufferOne, orbit.RunBufferAll, orbit.RunAllow, orbit.RunCancelRunning}).Draw(t, "policy")
		live, buffered := 0, 0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "end") && live > 0 {
				if live--; live == 0 && buffered > 0 {
					live, buffered = 1, buffered-1
				}
				continue
			}
			if policy == orbit.RunCancelRunning {
				buffered = 0 // given up before
			}
			outcome, code := decideInstant(policy, live, buffered)
			if (code == "") != (outcome == orbit.OccurrenceFired || outcome == orbit.OccurrenceBuffered) {
				t.Fatalf("%s with the code %q", outcome, code)
			}
			switch outcome {
			case orbit.OccurrenceFired:
				live++
			case orbit.OccurrenceBuffered:
				buffered++
			}
			switch {
			case live == 0:
				t.Fatalf("%s: nothing runs, and an instant is %s", policy, outcome)
			case policy != orbit.RunAllow && live > 1:
				t.Fatalf("%s: %d run at once", policy, live)
			case policy == orbit.RunAllow && outcome != orbit.OccurrenceFired, policy == orbit.RunSkip && buffered > 0,
				(policy == orbit.RunBufferOne || policy == orbit.RunCancelRunning) && buffered > 1:
				t.Fatalf("%s: %s, %d run, %d wait", policy, outcome, live, buffered)
			}
		}
	})
	if outcome, code := decideInstant(orbit.RunBufferAll, 1, maxBuffered); outcome != orbit.OccurrenceSkipped || code != codeBufferFull {
		t.Errorf("a full buffer: %s %s", outcome, code)
	}
}
