package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orbit-run/orbit/docs"
	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/service"
)

// serverSettings are those of one replica of the service.
type serverSettings struct {
	Listen       string        `env:"ORBIT_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Where to serve the API, /docs, /livez, /readyz and /metrics (${default})."`
	Roles        []string      `env:"ORBIT_ROLES" enum:"api,engine" default:"api,engine" help:"What this replica does: api answers requests, engine runs the background passes (${default})."`
	DrainDelay   time.Duration `env:"ORBIT_DRAIN_DELAY" default:"5s" help:"From becoming unready at SIGTERM to ending work, for load balancers to notice (${default})."`
	DrainTimeout time.Duration `env:"ORBIT_DRAIN_TIMEOUT" default:"30s" help:"For requests to finish after that (${default})."`

	NudgeListen    string `env:"ORBIT_NUDGE_LISTEN" default:":0" placeholder:"ADDRESS" help:"Where to take hints of other replicas, by UDP, that tasks are ready; off is nowhere, and then waiting claims find tasks of others up to 1.5 s later (${default}: a free port)."`
	NudgeAdvertise string `env:"ORBIT_NUDGE_ADVERTISE" placeholder:"IP[:PORT]" help:"The address to tell other replicas for that, if not the host's on its way to the database."`

	DatabaseWait         time.Duration `env:"ORBIT_DATABASE_WAIT" default:"1m" help:"How long to wait at start for a database that does not answer (${default})."`
	DatabaseConnections  int           `env:"ORBIT_DATABASE_CONNECTIONS" default:"32" help:"Connections for batches and reading; 16 more serve single items (${default})."`
	AcceptWeakDurability bool          `env:"ORBIT_ACCEPT_WEAK_DURABILITY" help:"Start although the database's settings may lose commits in a crash."`

	IdempotencyLife time.Duration `env:"ORBIT_IDEMPOTENCY_LIFE" default:"192h" help:"How long replies are kept under their keys; at least 8 days (${default})."`
	EventRetention  time.Duration `env:"ORBIT_EVENT_RETENTION" default:"720h" help:"How long events stay in the feed (${default})."`
	RateLimit       int           `env:"ORBIT_RATE_LIMIT" default:"0" help:"Requests a second of a credential that has no limit of its own; 0 is no limit."`

	LogLevel    string `env:"ORBIT_LOG_LEVEL" enum:"debug,info,warn,error" default:"info" help:"Least level of what is logged: ${enum}."`
	LogFormat   string `env:"ORBIT_LOG_FORMAT" enum:"json,text" default:"json" help:"Form of the logs: ${enum}."`
	PprofListen string `env:"ORBIT_PPROF_LISTEN" placeholder:"ADDRESS" help:"Where to serve Go's profiles; nowhere where it is empty. Never make it public."`
}

type serveCommand struct {
	databaseSettings
	serverSettings
}

func (c *serveCommand) Run(ctx commandContext, p *printer) error {
	dsn, err := c.dsn()
	if err != nil {
		return err
	}
	if err := c.serverSettings.check(); err != nil {
		return err
	}
	return runReplica(ctx, dsn, c.serverSettings, p.err, nil)
}

func (s serverSettings) check() error {
	switch {
	case s.DatabaseConnections < 2:
		return usagef("--database-connections is %d; at least 2 are needed", s.DatabaseConnections)
	case s.RateLimit < 0:
		return usagef("--rate-limit is %d; it cannot be negative", s.RateLimit)
	case s.DrainDelay < 0 || s.DrainTimeout < 0 || s.DatabaseWait < 0:
		return usagef("--drain-delay, --drain-timeout and --database-wait cannot be negative")
	}
	return nil
}

// laneConnections is the most that single items may take, so that waiting duplicates starve nobody.
const laneConnections = 16

// collectLess trades memory for processor time: a replica keeps little for long and makes much garbage, so that collections at the usual doubling of
// its few live megabytes would take an eighth of its time. GOGC, where it is set, stands.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// runReplica serves until ctx ends, and then ends in good order: unready at once; after the drain delay no new claims and no long
// polls; then requests finish and the passes end. It calls started, where it is not nil, once it listens.
func runReplica(ctx context.Context, dsn string, s serverSettings, logs io.Writer, started func(address string)) (err error) {
	collectLess()
	queue := newLogQueue(logs)
	defer queue.Close()
	logger := newLogger(queue, s.LogFormat, s.LogLevel)
	registry := newRegistry(queue)
	traces, endTraces, err := newTraces(ctx, registry, logger)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spanExportTime)
		defer cancel()
		if lost := endTraces(ctx); lost != nil {
			logger.Warn("traces were not all sent", "error", lost)
		}
	}()
	pools, err := openPools(dsn, s.DatabaseConnections)
	if err != nil {
		return err
	}
	defer pools.close()
	version, err := pools.check(ctx, s, logger)
	if err != nil {
		return err
	}
	nudges, nudgeAddress, err := s.listenForNudges(ctx, dsn)
	if err != nil {
		return err
	}
	replica, err := service.New(service.Options{
		DB: pools.batch, Lane: pools.lane, Logger: logger, Version: thisBuild().Version, NudgeConn: nudges, NudgeAddress: nudgeAddress,
		IdempotencyLife: s.IdempotencyLife, EventRetention: s.EventRetention, RateLimitPerSecond: s.RateLimit,
		Registerer: registry, TracerProvider: traces,
	})
	if err != nil {
		return err
	}
	listener, err := listen(ctx, s.Listen)
	if err != nil {
		return err
	}
	if s.PprofListen != "" {
		stop, err := servePprof(ctx, s.PprofListen, logger)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		defer stop()
	}
	logger.Info("serving", "address", listener.Addr().String(), "roles", s.Roles, "nudges", nudgeAddress, "version", thisBuild().Version, "mysql", version, "schema", schema.Target())
	if started != nil {
		started(listener.Addr().String())
	}
	h := &health{db: pools.batch}
	server := newHTTPServer(routes(replica, h, registry, slices.Contains(s.Roles, "api")), logger)
	return work{replica, h, server, logger, s}.run(ctx, listener)
}

