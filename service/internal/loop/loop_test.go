package loop

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// steps runs a loop in a bubble for as many passes as there are answers, and gives the pauses before each.
func steps(t *testing.T, l Loop, answers ...func() (int, error)) (pauses []time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	last := time.Now()
	l.Pass = func(context.Context) (int, error) {
		pauses = append(pauses, time.Since(last))
		last = time.Now()
		if len(pauses) == len(answers) {
			stop()
		}
		return answers[len(pauses)-1]()
	}
	Run(ctx, []Loop{l}, slog.New(slog.DiscardHandler), nil)
	return pauses
}

func moved(n int) func() (int, error) { return func() (int, error) { return n, nil } }

func wantPauses(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d passes, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] < want[i]-want[i]/10 || got[i] > want[i]+want[i]/10+time.Millisecond {
			t.Errorf("pause %d is %s, want about %s: %s", i, got[i], want[i], got)
		}
	}
}

func TestPausesDoubleWhileNothingMovesAndEndWithWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Loop{Interval: 100 * time.Millisecond, Idle: 500 * time.Millisecond, Full: 10}
		got := steps(t, l, moved(0), moved(0), moved(0), moved(0), moved(1), moved(0), moved(10), moved(9), moved(0))
		const ms = time.Millisecond
		wantPauses(t, got, 100*ms, 200*ms, 400*ms, 500*ms, 500*ms, 100*ms, 200*ms, 0, 100*ms)
	})
}

func TestALoopWithoutIdleKeepsItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wantPauses(t, steps(t, Loop{Interval: time.Minute}, moved(0), moved(0), moved(3)), time.Minute, time.Minute, time.Minute)
	})
}

func TestAnAlarmEndsAPauseButNotTheLeastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Loop{Interval: 100 * time.Millisecond, Idle: 10 * time.Second, Wake: NewAlarm()}
		rings := func(d time.Duration) func() (int, error) {
			return func() (int, error) { l.Wake.In(d); return 0, nil }
		}
		got := steps(t, l,
			moved(0), moved(0), // 100, then 200 ms
			rings(300*time.Millisecond), // 400 ms are due, and are cut to 300
			rings(0),                    // the doubling began anew; the least pause is not cut
			moved(0))
		const ms = time.Millisecond
		wantPauses(t, got, 100*ms, 200*ms, 400*ms, 300*ms, 100*ms)
	})
}

func TestAnAlarmGoesOffAtTheEarliestOfItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAlarm()
		begin := time.Now()
		a.In(time.Hour)
		a.In(time.Second)
		a.In(time.Minute)
		<-a.rung()
		if took := time.Since(begin); took != time.Second {
			t.Fatalf("it went off after %s, want 1s", took)
		}
		a.In(time.Minute)
		<-a.rung()
		if took := time.Since(begin); took != 61*time.Second {
			t.Fatalf("it went off again after %s, want 61s", took)
		}
	})
}

func TestRunGoesOnAfterFailureAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		passes := 0
		var out bytes.Buffer
		l := Loop{Name: "x", Interval: time.Millisecond, Wake: NewAlarm()}
		begin := time.Now()
		l.Pass = func(context.Context) (int, error) {
			passes++
			l.Wake.In(0)
			switch passes {
			case 1:
				return 0, errors.New("first")
			case 2:
				panic("second")
			case 4:
				stop()
			}
			return 1, nil
		}
		observed := 0
		Run(ctx, []Loop{l}, slog.New(slog.NewTextHandler(&out, nil)), func(string, int, time.Duration, error) { observed++ })
		if passes != 4 || observed != passes {
			t.Fatalf("%d passes, %d observed; want 4, each observed", passes, observed)
		}
		if took := time.Since(begin); took < 1800*time.Millisecond {
			t.Errorf("two failures were tried again within %s, want about a second after each", took)
		}
		text := out.String()
		if strings.Count(text, "loop pass failed") != 1 || !strings.Contains(text, "loop works again") || !strings.Contains(text, "failures=2") {
			t.Errorf("log of a row of two failures:\n%s", text)
		}
	})
}
