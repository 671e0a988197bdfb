package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/service"

	"github.com/orbit-run/orbit/schema"
)

// benchCommand measures what a database server carries through Orbit: over HTTP, through replicas that it starts as processes of their
// own on loopback, on a database that it makes and drops.
//
// Beside each figure stands F, the durable one-row commits a second of the same server, measured in the same run just before.
type benchCommand struct {
	databaseSettings
	Suite        []string `enum:"life,submit,latency,claim,idle,soak,all" default:"all" help:"What to measure: ${enum} (${default}); all is all but soak, which loads for the whole length and watches memory."`
	Seconds      float64  `default:"3" help:"Length of one measurement (${default})."`
	Callers      []int    `default:"1,64,256" help:"Callers at once, in the suites life and submit (${default})."`
	Batch        []int    `default:"1,10,100" help:"Tasks in one call, in the suites life and submit (${default})."`
	Replicas     []int    `default:"1" help:"Replicas to share the load; each number is measured (${default})."`
	Processes    int      `default:"0" help:"Processes that the callers of life and submit are spread over; 0 keeps them in this one."`
	Rate         []int    `default:"50" help:"Tasks a second of the suite latency, sent by the clock whether or not earlier ones are answered (${default})."`
	Backlog      int      `default:"100000" help:"Tasks that are queued, and as many that have ended, in the second part of the suite claim (${default})."`
	Future       int      `default:"10000" help:"Tasks that are not yet due, in the second part of the suite claim (${default})."`
	Workers      int      `default:"100" help:"Workers that wait for tasks, in the suite idle (${default})."`
	ClaimAlone   bool     `help:"In the suite life, claim by a call of its own each time. Otherwise callers claim with the results they report, as workers of the SDK do."`
	DatabasePID  int      `name:"database-pid" placeholder:"PID" help:"The process of a local database server, to tell how much of the processors it used."`
	PayloadBytes int      `default:"100" help:"Size of a task's payload (${default})."`
	Out          string   `type:"path" default:".run/bench" placeholder:"PREFIX" help:"Where to write the figures and the picture: PREFIX.csv and PREFIX.svg (${default})."`
	Profiles     string   `type:"path" placeholder:"DIR" help:"Write a CPU profile of the first replica for each measurement of life and submit there."`

	AcceptWeakDurability bool `help:"Measure although the database's settings may lose commits in a crash. Such figures mean little."`
}

func (c *benchCommand) Run(ctx commandContext, p *printer) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	dsn, err := c.dsn()
	if err != nil {
		return err
	}
	b := &bench{benchCommand: c, p: p}
	if b.dir, err = os.MkdirTemp("", "orbit-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	name := "orbit_bench_" + strings.ToLower(rand.Text()[:10])
	database, drop, err := makeDatabase(ctx, dsn, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	b.database = name
	return b.run(ctx, database)
}

func (c *benchCommand) check() error {
	counts := slices.Concat(c.Callers, c.Batch, c.Replicas, c.Rate, []int{c.Backlog, c.Future, c.Workers, c.PayloadBytes})
	switch {
	case slices.Min(counts) < 1 || c.Seconds <= 0:
		return usagef("callers, tasks, replicas, workers and bytes are at least 1, and seconds more than 0")
	case slices.Max(c.Batch) > claimLimit:
		return usagef("--batch is %d; one claim gives at most %d tasks", slices.Max(c.Batch), claimLimit)
	case c.Processes < 0:
		return usagef("--processes cannot be negative")
	}
	return nil
}

// claimLimit is the most tasks of one claim.
const claimLimit = 100

func (c *benchCommand) wants(suite string) bool {
	return slices.Contains(c.Suite, suite) || slices.Contains(c.Suite, "all") && suite != "soak"
}

// bench is one run.
type bench struct {
	*benchCommand
	p        *printer
	dir      string // logs of the replicas
	database string // its name

	server   *benchServer
	env      []string // of the replicas
	key      string
	replicas []*benchReplica
	queues   int // made so far
	floor    benchFloor
	report   benchReport
}

func (b *bench) run(ctx context.Context, d *devDatabase) (err error) {
	if err := schema.Up(ctx, d.dsn, schema.UpOptions{Program: thisBuild().program()}); err != nil {
		return err
	}
	if b.server, err = openBenchServer(ctx, d.dsn, b.database, b.AcceptWeakDurability); err != nil {
		return err
	}
	defer b.server.close()
	b.report.Machine = describeMachine()
	b.report.Server = b.server.settings
	for _, row := range append(b.report.Machine, b.report.Server...) {
		b.p.hint("%-32s %s", row[0], row[1])
	}
	err = databaseSettings{DSN: d.dsn}.withHost(ctx, func(h service.Host) error {
		issued, err := h.Bootstrap(ctx, service.Bootstrap{})
		if err == nil {
			b.key = issued.Key.Text()
		}
		return err
	})
	if err != nil {
		return err
	}
	b.env = []string{"ORBIT_DSN=" + d.dsn}
	defer func() { err = errors.Join(err, b.stopReplicas()) }()
	if err := b.startReplicas(ctx, 1); err != nil {
		return err
	}
	for _, s := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"idle", b.idle}, {"latency", b.latency}, {"claim", b.claim}, {"submit", b.submit}, {"life", b.life}, {"soak", b.soak},
	} {
		if !b.wants(s.name) {
			continue
		}
		if b.floor, err = b.server.floor(ctx, min(b.length(), floorTime)); err != nil {
			return err
		}
		b.add(benchFigure{Suite: s.name, Figure: "one-row commits/s (F)", Value: b.floor.commits, Places: 0})
		b.add(benchFigure{Suite: s.name, Figure: "rows/s in inserts of 100", Value: b.floor.rows, Places: 0, PerF: b.floor.rows / b.floor.commits})
		if err := s.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return b.finish()
}

