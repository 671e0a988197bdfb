// Package platform holds what every module stands on: callers and their grants, idempotency, events and their order,
// audit, replicas.
package platform

import (
	"context"
	"log/slog"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/loop"
)

// Service is the platform module. Its methods named as operations are the operations; all are safe for concurrent use.
type Service struct {
	// Lane runs single items: at most a few connections, so that waiting duplicates starve nobody; lock wait 5 s.
	Lane *dbtx.Pool
	// Batch runs many items in one transaction; lock wait 1 s.
	Batch *dbtx.Pool
	Log   *slog.Logger
	// Clock is the host's clock. It measures and makes the prefixes of ids; it decides nothing.
	Clock func() time.Time
	// KeyLife is how long a reply is kept under its key; at least MinKeyLife.
	KeyLife time.Duration
	// TombstoneLife is how long a key refuses repeats after its reply is gone.
	TombstoneLife time.Duration
	// EventLife is how long events stay in the feed.
	EventLife time.Duration
	// RatePerSecond is the rate limit of credentials that carry none of their own; 0 means none.
	RatePerSecond int
	Replica       Replica

	// OnPeers is given at most MaxPeers other replicas that take nudges, after each renewal of this one's row; nil means that nobody wants to know.
	OnPeers  func(peers []platformdb.HostListPeersRow)
	MaxPeers int32

	// OnNamespace is called in the transaction that creates a namespace, for the rows that a module needs from the start.
	OnNamespace []func(ctx context.Context, tx *dbtx.Tx, namespaceID orbit.ID) error
	// Resources tells, by kind, whether a caller may see a resource as rights are now. A kind that is not in it is not seen.
	Resources map[string]func(ctx context.Context, c Caller, id orbit.ID) (bool, error)
	// Keyed is every operation that takes an Idempotency-Key, by operationId.
	Keyed map[string]Keyed

	access  access
	denials denials
	turns   *turns
	spooled *loop.Alarm
	waiting chan struct{} // places of those who wait for a key
}

// New makes the module; the fields of s that are exported must be set.
func New(s Service) *Service {
	s.access = newAccess()
	s.denials = newDenials()
	s.turns = &turns{}
	s.spooled = loop.NewAlarm()
	s.waiting = make(chan struct{}, maxWaiting)
	return &s
}

// MinKeyLife is the least life of a key: a business may come back after 6 days and then try for 24 hours more.
const MinKeyLife = 8 * 24 * time.Hour

// Replica identifies this process.
type Replica struct {
	ID      orbit.ID
	Host    string
	Version string
	// Grace is the longest time between two renewals that still counts as an unbroken run.
	Grace time.Duration
	// NudgeAddress is where others send nudges to, as ip:port; empty means nowhere. NudgeKey authenticates them.
	NudgeAddress string
	NudgeKey     orbit.Digest
}

// Kinds of resources and of aggregates in events.
const kindCredential = "credential"
