package pulse

import (
	"context"
	"errors"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/combine"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// errUntried marks the items after one that found the database away: one wait for it is enough for a call.
var errUntried = &fault.Fault{Code: fault.Unavailable, Detail: "the database cannot be reached and nothing was done; try again", RetryAfter: time.Second}

// whenHeld is what becomes of an item whose row somebody else holds.
type whenHeld bool

const (
	waitsAlone whenHeld = true  // for the row, in the single lane, after the others
	comesAgain whenHeld = false // the caller repeats it anyway; only the single item of a call waits
)

// workerOp is an operation on attempts, written once for a batch of calls: concurrent calls of a namespace share a transaction.
type workerOp struct {
	name  string
	held  whenHeld
	gated bool // it may start something, and so shares the root gate
	judge judgeItems
	calls combine.Combiner[*workerCall]
}

// judgeItems answers the items of a batch, in a transaction in which their attempts are held.
type judgeItems func(ctx context.Context, tx *dbtx.Tx, b *workerBatch) error

func newWorkerOp(s *Service, name string, held whenHeld, judge judgeItems) *workerOp {
	op := &workerOp{name: name, held: held, judge: judge}
	op.calls.Patience = patience
	op.calls.Run = func(namespaceID orbit.ID, calls []*workerCall) { s.together(op, namespaceID, calls) }
	return op
}

// perform answers a call. What its batch could not judge, it settles by itself, so that it keeps nobody else waiting.
func (s *Service) perform(ctx context.Context, op *workerOp, c *workerCall) error {
	ns := c.caller.NamespaceID
	op.calls.Do(combine.Call[*workerCall]{NamespaceID: ns, Items: c.size(), Bytes: c.bytes(), Work: c})
	c.patient = true
	if c.again {
		s.together(op, ns, []*workerCall{c})
	}
	if c.err != nil {
		return c.err
	}
	c.claim = nil // it was made with the others, or not at all: the lane is for single items
	away := false
	for _, i := range c.items {
		switch {
		case !op.goesAlone(i):
		case away:
			i.err = errUntried
		default:
			b := &workerBatch{ns: ns, calls: []*workerCall{c}, items: []*item{i}}
			if err := b.run(ctx, s.Lane, op); err != nil {
				i.err, away = err, dbtx.IsAway(err) && !dbtx.IsLockWait(err)
			}
			if i.err == nil {
				i.err = c.err
			}
			c.err = nil
		}
	}
	return nil
}

// workerBatch is calls of a namespace that are judged in one transaction, where each attempt stands once.
type workerBatch struct {
	ns    orbit.ID
	calls []*workerCall
	items []*item

	// What is read, and locked in this order, with the opening of the transaction.
	heads    map[orbit.ID]pulsedb.ShareFencesRow
	root     pulsedb.ShareRootGateRow
	front    front // of claims made with results
	attempts []pulsedb.LockAttemptsRow
}

func (b *workerBatch) run(ctx context.Context, pool *dbtx.Pool, op *workerOp) error {
	var claims []*claimCall
	for _, c := range b.calls {
		if c.claim != nil {
			claims = append(claims, c.claim)
		}
	}
	questions := []dbtx.Question{
		askHeads(b.ns, b.calls, &b.heads), askRootGate(b.ns, op.gated || anyStarts(claims), &b.root), b.front.ask(b.ns, claims), b.askAttempts,
	}
	return pool.Run(ctx, op.name, func(ctx context.Context, tx *dbtx.Tx) error {
		reset(b.calls, b.items)
		return op.judge(ctx, tx, b)
	}, questions...)
}

// errAlone marks an item that its batch did not judge: a repeat of an attempt, or one of a transaction that failed.
var errAlone = errors.New("judged alone")

func (op *workerOp) goesAlone(i *item) bool {
	return errors.Is(i.err, errAlone) || errors.Is(i.err, errSkipped) && (op.held == waitsAlone || len(i.call.items) == 1)
}

// together judges calls of a namespace in one transaction, where each attempt stands once. A transaction that failed before its commit
// leaves several calls to be judged one by one, and the items of a single call to be judged one by one. After an unknown commit
// nothing is run again: the caller's tokens settle it.
func (s *Service) together(op *workerOp, ns orbit.ID, calls []*workerCall) {
	first := distinct(calls)
	b := &workerBatch{ns: ns, calls: calls, items: first}
	err := b.run(context.Background(), s.Batch, op)
	var unknown *dbtx.UnknownCommit
	switch {
	case err == nil:
	case errors.As(err, &unknown) || len(calls) == 1 && len(first) == 0:
		for _, c := range calls {
			c.err = err
		}
	case len(calls) == 1:
		for _, i := range first {
			i.err = errAlone
		}
	default:
		for _, c := range calls {
			c.err, c.again = nil, true
		}
		for _, i := range first {
			i.err = nil
		}
	}
	for _, c := range calls {
		if err != nil && c.claim != nil {
			c.claim.forget()
		}
	}
}

// distinct lists the items that were not refused yet, each attempt once; its repeats are left for the single lane.
func distinct(calls []*workerCall) []*item {
	seen := map[orbit.ID]bool{}
	var first []*item
	for _, c := range calls {
		for _, i := range c.items {
			switch {
			case i.err != nil && !errors.Is(i.err, errAlone):
			case seen[i.attemptID]:
				i.err = errAlone
			default:
				seen[i.attemptID] = true
				first = append(first, i)
			}
		}
	}
	return first
}

// reset keeps no answer of an earlier run of the transaction.
func reset(calls []*workerCall, items []*item) {
	for _, c := range calls {
		c.err, c.again, c.superseded = nil, false, false
		if c.claim != nil {
			c.claim.forget()
		}
	}
	for _, i := range items {
		*i = item{call: i.call, attemptID: i.attemptID, token: i.token, digest: i.digest, progress: i.progress, said: i.said, reason: i.reason}
	}
}

// size is how many items the call counts as in a batch.
func (c *workerCall) size() int {
	n := max(1, len(c.items))
	if c.claim != nil {
		n += c.claim.limit
	}
	return n
}

func (c *workerCall) bytes() int {
	n := 0
	for _, i := range c.items {
		if i.said.result != nil {
			n += len(*i.said.result)
		}
		if i.progress != nil {
			n += len(*i.progress)
		}
	}
	return n
}