// floorTime is the most that one measurement of F takes.
const floorTime = 10 * time.Second

func (b *bench) length() time.Duration { return time.Duration(b.Seconds * float64(time.Second)) }

// add keeps a figure and shows that there is one.
func (b *bench) add(f benchFigure) {
	f.F = b.floor.commits
	b.report.Figures = append(b.report.Figures, f)
	b.p.hint("%s", strings.Join(f.row(), "  "))
	if f.Failures > 0 {
		b.p.hint("  %d calls or items failed; the first: %s", f.Failures, f.FirstFailure)
	}
}

func (b *bench) finish() error {
	if err := os.MkdirAll(filepath.Dir(b.Out), 0o755); err != nil {
		return err
	}
	if err := errors.Join(b.report.writeCSV(b.Out+".csv"), b.report.writeSVG(b.Out+".svg")); err != nil {
		return err
	}
	b.p.hint("written: %s.csv and %s.svg", b.Out, b.Out)
	if err := b.p.list(b.report, benchHeader, b.report.rows()); err != nil {
		return err
	}
	return b.report.verdict()
}

// benchReplica is one server process.
type benchReplica struct {
	*process
	url   string
	pprof string
}

// startReplicas starts as many as are missing to n.
func (b *bench) startReplicas(ctx context.Context, n int) error {
	for len(b.replicas) < n {
		address, err := fixedAddress(ctx, "127.0.0.1:0")
		if err != nil {
			return err
		}
		args := []string{"serve", "--listen", address, "--drain-delay", "0s", "--log-level", "warn"}
		r := &benchReplica{url: "http://" + address}
		if b.Profiles != "" {
			if r.pprof, err = fixedAddress(ctx, "127.0.0.1:0"); err != nil {
				return err
			}
			args = append(args, "--pprof-listen", r.pprof)
		}
		if b.AcceptWeakDurability {
			args = append(args, "--accept-weak-durability")
		}
		if r.process, err = startProcess(b.dir, fmt.Sprintf("replica-%d", len(b.replicas)+1), b.env, args...); err != nil {
			return err
		}
		b.replicas = append(b.replicas, r)
		if err := r.awaitReady(ctx, r.url); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) stopReplicas() (err error) {
	for _, r := range b.replicas {
		err = errors.Join(err, r.stop(time.Minute))
	}
	return err
}

func (b *bench) urls(n int) []string {
	urls := make([]string, n)
	for i, r := range b.replicas[:n] {
		urls[i] = r.url
	}
	return urls
}

// makeQueue makes a queue whose offers and leases outlast any measurement, so that nothing is offered twice.
func (b *bench) makeQueue(ctx context.Context) (*api.Queue, error) {
	b.queues++
	remote, err := client.New(b.replicas[0].url, b.key)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("bench-%d", b.queues)
	made, err := read(ctx, func(ctx context.Context) (*api.QueueHeaders, error) {
		return remote.API.CreateQueue(ctx, &api.CreateQueueRequest{
			Name:           name,
			LeaseMs:        api.NewOptInt64(time.Hour.Milliseconds()),
			OfferTimeoutMs: api.NewOptInt64(time.Hour.Milliseconds()),
			UnknownOutcome: api.NewOptCreateQueueRequestUnknownOutcome(api.CreateQueueRequestUnknownOutcomeRetry),
		}, api.CreateQueueParams{IdempotencyKey: api.NewOptString(name)})
	})
	if err != nil {
		return nil, err
	}
	return &made.Response, nil
}

// payload is JSON text of about so many bytes.
func (b *bench) payload() []byte {
	const frame = len(`{"text":""}`)
	return []byte(`{"text":"` + strings.Repeat("x", max(b.PayloadBytes-frame, 0)) + `"}`)
}
