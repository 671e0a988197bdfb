// Package service puts the modules together behind the API: one http.Handler, one list of loops, and the commands that are given on
// the host. It holds no state of its own but the connections' and the edge's.
package service

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/finding"
	"github.com/orbit-run/orbit/service/internal/nudge"
	"github.com/orbit-run/orbit/service/platform"
	"github.com/orbit-run/orbit/service/pulse"
)

// Options is what a service is made of. DB and Lane are required; the zero value of everything else has a meaning.
type Options struct {
	// DB is for batches and reading; its sessions wait 1 s for a lock.
	DB *sql.DB
	// Lane is for single items: at most 16 connections, whose sessions wait 5 s for a lock.
	Lane *sql.DB
	// Logger gets the access log, failures and passes that failed; nil is silence.
	Logger *slog.Logger

	// ReplicaID names this process among the replicas; zero makes one.
	ReplicaID orbit.ID
	// Host and Version are for people who look at the list of replicas. An empty Host is the host's name.
	Host, Version string
	// ReplicaGrace is the longest gap between two renewals of the replica's row, which come every 2 s, that does not end its unbroken
	// run; 0 means 5 s. Leases are declared lost only after an unbroken run as long as the lease.
	ReplicaGrace time.Duration

	// IdempotencyLife is how long replies are kept under their keys; 0 means 8 days, and less is refused.
	IdempotencyLife time.Duration
	// TombstoneLife is how long after that a key still refuses repeats; 0 means 90 days.
	TombstoneLife time.Duration
	// EventRetention is how long events stay in the feed; 0 means 30 days.
	EventRetention time.Duration
	// RateLimitPerSecond holds for each credential that has no limit of its own; 0 means none.
	RateLimitPerSecond int
	// StatementTime bounds one run of a transaction, its waits for locks included; 0 means 10 s.
	StatementTime time.Duration
	// BodyTime bounds the arrival of one request body; 0 means 60 s.
	BodyTime time.Duration

	// NudgeConn carries hints to and from other replicas, by which a task that becomes ready on one wakes a claim that waits on another; nil
	// means that claims find such tasks later, by looking. The service takes it over.
	NudgeConn *net.UDPConn
	// NudgeAddress is where other replicas reach NudgeConn; zero means that they are not told, as where no claims wait.
	NudgeAddress netip.AddrPort

	// Registerer takes the metrics, whose names begin with orbit_; nil means none are kept.
	Registerer prometheus.Registerer
	// TracerProvider makes the spans of requests; nil is the global one.
	TracerProvider trace.TracerProvider

	// ClockOffset is added to the database's clock wherever it is read; nil means none. Only tests set it.
	ClockOffset func() time.Duration
	// HostClock measures durations and makes the prefixes of ids; it decides nothing. Nil is the host's clock.
	HostClock func() time.Time
}

// Service is a replica of Orbit. All methods are safe for concurrent use.
type Service struct {
	options  Options
	platform *platform.Service
	pulse    *pulse.Service
	metrics  metrics
	nudges   *nudge.Socket // nil if there are none
	http     http.Handler

	draining chan struct{}
	drain    sync.Once
}

// The types that commands on the host speak in.
type (
	Host          = platform.Host
	Application   = platform.Application
	Namespace     = platform.Namespace
	Bootstrap     = platform.Bootstrap
	NewCredential = platform.NewCredential
	Credential    = platform.Credential
	Issued        = platform.Issued
	Finding       = finding.Finding
)

// New puts a replica together. It asks nothing of the database: whether that can be used is for package schema to check before.
func New(o Options) (*Service, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Service{options: o, draining: make(chan struct{})}
	batches := &dbtx.Pool{DB: o.DB, Offset: o.ClockOffset, Timeout: o.StatementTime}
	lane := &dbtx.Pool{DB: o.Lane, Offset: o.ClockOffset, Timeout: o.StatementTime}
	s.platform = platform.New(platform.Service{
		Lane: lane, Batch: batches, Log: o.Logger, Clock: o.HostClock,
		KeyLife: o.IdempotencyLife, TombstoneLife: o.TombstoneLife, EventLife: o.EventRetention, RatePerSecond: o.RateLimitPerSecond,
		Replica: platform.Replica{ID: o.ReplicaID, Host: o.Host, Version: o.Version, Grace: o.ReplicaGrace},
	})
	batches.Spooled, lane.Spooled = s.platform.Spooled, s.platform.Spooled
	s.pulse = pulse.New(pulse.Service{
		Platform: s.platform, Lane: lane, Batch: batches, Log: o.Logger, Fresh: func(ctx context.Context, conn pulsedb.DBTX, now time.Time) (time.Duration, error) {
			return s.platform.FreshFor(ctx, conn, now)
		}, Problem: s.problem,
	})
	s.wire()
	var err error
	if s.metrics, err = newMetrics(o); err != nil {
		return nil, err
	}
	s.wireNudges()
	s.http, err = s.newEdge()
	return s, err
}

// wire gives platform what it asks of the modules that stand on it.
func (s *Service) wire() {
	s.platform.OnNamespace = append(s.platform.OnNamespace, s.pulse.CreateRootGate)
	s.platform.Resources = s.pulse.Resources()
	s.platform.Resources["credential"] = func(context.Context, platform.Caller, orbit.ID) (bool, error) {
		return true, nil // the action, which was checked, covers every credential of the namespace
	}
	s.platform.Keyed = maps.Clone(platform.KeyedOperations)
	maps.Copy(s.platform.Keyed, pulse.KeyedOperations)
}

func (o *Options) complete() error {
	if o.DB == nil || o.Lane == nil {
		return errors.New("service: both pools, DB and Lane, are required")
	}
	orElse(&o.ReplicaGrace, 5*time.Second)
	orElse(&o.IdempotencyLife, platform.MinKeyLife)
	orElse(&o.TombstoneLife, 90*24*time.Hour)
	orElse(&o.EventRetention, 30*24*time.Hour)
	orElse(&o.StatementTime, 10*time.Second)
	orElse(&o.BodyTime, time.Minute)
	if o.IdempotencyLife < platform.MinKeyLife {
		return fmt.Errorf("service: idempotency keys must live for at least %s, not %s: a caller may come back that late", platform.MinKeyLife, o.IdempotencyLife)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.HostClock == nil {
		o.HostClock = time.Now //nolint:forbidigo // the one place the host's clock comes in; it measures and names only
	}
	if o.ReplicaID.IsZero() {
		o.ReplicaID = orbit.NewID(o.HostClock())
	}
	if o.Host == "" {
		o.Host, _ = os.Hostname()
	}
	return nil
}

func orElse[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// Handler serves the API under /v1/. Every failure, of a path that does not exist too, is a problem document.
func (s *Service) Handler() http.Handler { return s.http }

// Host gives the commands of somebody with access to the host, named as user@host for the audit.
func (s *Service) Host(by string) Host { return s.platform.HostCommands(by) }

// Drain ends long polls at once and lets no new one wait; everything else goes on being answered. It is for the end of a replica.
func (s *Service) Drain() {
	s.drain.Do(func() { close(s.draining) })
	s.pulse.Drain()
}

// Draining is closed once Drain was called.
func (s *Service) Draining() <-chan struct{} { return s.draining }

// Verify looks for broken invariants of every module; none found is good. It may run beside everything else.
func (s *Service) Verify(ctx context.Context) ([]Finding, error) {
	found, err := s.platform.Verify(ctx)
	if err != nil {
		return found, err
	}
	more, err := s.pulse.Verify(ctx)
	return append(found, more...), err
}