// work is a replica that listens.
type work struct {
	replica  *service.Service
	health   *health
	server   *http.Server
	logger   *slog.Logger
	settings serverSettings
}

func (w work) run(ctx context.Context, listener net.Listener) error {
	passes, endPasses := context.WithCancel(context.WithoutCancel(ctx))
	defer endPasses()
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		w.replica.RunLoops(passes, service.Roles{API: slices.Contains(w.settings.Roles, "api"), Engine: slices.Contains(w.settings.Roles, "engine")})
	}()
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(listener) }()

	var err error
	select {
	case err = <-served: // only a listener that broke ends it by itself
	case <-ctx.Done():
		err = w.drain(ctx)
	}
	endPasses()
	<-passed
	w.logger.Info("ended")
	return err
}

func (w work) drain(ctx context.Context) error {
	w.health.draining.Store(true)
	w.logger.Info("ending: unready", "wait", w.settings.DrainDelay.String())
	<-time.After(w.settings.DrainDelay)
	w.replica.Drain()
	w.logger.Info("ending: long polls ended, requests finish", "at_most", w.settings.DrainTimeout.String())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.settings.DrainTimeout)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were cut: %w", err), w.server.Close())
	}
	return nil
}

// newHTTPServer bounds slow clients: the time of a body is the service's to bound, which knows what it waits for.
func newHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       90 * time.Second, // of bodies that nobody reads; longer than the service gives to those it reads
		WriteTimeout:      3 * time.Minute,  // a body, a long poll of 30 s, and a reply to a slow reader
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

func routes(replica *service.Service, h *health, registry *prometheus.Registry, api bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", h.live)
	mux.HandleFunc("GET /readyz", h.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	if api {
		mux.Handle("/", replica.Handler()) // whatever is not there is a problem document too
		mux.Handle("/docs", docs.Handler())
		mux.Handle("/docs/", docs.Handler())
		mux.Handle("/openapi.yaml", docs.Handler())
	}
	return mux
}

func newRegistry(queue *logQueue) *prometheus.Registry {
	build := thisBuild()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "orbit_build_info", Help: "Always 1; the labels tell of the program.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go": build.Go},
	})
	info.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "orbit_log_lines_dropped_total", Help: "Log lines that were not written: their reader was too slow.",
		}, func() float64 { return float64(queue.dropped.Load()) }))
	return registry
}

// pools are a replica's two ways to its database.
type pools struct {
	batch, lane *sql.DB
}

func openPools(dsn string, connections int) (pools, error) {
	batch, err := schema.Open(dsn, schema.PoolOptions{MaxOpen: connections, LockWait: time.Second, Program: "orbit-batch"})
	if err != nil {
		return pools{}, err
	}
	lane, err := schema.Open(dsn, schema.PoolOptions{MaxOpen: laneConnections, LockWait: 5 * time.Second, Program: "orbit-lane"})
	if err != nil {
		return pools{}, errors.Join(err, batch.Close())
	}
	return pools{batch, lane}, nil
}

func (p pools) close() {
	p.batch.Close()
	p.lane.Close()
}

// check waits for the database and refuses one that is set wrongly or is not at this program's version. It changes nothing.
func (p pools) check(ctx context.Context, s serverSettings, logger *slog.Logger) (version string, err error) {
	if err := p.await(ctx, s.DatabaseWait, logger); err != nil {
		return "", err
	}
	found, err := schema.CheckServer(ctx, p.batch, schema.ServerRules{AcceptWeakDurability: s.AcceptWeakDurability})
	if err != nil {
		var refused *schema.ServerError
		if errors.As(err, &refused) && slices.ContainsFunc(refused.Refused, schema.Finding.Durability) {
			err = fmt.Errorf("%w\nWhere nothing that matters is stored, --accept-weak-durability starts nevertheless", err)
		}
		return "", err
	}
	for _, w := range found.Warnings {
		logger.Warn("database setting", "setting", w.Setting, "value", w.Value, "want", w.Want, "why", w.Why)
	}
	return found.Version, schema.Check(ctx, p.batch)
}

func (p pools) await(ctx context.Context, limit time.Duration, logger *slog.Logger) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, healthTime)
		defer cancel()
		err := schema.Reach(ctx, p.batch)
		if definite(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxElapsedTime(limit), backoff.WithNotify(func(err error, next time.Duration) {
		logger.Warn("the database does not answer yet", "error", err, "next", next.String())
	}))
	return err
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

func servePprof(ctx context.Context, address string, logger *slog.Logger) (stop func(), err error) {
	listener, err := listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("--pprof-listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("profiles are not served any more", "error", err)
		}
	}()
	logger.Info("serving profiles", "address", listener.Addr().String())
	return func() { _ = server.Close() }, nil
}
