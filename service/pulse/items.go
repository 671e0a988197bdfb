package pulse

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/ogenerrors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/combine"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// maxWorkerItems is the largest number of items in one call of a worker.
const maxWorkerItems = 1000

// item is what a worker's call asks of one attempt, and what it is answered. Each call uses its own part.
type item struct {
	call      *workerCall
	attemptID orbit.ID
	token     orbit.Digest // of the token sent; zero matches nothing
	digest    orbit.Digest // of the item's meaning
	progress  *string      // heartbeat
	said      submission   // finish
	reason    string       // release

	err      error // refusal; without one the answer is in the part of the call
	started  api.StartedAttempt
	renewed  api.RenewedAttempt
	released api.ReleasedAttempt
	receipt  []byte
	replayed bool
	evidence orbit.ID
}

// workerCall is one call of a worker on attempts.
type workerCall struct {
	caller     platform.Caller
	instanceID orbit.ID
	epoch      int64
	items      []*item

	err        error                 // refuses the whole call
	head       pulsedb.ShareFenceRow // the session, as the fence found it
	superseded bool                  // the call's epoch is not the current one, or it was closed
	again      bool                  // the batch could not judge the call, which is then judged by itself
	patient    bool                  // judged by itself: it keeps nobody waiting, and waits for rows itself
}

func (i *item) actor() orbit.NullID { return i.call.caller.ActorID.Null() }

func attemptIDs(items []*item) []orbit.ID {
	ids := make([]orbit.ID, len(items))
	for k, i := range items {
		ids[k] = i.attemptID
	}
	return ids
}

// decodable is a generated item type.
type decodable interface {
	Decode(d *jx.Decoder) error
	Validate() error
}

// decodeItem reads and checks one raw item by itself, so that a bad one harms no other.
func decodeItem(ctx context.Context, raw jx.Raw, place int, into decodable) error {
	scanned := body.From(ctx).Items[place]
	if scanned.Faults != nil {
		return scanned.Faults
	}
	if err := into.Decode(jx.DecodeBytes(raw)); err != nil {
		return badItem(err)
	}
	return into.Validate()
}

func badItem(err error) error { return &ogenerrors.DecodeRequestError{Err: err} }

// readToken gives the digest that a token is compared by; an ill-formed one matches nothing.
func readToken(text string) orbit.Digest {
	token, err := orbit.ParseToken(text)
	if err != nil {
		return orbit.Digest{}
	}
	return token.Digest()
}

func checkCount(n, least int) error {
	if n < least || n > maxWorkerItems {
		return fault.Invalid("/items", "length", "a call has %d to %d items, this one has %d", least, maxWorkerItems, n)
	}
	return nil
}

// errSkipped marks an item whose row somebody else holds.
var errSkipped = &fault.Fault{Code: fault.Unavailable, Detail: "the attempt is being changed by another call; try again", RetryAfter: time.Second}

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
	judge func(ctx context.Context, tx *dbtx.Tx, namespaceID orbit.ID, calls []*workerCall, items []*item) error
	calls combine.Combiner[*workerCall]
}

func newWorkerOp(s *Service, name string, held whenHeld, judge func(ctx context.Context, tx *dbtx.Tx, namespaceID orbit.ID, calls []*workerCall, items []*item) error) *workerOp {
	op := &workerOp{name: name, held: held, judge: judge}
	op.calls.Patience = patience
	op.calls.Run = func(namespaceID orbit.ID, calls []*workerCall) { s.together(op, namespaceID, calls) }
	return op
}

// perform answers a call. What its batch could not judge, it settles by itself, so that it keeps nobody else waiting.
func (s *Service) perform(ctx context.Context, op *workerOp, c *workerCall) error {
	ns := c.caller.NamespaceID
	op.calls.Do(combine.Call[*workerCall]{NamespaceID: ns, Items: max(1, len(c.items)), Bytes: c.bytes(), Work: c})
	c.patient = true
	if c.again {
		s.together(op, ns, []*workerCall{c})
	}
	if c.err != nil {
		return c.err
	}
	away := false
	for _, i := range c.items {
		switch {
		case !op.goesAlone(i):
		case away:
			i.err = errUntried
		default:
			err := s.Lane.Run(ctx, op.name, func(ctx context.Context, tx *dbtx.Tx) error {
				reset([]*workerCall{c}, []*item{i})
				if err := op.judge(ctx, tx, ns, []*workerCall{c}, []*item{i}); err != nil {
					return err
				}
				return c.err
			})
			if err != nil {
				i.err, away = err, dbtx.IsAway(err) && !dbtx.IsLockWait(err)
			}
			c.err = nil
		}
	}
	return nil
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
	err := s.Batch.Run(context.Background(), op.name, func(ctx context.Context, tx *dbtx.Tx) error {
		reset(calls, first)
		return op.judge(ctx, tx, ns, calls, first)
	})
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
	}
	for _, i := range items {
		*i = item{call: i.call, attemptID: i.attemptID, token: i.token, digest: i.digest, progress: i.progress, said: i.said, reason: i.reason}
	}
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

