package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/riverqueue/river"

	"github.com/orbit-run/orbit/deploy/peers/internal/report"
)

// comparison is one run of all rounds.
type comparison struct {
	*options
	facts    [][2]string
	postgres *postgres
	ready    *readyQueue

	orbit     orbitBench // of the last round
	floors    []report.Rate
	rates     []report.Rate
	latencies []report.Latency
}

func (c *comparison) open(ctx context.Context) (err error) {
	c.facts = machine()
	if c.postgres, err = startPostgres(ctx); err != nil {
		return err
	}
	c.ready, err = openReady(ctx, c.dsn, c.tune.readyProcesses, workers/c.tune.readyProcesses, singleCallers)
	return err
}

func (c *comparison) close(ctx context.Context) (err error) {
	if c.ready != nil {
		err = c.ready.close(ctx)
	}
	if c.postgres != nil {
		err = errors.Join(err, c.postgres.stop())
	}
	return err
}

const (
	nameF         = "F: one-row commits, MySQL"
	nameFPostgres = "one-row commits, PostgreSQL"
	nameRiver     = "River"
	nameReady     = "Ready table"
)

// round measures each system once.
func (c *comparison) round(ctx context.Context) error {
	for _, part := range []func(context.Context) error{c.measureOrbit, c.measureRiver, c.measureReady} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) measureOrbit(ctx context.Context) (err error) {
	if c.orbit, err = benchOrbit(ctx, c.options.orbit, c.dsn, c.out+"-orbit", c.length()); err != nil {
		return err
	}
	floor, err := c.orbit.figure("life", "one-row commits/s (F)", 0, 0)
	if err != nil {
		return err
	}
	c.add(&c.floors, nameF, fmt.Sprintf("%d connections", floorConnections), 0, floor.Value)
	for _, load := range []struct{ callers, batch int }{{orbitBatchCallers, batch}, {singleCallers, 1}} {
		f, err := c.orbit.figure("life", "lives/s", load.callers, load.batch)
		if err != nil {
			return err
		}
		c.add(&c.rates, report.Subject, fmt.Sprintf("%d callers", load.callers), load.batch, f.Value)
	}
	start, err := c.orbit.figure("latency", fmt.Sprintf("submit to start at %d/s", latencyRate), 0, 0)
	if err != nil {
		return err
	}
	c.addLatency(report.Subject, start.P50/1000, start.P99/1000)
	return nil
}

// A figure of River with the workers of its own benchmark stands beside the one with as many as the others have.
const riverBenchWorkers = 2000

func (c *comparison) measureRiver(ctx context.Context) error {
	floor, err := c.postgres.floor(ctx, c.length()/2)
	if err != nil {
		return err
	}
	c.add(&c.floors, nameFPostgres, fmt.Sprintf("%d connections", floorConnections), 0, floor)
	asBench := &riverQueue{server: c.postgres, connections: c.tune.riverConnections, workers: workers, cooldown: riverBenchCooldown, poll: riverBenchPoll}
	defer asBench.close()
	if err := c.measurePeer(ctx, nameRiver, asBench, c.tune.riverInserters, riverUnderWay); err != nil {
		return err
	}
	asBench.workers = riverBenchWorkers
	if err := c.life(ctx, nameRiver, asBench, riverBenchWorkers, closedLoad{inserters: c.tune.riverInserters, batch: batch, underWay: riverUnderWay}); err != nil {
		return err
	}
	byDefault := &riverQueue{server: c.postgres, connections: c.tune.riverConnections, workers: workers}
	defer byDefault.close()
	return c.latency(ctx, nameRiver+", its default intervals", byDefault)
}

func (c *comparison) measureReady(ctx context.Context) error {
	return c.measurePeer(ctx, nameReady, c.ready, c.tune.readyInserters, readyUnderWay)
}

func (c *comparison) measurePeer(ctx context.Context, name string, p peer, inserters, underWay int) error {
	for _, l := range []closedLoad{{inserters: inserters, batch: batch, underWay: underWay}, {inserters: singleCallers, batch: 1, underWay: underWay}} {
		if err := c.life(ctx, name, p, workers, l); err != nil {
			return err
		}
	}
	return c.latency(ctx, name, p)
}

func (c *comparison) life(ctx context.Context, name string, p peer, workers int, l closedLoad) error {
	l.length = c.length()
	rate, err := lives(ctx, p, l)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.add(&c.rates, name, fmt.Sprintf("%s workers, %d inserters", report.Whole(float64(workers)), l.inserters), l.batch, rate)
	return nil
}

