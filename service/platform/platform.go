// Package platform holds what every module stands on: callers and their grants, idempotency, events and their order,
// audit, replicas.
package platform

import (
	"log/slog"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// Service is the platform module. Its methods named as operations are the operations; all are safe for concurrent use.
type Service struct {
	// Lane runs single items: at most a few connections, so that waiting duplicates starve nobody; lock wait 5 s.
	Lane *dbtx.Pool
	// Batch runs many items in one transaction; lock wait 1 s.
	Batch *dbtx.Pool
	Log   *slog.Logger
	// KeyLife is how long a reply is kept under its key; at least MinKeyLife.
	KeyLife time.Duration
	// TombstoneLife is how long a key refuses repeats after its reply is gone.
	TombstoneLife time.Duration
	// EventLife is how long events stay in the feed.
	EventLife time.Duration
	// RatePerSecond is the rate limit of credentials that carry none of their own.
	RatePerSecond int
	Replica       Replica

	access access
}

// MinKeyLife is the least life of a key: a business may come back after 6 days and then try for 24 hours more.
const MinKeyLife = 8 * 24 * time.Hour

// Replica identifies this process.
type Replica struct {
	ID      orbit.ID
	Host    string
	Version string
}