// fence shares the session heads of calls until the commit: no newer incarnation opens, and none is closed. A call whose
// instance does not exist or is not its caller's is refused; one whose head somebody holds is judged by itself.
func fence(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, calls []*workerCall) error {
	heads, err := shareHeads(ctx, q, ns, calls)
	if err != nil {
		return err
	}
	for _, c := range calls {
		head, found := heads[c.instanceID]
		switch {
		case !found && !c.patient:
			c.again = true
		case !found || head.ActorID != c.caller.ActorID:
			c.err = fault.Missing("worker instance")
		default:
			c.head = head
			c.superseded = head.InstanceID != c.instanceID || head.Epoch != c.epoch || head.ClosedAt != nil
		}
	}
	return nil
}

func shareHeads(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, calls []*workerCall) (map[orbit.ID]pulsedb.ShareFenceRow, error) {
	if calls[0].patient {
		head, err := q.ShareFence(ctx, pulsedb.ShareFenceParams{NamespaceID: ns, InstanceID: calls[0].instanceID})
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return map[orbit.ID]pulsedb.ShareFenceRow{head.OwnInstanceID: head}, err
	}
	ids := make([]orbit.ID, len(calls))
	for k, c := range calls {
		ids[k] = c.instanceID
	}
	rows, err := q.ShareFences(ctx, pulsedb.ShareFencesParams{NamespaceID: ns, InstanceIds: ids})
	heads := make(map[orbit.ID]pulsedb.ShareFenceRow, len(rows))
	for _, r := range rows {
		heads[r.OwnInstanceID] = pulsedb.ShareFenceRow(r)
	}
	return heads, err
}

// fenceCurrent is fence for operations that an old incarnation must not do at all, and answers the items of the calls that may.
func fenceCurrent(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, calls []*workerCall, items []*item) ([]*item, error) {
	if err := fence(ctx, q, ns, calls); err != nil {
		return nil, err
	}
	for _, c := range calls {
		if c.superseded {
			c.err = errSuperseded(c.head)
		}
	}
	return fenced(items), nil
}

// fenced leaves out the items of calls that were refused or are judged by themselves.
func fenced(items []*item) []*item {
	return slices.DeleteFunc(slices.Clone(items), func(i *item) bool { return i.call.err != nil || i.call.again })
}

func errSuperseded(head pulsedb.ShareFenceRow) error {
	if head.ClosedAt != nil {
		return fault.New(fault.SessionSuperseded, "this worker session was closed; open a new one with a new instance_id")
	}
	return fault.New(fault.SessionSuperseded, "a newer incarnation of this worker holds the session (epoch %d); this one must stop", head.Epoch)
}