func (c *comparison) latency(ctx context.Context, name string, p peer) error {
	times, err := latency(ctx, p, latencyRate, 2*c.length())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.addLatency(name, quantile(times, 0.5), quantile(times, 0.99))
	return nil
}

// add puts the figure of a round behind those of earlier ones.
func (c *comparison) add(to *[]report.Rate, system, load string, tasks int, value float64) {
	fmt.Fprintf(os.Stderr, "  %-30s %-32s %3d tasks a call  %8.0f/s\n", system, load, max(tasks, 1), value)
	for i := range *to {
		if r := &(*to)[i]; r.System == system && r.Load == load && r.Tasks == tasks {
			r.Rounds = append(r.Rounds, value)
			return
		}
	}
	*to = append(*to, report.Rate{System: system, Load: load, Tasks: tasks, Rounds: []float64{value}})
}

func (c *comparison) addLatency(system string, p50, p99 float64) {
	fmt.Fprintf(os.Stderr, "  %-30s submit to start at %d/s: p50 %.1f ms, p99 %.1f ms\n", system, latencyRate, p50, p99)
	for i := range c.latencies {
		if l := &c.latencies[i]; l.System == system {
			l.P50, l.P99 = append(l.P50, p50), append(l.P99, p99)
			return
		}
	}
	c.latencies = append(c.latencies, report.Latency{System: system, P50: []float64{p50}, P99: []float64{p99}})
}

// report describes what was measured, as it was set up.
func (c *comparison) report(ctx context.Context) (report.Report, error) {
	settings, err := c.postgres.settings(ctx)
	if err != nil {
		return report.Report{}, err
	}
	facts := slices.Concat(c.facts, [][2]string{
		{"MySQL", c.route + "; " + joined(c.orbit.Server)},
		{"PostgreSQL", "from the system's packages, on loopback, a new cluster with default settings; " + settings},
	})
	return report.Report{Facts: facts, Systems: c.systems(), Floors: c.floors, Lives: c.rates, Latencies: c.latencies}, nil
}

func (c *comparison) systems() [][2]string {
	every := fmt.Sprintf("the same tasks of 100 bytes of JSON, whose handler does nothing; %g seconds of load, then what is left is run to its end; counted from the first "+
		"submit to the last durable end. Callers and workers of each are in one process on this machine. Latency: one task at each tick of the clock, counted from the tick", c.seconds)
	orbit := fmt.Sprintf("commit %s, one replica, through its HTTP API with the Go SDK's client, in two-step dispatch. Each caller submits, claims, starts and finishes, as `orbit bench --suite life` has it, and has as many "+
		"tasks under way as it has in a call. Latency: one worker in long polls", c.revision)
	onRiver := fmt.Sprintf("version %s with riverpgxv5, a library in the workers' process, %d connections. FetchCooldown %s and FetchPollInterval %s as in River's own benchmark, else its defaults, in a new database for each measurement; "+
		"InsertMany of %d, or Insert; at most %s tasks under way. An end counts when River says that it is stored. %s workers are what River's own benchmark has. Its default intervals are %s and %s",
		version("github.com/riverqueue/river"), c.tune.riverConnections, ms(riverBenchCooldown), ms(riverBenchPoll), batch, report.Whole(riverUnderWay), report.Whole(riverBenchWorkers),
		ms(river.FetchCooldownDefault), ms(river.FetchPollIntervalDefault))
	ready := fmt.Sprintf("a program of our own with the tables, indexes, foreign keys and statements of Solid Queue, not Solid Queue itself: no Ruby, no Active Job, no heartbeats. READ COMMITTED, as its manual "+
		"advises; parameters put into the text; a connection for each worker. Processes: %d, with %d threads each; a process claims as many as it has idle threads, at once when one becomes idle, else every %s "+
		"(the default); each job is read and ended by itself. Inserts of %d in one transaction, or of one; at most %s tasks under way; %d transactions were repeated after a deadlock",
		c.tune.readyProcesses, workers/c.tune.readyProcesses, ms(c.ready.poll), batch, report.Whole(readyUnderWay), c.ready.deadlocks.Load())
	return [][2]string{{"every system", every}, {report.Subject, orbit}, {nameRiver, onRiver}, {nameReady, ready}}
}

func joined(rows [][2]string) (text string) {
	for i, row := range rows {
		if i > 0 {
			text += ", "
		}
		text += row[0] + " " + row[1]
	}
	return text
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
