package pulse

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// reads is for what needs no transaction: each statement is a snapshot of its own.
func (s *Service) reads() *pulsedb.Queries { return pulsedb.New(s.Batch.DB) }

// grantedQueue reads a queue as it is now; Missing(kind) if it does not exist for the caller.
func grantedQueue(ctx context.Context, q *pulsedb.Queries, c platform.Caller, id orbit.ID, kind string) (pulsedb.PulseQueue, error) {
	queues, err := findQueues(ctx, q, c, []queueRef{{id: id}})
	if err != nil {
		return pulsedb.PulseQueue{}, err
	}
	if queues[0] == nil {
		return pulsedb.PulseQueue{}, fault.Missing(kind)
	}
	return *queues[0], nil
}

// requireQueue answers Missing(kind) for a thing on a queue that was not granted to the caller.
func requireQueue(ctx context.Context, q *pulsedb.Queries, c platform.Caller, queueID orbit.ID, kind string) error {
	if c.SeesAllQueues() {
		return nil
	}
	_, err := grantedQueue(ctx, q, c, queueID, kind)
	return err
}

// revisionTag is the strong tag of what has a revision. The gate of a queue has a version of its own.
func revisionTag(revision int64) string { return strconv.Quote(strconv.FormatInt(revision, 10)) }

func viewQueue(r pulsedb.PulseQueue, paused bool) api.Queue {
	return api.Queue{
		ID: r.ID, Name: r.Name, LeaseMs: int64(r.LeaseMs), OfferTimeoutMs: int64(r.OfferTimeoutMs), MaxAttempts: int(r.MaxAttempts),
		BackoffInitialMs: int64(r.BackoffInitialMs), BackoffMaxMs: int64(r.BackoffMaxMs), RetentionMs: r.RetentionMs,
		UnknownOutcome: api.UnknownOutcome(r.UnknownOutcome), OneStep: r.OneStep, Paused: paused, Revision: r.Revision, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// queueGate reads the gate of a queue. One that was never closed has no row: it is open, at version 0.
func queueGate(ctx context.Context, q *pulsedb.Queries, queue pulsedb.PulseQueue) (pulsedb.PulseExecutionGate, error) {
	gate, err := q.GetGate(ctx, pulsedb.GetGateParams{NamespaceID: queue.NamespaceID, Scope: orbit.GateScopeQueue, ScopeID: queue.ID.String()})
	if errors.Is(err, sql.ErrNoRows) {
		return pulsedb.PulseExecutionGate{NamespaceID: queue.NamespaceID, Scope: orbit.GateScopeQueue, ScopeID: queue.ID.String(),
			State: orbit.GateOpen, UpdatedAt: queue.CreatedAt}, nil
	}
	return gate, err
}

// checkPolicy refuses what a schema of single members cannot.
func checkPolicy(r pulsedb.PulseQueue) error {
	if r.BackoffInitialMs > r.BackoffMaxMs {
		return fault.Invalid("/backoff_initial_ms", "above_maximum", "the initial backoff (%d ms) must not exceed backoff_max_ms (%d ms)", r.BackoffInitialMs, r.BackoffMaxMs)
	}
	if r.OneStep && r.UnknownOutcome != orbit.UnknownRetry {
		return fault.Invalid("/one_step", "needs_retry", "one_step needs unknown_outcome retry: of a task that was started by a claim whose reply was lost, nobody knows whether it ran")
	}
	return nil
}