// hold locks the attempts of items by primary key, and answers the items whose attempt does not exist, is not theirs, or is held elsewhere.
// What it returns is held until the commit. The single item of a patient call waits for its row.
func hold(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, items []*item) (map[*item]pulsedb.PulseAttempt, error) {
	rows, err := lockAttempts(ctx, q, ns, attemptIDs(items), len(items) == 1 && items[0].call.patient)
	if err != nil {
		return nil, err
	}
	byID := make(map[orbit.ID]pulsedb.PulseAttempt, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	var absent, refused []*item
	held := make(map[*item]pulsedb.PulseAttempt, len(rows))
	for _, i := range items {
		row, ok := byID[i.attemptID]
		switch {
		case !ok:
			absent = append(absent, i)
		case row.TokenDigest != i.token || row.InstanceID != i.call.instanceID || row.Epoch != i.call.epoch:
			refused = append(refused, i)
		default:
			held[i] = row
		}
	}
	if err := refuseTokens(ctx, q, ns, refused, byID); err != nil {
		return nil, err
	}
	return held, explainAbsent(ctx, q, ns, absent)
}

// refuseTokens answers items whose token is not that of their attempt. Who does not see the attempt's queue is not told that there is one.
func refuseTokens(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, items []*item, byID map[orbit.ID]pulsedb.PulseAttempt) error {
	if len(items) == 0 {
		return nil
	}
	names := map[orbit.ID]string{}
	for _, i := range items {
		names[byID[i.attemptID].QueueID] = ""
	}
	queues, err := q.ListQueuesByID(ctx, pulsedb.ListQueuesByIDParams{NamespaceID: ns, Ids: keys(names)})
	if err != nil {
		return err
	}
	for _, queue := range queues {
		names[queue.ID] = queue.Name
	}
	for _, i := range items {
		i.err = fault.New(fault.StaleAttempt, "the token is not that of this attempt for this instance and epoch")
		if !i.call.caller.SeesQueue(names[byID[i.attemptID].QueueID]) {
			i.err = fault.Missing(kindAttempt)
		}
	}
	return nil
}

// lockAttempts skips what is held elsewhere, so that one held row does not stall strangers; a patient caller waits for its single one.
func lockAttempts(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, ids []orbit.ID, patient bool) ([]pulsedb.PulseAttempt, error) {
	switch {
	case len(ids) == 0:
		return nil, nil
	case patient:
		row, err := q.LockAttempt(ctx, pulsedb.LockAttemptParams{NamespaceID: ns, ID: ids[0]})
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return []pulsedb.PulseAttempt{row}, err
	}
	return q.LockAttempts(ctx, pulsedb.LockAttemptsParams{NamespaceID: ns, Ids: ids})
}

// explainAbsent tells an attempt that does not exist from one that is held elsewhere.
func explainAbsent(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, absent []*item) error {
	if len(absent) == 0 {
		return nil
	}
	rows, err := q.ListAttemptsByID(ctx, pulsedb.ListAttemptsByIDParams{NamespaceID: ns, Ids: attemptIDs(absent)})
	if err != nil {
		return err
	}
	exists := map[orbit.ID]bool{}
	for _, r := range rows {
		exists[r.ID] = true
	}
	for _, i := range absent {
		i.err = fault.Missing("attempt")
		if exists[i.attemptID] {
			i.err = errSkipped
		}
	}
	return nil
}

// endingsOf joins held attempts with their tasks and queues, as settle needs them. The task rows are read without locks: the
// held attempt is the licence, and nobody else writes the task.
func endingsOf(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, attempts []pulsedb.PulseAttempt) (map[orbit.ID]ending, error) {
	if len(attempts) == 0 {
		return nil, nil
	}
	taskIDs := make([]orbit.ID, len(attempts))
	queueIDs := map[orbit.ID]bool{}
	for i, a := range attempts {
		taskIDs[i] = a.TaskID
		queueIDs[a.QueueID] = true
	}
	heads, err := q.ListTaskHeads(ctx, pulsedb.ListTaskHeadsParams{NamespaceID: ns, Ids: taskIDs})
	if err != nil {
		return nil, err
	}
	queues, err := q.ListQueuesByID(ctx, pulsedb.ListQueuesByIDParams{NamespaceID: ns, Ids: keys(queueIDs)})
	if err != nil {
		return nil, err
	}
	taskByID := make(map[orbit.ID]pulsedb.ListTaskHeadsRow, len(heads))
	for _, t := range heads {
		taskByID[t.ID] = t
	}
	queueByID := make(map[orbit.ID]pulsedb.PulseQueue, len(queues))
	for _, row := range queues {
		queueByID[row.ID] = row
	}
	endings := make(map[orbit.ID]ending, len(attempts))
	for _, a := range attempts {
		endings[a.ID] = ending{attempt: a, task: taskByID[a.TaskID], queue: queueByID[a.QueueID]}
	}
	return endings, nil
}

// encodeItems writes the reply of a call, a result an item in order.
func encodeItems[T interface{ Encode(e *jx.Encoder) }](items []*item, result func(i *item) T) jx.Raw {
	var e jx.Encoder
	e.ObjStart()
	e.FieldStart("items")
	e.ArrStart()
	for _, i := range items {
		result(i).Encode(&e)
	}
	e.ArrEnd()
	e.ObjEnd()
	return e.Bytes()
}

func (s *Service) problem(ctx context.Context, err error) (int, api.OptProblem) {
	p := s.Problem(ctx, err)
	return p.Status, api.NewOptProblem(p)
}
