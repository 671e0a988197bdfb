package loop

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	l := Loop{Interval: 100 * time.Millisecond, Idle: 400 * time.Millisecond, Full: 10}
	failed := errors.New("no")
	for name, c := range map[string]struct {
		moved int
		err   error
		want  time.Duration
	}{
		"full":            {10, nil, 0},
		"some":            {9, nil, 100 * time.Millisecond},
		"none":            {0, nil, 400 * time.Millisecond},
		"failed":          {0, failed, time.Second},
		"full and failed": {10, failed, time.Second},
	} {
		got := l.pause(c.moved, c.err)
		if got < c.want-c.want/10 || got > c.want+c.want/10 {
			t.Errorf("%s: %s, want about %s", name, got, c.want)
		}
	}
	if got := (Loop{Interval: time.Minute}).pause(0, failed); got < 54*time.Second {
		t.Errorf("a slow loop that failed pauses %s, want about a minute", got)
	}
}

func TestRunGoesOnAfterFailureAndPanic(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	passes := 0
	wake := make(chan struct{}, 2)
	var out bytes.Buffer
	l := Loop{Name: "x", Interval: time.Millisecond, Wake: wake, Pass: func(context.Context) (int, error) {
		passes++
		wake <- struct{}{}
		switch passes {
		case 1:
			return 0, errors.New("first")
		case 2:
			panic("second")
		case 4:
			stop()
		}
		return 1, nil
	}}
	observed := 0
	Run(ctx, []Loop{l}, slog.New(slog.NewTextHandler(&out, nil)), func(string, int, time.Duration, error) { observed++ })
	if passes < 4 || observed != passes {
		t.Fatalf("%d passes, %d observed; want at least 4, each observed", passes, observed)
	}
	text := out.String()
	if strings.Count(text, "loop pass failed") != 1 || !strings.Contains(text, "loop works again") || !strings.Contains(text, "failures=2") {
		t.Errorf("log of a row of two failures:\n%s", text)
	}
}
