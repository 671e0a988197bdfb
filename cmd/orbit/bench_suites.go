package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/orbit-run/orbit/sdk/go/worker"
)

func (b *bench) submit(ctx context.Context) error { return b.throughput(ctx, "submit", false) }
func (b *bench) life(ctx context.Context) error   { return b.throughput(ctx, "life", true) }

// inFlightLimit is the most tasks that callers may have under way together: with more, most of a short measurement is its end.
const inFlightLimit = 12_800

// throughput measures tasks a second for each number of replicas, callers and tasks in a call.
func (b *bench) throughput(ctx context.Context, suite string, execute bool) error {
	for _, replicas := range b.Replicas {
		if err := b.startReplicas(ctx, replicas); err != nil {
			return err
		}
		for _, batch := range b.Batch {
			for _, callers := range b.Callers {
				if callers*batch > inFlightLimit {
					b.p.hint("%s: %d callers with %d tasks each are left out: more than %d under way", suite, callers, batch, inFlightLimit)
					continue
				}
				if err := b.point(ctx, suite, execute, replicas, callers, batch); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *bench) point(ctx context.Context, suite string, execute bool, replicas, callers, batch int) error {
	queue, err := b.makeQueue(ctx)
	if err != nil {
		return err
	}
	var profiling sync.WaitGroup
	var profiled error
	var cpu, serverCPU float64
	var before statementCount
	begin := func() (err error) {
		if before, err = b.server.statements(ctx); err != nil {
			return err
		}
		cpu, serverCPU = b.replicaCPU(ctx), b.databaseCPU()
		if b.Profiles != "" {
			file := filepath.Join(b.Profiles, fmt.Sprintf("%s-%d-callers-batch-%d.pprof", suite, callers, batch))
			profiling.Go(func() { profiled = b.replicas[0].profile(ctx, file, b.length()) })
		}
		return nil
	}
	r, err := b.load(ctx, benchJob{
		Servers: b.urls(replicas), Key: b.key, QueueID: queue.ID, Callers: callers, Batch: batch, Execute: execute, ClaimAlone: b.ClaimAlone, Payload: b.payload(), Length: b.length(),
	}, begin)
	profiling.Wait()
	if err := errors.Join(err, profiled); err != nil {
		return err
	}
	f := benchFigure{
		Suite: suite, Figure: map[bool]string{false: "submitted/s", true: "lives/s"}[execute], Replicas: replicas, Callers: callers, Batch: batch,
		Value: float64(r.Tasks) / r.Elapsed.Seconds(), Failures: r.Failures, FirstFailure: r.First,
		CallerCores: r.CPU / r.Elapsed.Seconds(), ReplicaCores: (b.replicaCPU(ctx) - cpu) / r.Elapsed.Seconds(), ServerCores: (b.databaseCPU() - serverCPU) / r.Elapsed.Seconds(),
	}
	f.PerF = f.Value / b.floor.commits
	after, err := b.server.statements(ctx)
	if err != nil {
		return err
	}
	f.Note = fmt.Sprintf("%.1f statements a task", after.since(before)/float64(max(r.Tasks, 1)))
	f.takeTimes(r, map[bool]string{false: "submit", true: "life"}[execute])
	b.add(f)
	if execute {
		for _, call := range []string{"submit", "claim", "start", "finish"} {
			part := benchFigure{Suite: suite, Figure: call + " call", Replicas: replicas, Callers: callers, Batch: batch}
			part.takeTimes(r, call)
			b.add(part)
		}
	}
	return nil
}

// latency measures an open load to one waiting worker; with two replicas the worker waits at the other one.
func (b *bench) latency(ctx context.Context) error {
	for _, replicas := range b.Replicas {
		if err := b.startReplicas(ctx, replicas); err != nil {
			return err
		}
		for _, rate := range b.Rate {
			queue, err := b.makeQueue(ctx)
			if err != nil {
				return err
			}
			remotes, err := benchClients(b.urls(replicas), b.key, 256)
			if err != nil {
				return err
			}
			r, err := openLoad(ctx, remotes[0].API, remotes[len(remotes)-1].API, queue.ID, rate, 3*b.length())
			if err != nil {
				return err
			}
			for _, name := range []string{"submit", "submit to offer", "submit to start", "submit to finish"} {
				f := benchFigure{Suite: "latency", Figure: fmt.Sprintf("%s at %d/s", name, rate), Replicas: replicas, Failures: r.Failures, FirstFailure: r.First}
				f.takeTimes(r, name)
				b.add(f)
				r.Failures = 0
			}
		}
	}
	return nil
}

// claimsKept is how many tasks there are to claim where nothing else is stored.
const claimsKept = 10_000

// claim compares claims of one task by one caller in an almost empty database and beside a backlog, tasks of the future and history.
func (b *bench) claim(ctx context.Context) error {
	remotes, err := benchClients(b.urls(1), b.key, 1)
	if err != nil {
		return err
	}
	var empty int64
	for _, state := range []struct {
		name                 string
		ready, future, ended int
	}{
		{"empty", claimsKept, 0, 0},
		{fmt.Sprintf("%d queued, %d future, %d ended", b.Backlog, b.Future, b.Backlog), b.Backlog, b.Future, b.Backlog},
	} {
		queue, err := b.makeQueue(ctx)
		if err != nil {
			return err
		}
		if err := b.server.seed(ctx, queue.ID, state.ready, state.future, state.ended); err != nil {
			return err
		}
		w, err := openBenchWorker(ctx, remotes[0].API, queue.ID, 1)
		if err != nil {
			return err
		}
		r := newRecorder()
		from := time.Now()
		for taken := 0; time.Since(from) < b.length() && taken < claimsKept; taken++ {
			if _, err := w.claim(ctx, r, 1, 0); err != nil {
				return err
			}
		}
		f := benchFigure{Suite: "claim", Figure: "claim call, " + state.name, Replicas: 1, Callers: 1, Batch: 1}
		f.takeTimes(r.result(), "claim")
		if empty == 0 {
			empty = f.P99
		} else {
			f.Note = fmt.Sprintf("p99 is %.2f of that of empty", float64(f.P99)/float64(empty))
		}
		b.add(f)
	}
	return b.rest(ctx, b.Workers, fmt.Sprintf("%d waiting workers beside them", b.Workers))
}

// soakSamples is how often a soak looks at the replica.
const soakSamples = 12

// soak loads a replica for the whole length, and watches what it keeps: heap after a collection, goroutines, resident memory.
func (b *bench) soak(ctx context.Context) error {
	queue, err := b.makeQueue(ctx)
	if err != nil {
		return err
	}
	loaded := make(chan error, 1)
	var result benchResult
	go func() {
		var err error
		result, err = b.load(ctx, benchJob{Servers: b.urls(1), Key: b.key, QueueID: queue.ID, Callers: 64, Batch: 10, Execute: true, Payload: b.payload(), Length: b.length()}, func() error { return nil })
		loaded <- err
	}()
	for i := range soakSamples {
		if err := b.pause(ctx, b.length()/soakSamples); err != nil {
			return err
		}
		for _, m := range []struct {
			name, metric string
			unit         float64
		}{
			{"MiB of heap in use", "go_memstats_heap_inuse_bytes", 1 << 20}, {"goroutines", "go_goroutines", 1}, {"MiB resident", "process_resident_memory_bytes", 1 << 20},
		} {
			value, err := b.replicas[0].metric(ctx, m.metric)
			if err != nil {
				return err
			}
			b.add(benchFigure{Suite: "soak", Figure: fmt.Sprintf("%s after %d of %d parts", m.name, i+1, soakSamples), Replicas: 1, Callers: 64, Batch: 10, Value: value / m.unit, Places: 1})
		}
	}
	if err := <-loaded; err != nil {
		return err
	}
	f := benchFigure{Suite: "soak", Figure: "lives/s", Replicas: 1, Callers: 64, Batch: 10, Value: float64(result.Tasks) / result.Elapsed.Seconds(), Failures: result.Failures, FirstFailure: result.First}
	f.PerF = f.Value / b.floor.commits
	f.takeTimes(result, "life")
	b.add(f)
	return nil
}

// idle measures what waiting workers of the SDK cost, with nothing to do.
func (b *bench) idle(ctx context.Context) error {
	for _, workers := range []int{0, b.Workers} {
		if err := b.rest(ctx, workers, fmt.Sprintf("%d waiting workers", workers)); err != nil {
			return err
		}
	}
	return nil
}

// restTime is the least time that waiting workers are watched for: long polls end and begin again in it, and life is shown.
const restTime = 35 * time.Second

func (b *bench) rest(ctx context.Context, workers int, who string) (err error) {
	queue, err := b.makeQueue(ctx)
	if err != nil {
		return err
	}
	remotes, err := benchClients(b.urls(1), b.key, max(workers, 1))
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	failed := make([]error, workers)
	defer func() {
		stop()
		group.Wait()
		err = errors.Join(err, errors.Join(failed...))
	}()
	for i := range workers {
		w := worker.New(remotes[0], worker.Config{Queues: []string{queue.ID}, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
		w.Handle("bench", func(context.Context, *worker.Task) (any, error) { return nil, nil })
		group.Go(func() { failed[i] = w.Run(working) })
	}
	if err := b.pause(ctx, b.length()); err != nil { // for sessions to open and claims to begin
		return err
	}
	before, err := b.server.statements(ctx)
	if err != nil {
		return err
	}
	cpu, from := b.replicaCPU(ctx), time.Now()
	watched := 2 * b.length()
	if workers > 0 {
		watched = max(watched, min(restTime, 12*b.length()))
	}
	if err := b.pause(ctx, watched); err != nil {
		return err
	}
	after, err := b.server.statements(ctx)
	if err != nil {
		return err
	}
	seconds := time.Since(from).Seconds()
	cores := (b.replicaCPU(ctx) - cpu) / seconds
	b.add(benchFigure{Suite: "idle", Figure: "statements/s of the whole server, " + who, Replicas: 1, Value: (after.server - before.server) / seconds, Places: 1, ReplicaCores: cores})
	memory, err := b.replicas[0].metric(ctx, "process_resident_memory_bytes")
	if err != nil {
		return err
	}
	b.add(benchFigure{Suite: "idle", Figure: "MiB resident in a replica, " + who, Replicas: 1, Value: memory / (1 << 20), Places: 1})
	return nil
}

// pause lets time pass in which nothing is done.
func (b *bench) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeTimes copies the times of one kind of call.
func (f *benchFigure) takeTimes(r benchResult, call string) {
	if r.Calls[call] == nil {
		return
	}
	h := hdrhistogram.Import(r.Calls[call])
	f.Calls, f.P50, f.P90, f.P99, f.Max = h.TotalCount(), h.ValueAtQuantile(50), h.ValueAtQuantile(90), h.ValueAtQuantile(99), h.Max()
	f.times = h
}
