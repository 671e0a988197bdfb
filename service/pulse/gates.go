package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// closedGates are the closed gates of a namespace.
type closedGates map[pulsedb.ListClosedGatesRow]bool

// askRootGate shares the root row: until the commit no gate of the namespace closes, and none whose close has returned is missed.
// Nothing is asked where nothing may be started.
func askRootGate(ns orbit.ID, starts bool, root *pulsedb.ShareRootGateRow) dbtx.Question {
	return func(ctx context.Context, db dbtx.DBTX) (err error) {
		if !starts {
			return nil
		}
		*root, err = pulsedb.New(db).ShareRootGate(ctx, ns)
		return err
	}
}

// gatesUnder reads the closed gates under the shared root row, which says whether there are any.
func gatesUnder(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, root pulsedb.ShareRootGateRow) (closedGates, error) {
	if root.ClosedGates == 0 {
		return nil, nil
	}
	return peekGates(ctx, q, ns)
}

// peekGates reads them without a lock: a hint, for claims.
func peekGates(ctx context.Context, q *pulsedb.Queries, ns orbit.ID) (closedGates, error) {
	rows, err := q.ListClosedGates(ctx, ns)
	if err != nil {
		return nil, err
	}
	closed := closedGates{}
	for _, r := range rows {
		closed[r] = true
	}
	return closed, nil
}

// closedFor names the gate that keeps a task from starting on an instance, in the form blocked rows carry; empty means that all are open.
func (g closedGates) closedFor(queueID orbit.ID, taskType string, instanceID orbit.ID) string {
	if len(g) == 0 {
		return ""
	}
	for _, row := range []pulsedb.ListClosedGatesRow{
		{Scope: orbit.GateScopeNamespace}, {Scope: orbit.GateScopeQueue, ScopeID: queueID.String()},
		{Scope: orbit.GateScopeTaskType, ScopeID: taskType}, {Scope: orbit.GateScopeInstance, ScopeID: instanceID.String()},
	} {
		if g[row] {
			return gateBlocker(row.Scope, row.ScopeID)
		}
	}
	return ""
}

// closedForQueue reports whether claims leave a queue alone.
func (g closedGates) closedForQueue(queueID orbit.ID) bool {
	return g[pulsedb.ListClosedGatesRow{Scope: orbit.GateScopeNamespace}] ||
		g[pulsedb.ListClosedGatesRow{Scope: orbit.GateScopeQueue, ScopeID: queueID.String()}]
}

func gateBlocker(scope orbit.GateScope, scopeID string) string { return string(scope) + ":" + scopeID }

// CreateRootGate makes the row that starts share and closes hold; a namespace has it from its first moment.
func (s *Service) CreateRootGate(ctx context.Context, tx *dbtx.Tx, namespaceID orbit.ID) error {
	return pulsedb.New(tx).InsertRootGate(ctx, pulsedb.InsertRootGateParams{NamespaceID: namespaceID, UpdatedAt: tx.Now})
}
