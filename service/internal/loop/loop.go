// Package loop runs the service's background passes. A pass is a plain function that tests call by itself; the loop only
// adds pace, jitter and a guard.
package loop

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// Loop is a named pass with its pace. Any number of replicas run the same loops without a leader: a pass takes each item by
// compare-and-swap and skips what it loses.
type Loop struct {
	Name string
	Role Role
	// Interval is the pause after a pass that moved something, and the least pause of all but after a full round.
	Interval time.Duration
	// Idle is the longest pause: while passes move nothing their pauses double up to it. 0 means Interval.
	Idle time.Duration
	// Pass does one bounded round and answers how many items it moved. A full round is followed by the next at once.
	Pass func(ctx context.Context) (moved int, err error)
	// Full is the number of moved items at which more is likely to be waiting; 0 means never.
	Full int
	// Wake, where it is set, ends a pause that is longer than Interval, unless it is one after a failure, and begins the doubling anew.
	Wake *Alarm
}

// Role is what a process does, and so which loops it runs.
type Role uint8

const (
	Engine Role = iota // moves tasks and events on, wherever requests are served
	API                // belongs to the requests this process serves
	Always             // belongs to every process
)

// Observer is told about each pass.
type Observer func(name string, moved int, took time.Duration, err error)

// Run runs all loops until ctx ends, and returns when each has finished its pass. A pass that fails or panics is reported and tried
// again after its interval; it never ends its loop.
func Run(ctx context.Context, loops []Loop, log *slog.Logger, observe Observer) {
	var wg sync.WaitGroup
	for _, l := range loops {
		wg.Go(func() { l.run(ctx, log, observe) })
	}
	wg.Wait()
}

func (l Loop) run(ctx context.Context, log *slog.Logger, observe Observer) {
	failures := 0
	least, pause := l.Interval, l.Interval
	for {
		woken, on := l.rest(ctx, least, pause)
		if !on {
			return
		}
		moved, err := l.once(ctx, observe)
		if ctx.Err() == nil {
			failures = l.report(log, failures, err)
		}
		least, pause = l.next(pause, woken, moved, err)
	}
}

// rest waits for pause or, once least is over, for an alarm; on is false when ctx has ended.
func (l Loop) rest(ctx context.Context, least, pause time.Duration) (woken, on bool) {
	least = jittered(least)
	timer := time.NewTimer(least)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-timer.C:
	}
	timer.Reset(jittered(pause) - least)
	select {
	case <-ctx.Done():
		return false, false
	case <-timer.C:
		return false, ctx.Err() == nil
	case <-l.Wake.rung():
		return true, ctx.Err() == nil
	}
}

// failurePace is the least time between a failed pass and the next.
const failurePace = time.Second

// next gives the pause after a pass that came after a pause of last, and how much of it no alarm cuts short.
func (l Loop) next(last time.Duration, woken bool, moved int, err error) (least, pause time.Duration) {
	switch {
	case err != nil:
		pause = max(l.Interval, failurePace)
		return pause, pause
	case l.Full > 0 && moved >= l.Full:
		return 0, 0
	case moved == 0 && !woken && l.Idle > 0:
		return l.Interval, min(max(2*last, l.Interval), l.Idle)
	}
	return l.Interval, l.Interval
}

// report tells the beginning and the end of a row of failures, and every hundredth in between.
func (l Loop) report(log *slog.Logger, failures int, err error) int {
	switch {
	case err == nil && failures > 0:
		log.Info("loop works again", "loop", l.Name, "failures", failures)
		return 0
	case err == nil:
		return 0
	case failures%100 == 0:
		log.Warn("loop pass failed", "loop", l.Name, "failures", failures+1, "error", err)
	}
	return failures + 1
}

// passTime bounds one pass, so that a connection which says nothing does not end its loop.
const passTime = time.Minute

func (l Loop) once(ctx context.Context, observe Observer) (moved int, err error) {
	begin := time.Now() //nolint:forbidigo // a stopwatch
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if observe != nil {
			observe(l.Name, moved, time.Since(begin), err) //nolint:forbidigo // a stopwatch
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	return l.Pass(ctx)
}

func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d)/5+1))
}
