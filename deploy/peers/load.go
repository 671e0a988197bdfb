package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// task is what every system gets: as JSON, 100 bytes.
type task struct {
	Tick int    `json:"tick,omitempty"` // of the open load
	Text string `json:"text"`
}

var hundredBytes = task{Text: strings.Repeat("x", 100-len(`{"text":""}`))}

// peer is a queue that is used as a library, in this process.
type peer interface {
	// reset leaves a queue that holds nothing.
	reset(ctx context.Context) error
	// work runs tasks until it is stopped.
	work(ctx context.Context, on events) (worked, error)
	// ended counts the tasks that the database has as ended.
	ended(ctx context.Context) (int, error)
}

type worked interface {
	// insert returns when the tasks are durable. A single task goes the way that the peer has for one.
	insert(ctx context.Context, tasks []task) error
	stop(ctx context.Context) error
}

// events are called by many at once.
type events struct {
	started func(task)
	ended   func() // a task's end is durable
	failed  func(error)
}

// closedLoad is what is measured for throughput: inserters that insert as fast as they can, but leave no more than so many under way.
type closedLoad struct {
	inserters int
	batch     int
	underWay  int
	length    time.Duration
}

// startUp is how long a peer's workers have to get ready before the first task of an open load.
const startUp = time.Second

// drainLimit is how long a peer may take to run what is left when nothing new comes.
const drainLimit = time.Minute

// lives gives the tasks a second from the first insert to the last durable end.
func lives(ctx context.Context, p peer, l closedLoad) (perSecond float64, err error) {
	if err := p.reset(ctx); err != nil {
		return 0, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	underWay := semaphore.NewWeighted(int64(l.underWay))
	w, err := p.work(ctx, events{started: func(task) {}, ended: func() { underWay.Release(1) }, failed: fail})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.stop(context.WithoutCancel(ctx))) }()

	tasks := slices.Repeat([]task{hundredBytes}, l.batch)
	var inserted atomic.Int64
	from := time.Now()
	group, inserting := errgroup.WithContext(ctx)
	for range l.inserters {
		group.Go(func() error {
			for time.Since(from) < l.length {
				if err := underWay.Acquire(inserting, int64(l.batch)); err != nil {
					return context.Cause(inserting)
				}
				if err := w.insert(inserting, tasks); err != nil {
					return err
				}
				inserted.Add(int64(l.batch))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	draining, cancel := context.WithTimeoutCause(ctx, drainLimit, errors.New("tasks did not end in time"))
	defer cancel()
	if err := underWay.Acquire(draining, int64(l.underWay)); err != nil {
		return 0, context.Cause(draining)
	}
	elapsed := time.Since(from)
	switch ended, err := p.ended(ctx); {
	case err != nil:
		return 0, err
	case int64(ended) != inserted.Load():
		return 0, fmt.Errorf("%d tasks were inserted, %d have ended", inserted.Load(), ended)
	}
	return float64(inserted.Load()) / elapsed.Seconds(), nil
}

// latency gives the times from the tick at which a task was to be inserted to the beginning of its work, in order. Tasks are inserted at a fixed
// rate, whether or not earlier ones are.
func latency(ctx context.Context, p peer, rate int, length time.Duration) (_ []time.Duration, err error) {
	if err := p.reset(ctx); err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	interval, total := time.Second/time.Duration(rate), int(length.Seconds()*float64(rate))
	times := make(chan time.Duration, total)
	ended := make(chan struct{}, total)
	from := time.Now().Add(startUp)
	w, err := p.work(ctx, events{
		started: func(t task) { times <- time.Since(from.Add(time.Duration(t.Tick) * interval)) },
		ended:   func() { ended <- struct{}{} },
		failed:  fail,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop(context.WithoutCancel(ctx))) }()

	var group errgroup.Group
	timer := time.NewTimer(0)
	defer timer.Stop()
	for tick := range total {
		timer.Reset(time.Until(from.Add(time.Duration(tick) * interval)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		group.Go(func() error { return w.insert(ctx, []task{{Tick: tick, Text: hundredBytes.Text}}) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	draining, cancel := context.WithTimeoutCause(ctx, drainLimit, errors.New("tasks did not end in time"))
	defer cancel()
	for range total {
		select {
		case <-ended:
		case <-draining.Done():
			return nil, context.Cause(draining)
		}
	}
	close(times)
	return slices.SortedFunc(chanValues(times), func(a, b time.Duration) int { return int(a - b) }), nil
}

func chanValues(from <-chan time.Duration) func(yield func(time.Duration) bool) {
	return func(yield func(time.Duration) bool) {
		for v := range from {
			if !yield(v) {
				return
			}
		}
	}
}

// quantile is in milliseconds.
func quantile(sorted []time.Duration, share float64) float64 {
	return float64(sorted[min(int(share*float64(len(sorted))), len(sorted)-1)].Microseconds()) / 1000
}
