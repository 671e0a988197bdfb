package pulse

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/ogenerrors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// maxWorkerItems is the largest number of items in one call of a worker.
const maxWorkerItems = 1000

// item is what a worker's call asks of one attempt, and what it is answered. Each call uses its own part.
type item struct {
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

// call is what the items of one call share.
type call struct {
	caller     platform.Caller
	instanceID orbit.ID
	epoch      int64
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
var errSkipped = fault.New(fault.Unavailable, "the attempt is being changed by another call; try again")

// errUntried marks the items after one that found the database away: one wait for it is enough for a call.
var errUntried = fault.New(fault.Unavailable, "the database cannot be reached and nothing was done; try again")

// whenHeld is what becomes of an item whose row somebody else holds.
type whenHeld bool

const (
	waitsAlone whenHeld = true  // for the row, in the single lane, after the others
	comesAgain whenHeld = false // the caller repeats it anyway
)

// together judges the items of a call in one transaction. Repeats of an attempt in the same call go through the single lane
// afterwards; if the transaction failed before its commit, all go there. An error is one of the whole call: a fence, or an unknown
// commit.
func (s *Service) together(ctx context.Context, op string, items []*item, held whenHeld, judge func(ctx context.Context, tx *dbtx.Tx, items []*item) error) error {
	seen := map[orbit.ID]bool{}
	var first, alone []*item
	for _, i := range items {
		switch {
		case i.err != nil:
		case seen[i.attemptID]:
			alone = append(alone, i)
		default:
			seen[i.attemptID] = true
			first = append(first, i)
		}
	}
	pool := s.Batch
	if len(first) == 1 {
		pool = s.Lane
	}
	err := pool.Run(ctx, op, func(ctx context.Context, tx *dbtx.Tx) error {
		reset(first)
		return judge(ctx, tx, first)
	})
	switch {
	case err != nil && (len(first) <= 1 || concernsCall(err)):
		return err
	case err != nil:
		alone = append(first, alone...)
	case held == waitsAlone:
		skipped := slices.DeleteFunc(first, func(i *item) bool { return !errors.Is(i.err, errSkipped) })
		alone = append(skipped, alone...)
	}
	away := false
	for _, i := range alone {
		if away {
			i.err = errUntried
			continue
		}
		if err := s.Lane.Run(ctx, op, func(ctx context.Context, tx *dbtx.Tx) error {
			reset([]*item{i})
			return judge(ctx, tx, []*item{i})
		}); err != nil {
			i.err, away = err, dbtx.IsAway(err) && !dbtx.IsLockWait(err)
		}
	}
	return nil
}

// reset keeps no answer of an earlier run of the transaction.
func reset(items []*item) {
	for _, i := range items {
		*i = item{attemptID: i.attemptID, token: i.token, digest: i.digest, progress: i.progress, said: i.said, reason: i.reason}
	}
}

func concernsCall(err error) bool {
	var f *fault.Fault
	var unknown *dbtx.UnknownCommit
	return errors.As(err, &f) || errors.As(err, &unknown)
}

// fence shares the session head of a call's instance until the commit and checks that the instance is the caller's.
// Superseded tells that the epoch is not the current one, or that it was closed.
func fence(ctx context.Context, q *pulsedb.Queries, c call) (head pulsedb.ShareFenceRow, superseded bool, err error) {
	head, err = q.ShareFence(ctx, pulsedb.ShareFenceParams{NamespaceID: c.caller.NamespaceID, InstanceID: c.instanceID})
	if errors.Is(err, sql.ErrNoRows) || (err == nil && head.ActorID != c.caller.ActorID) {
		return head, false, fault.Missing("worker instance")
	}
	return head, head.InstanceID != c.instanceID || head.Epoch != c.epoch || head.ClosedAt != nil, err
}

func errSuperseded(head pulsedb.ShareFenceRow) error {
	if head.ClosedAt != nil {
		return fault.New(fault.SessionSuperseded, "this worker session was closed; open a new one with a new instance_id")
	}
	return fault.New(fault.SessionSuperseded, "a newer incarnation of this worker holds the session (epoch %d); this one must stop", head.Epoch)
}

// hold locks the attempts of items by primary key, and answers the items whose attempt does not exist, is not theirs, or is held elsewhere.
// What it returns is held until the commit. A single item waits for its row.
func hold(ctx context.Context, q *pulsedb.Queries, c call, items []*item) (map[*item]pulsedb.PulseAttempt, error) {
	ns := c.caller.NamespaceID
	ids := make([]orbit.ID, len(items))
	for k, i := range items {
		ids[k] = i.attemptID
	}
	rows, err := lockAttempts(ctx, q, ns, ids)
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
		case row.TokenDigest != i.token || row.InstanceID != c.instanceID || row.Epoch != c.epoch:
			refused = append(refused, i)
		default:
			held[i] = row
		}
	}
	if err := refuseTokens(ctx, q, c.caller, refused, byID); err != nil {
		return nil, err
	}
	return held, explainAbsent(ctx, q, ns, absent)
}

// refuseTokens answers items whose token is not that of their attempt. Who does not see the attempt's queue is not told that there is one.
func refuseTokens(ctx context.Context, q *pulsedb.Queries, c platform.Caller, items []*item, byID map[orbit.ID]pulsedb.PulseAttempt) error {
	if len(items) == 0 {
		return nil
	}
	refs := make([]queueRef, len(items))
	for k, i := range items {
		refs[k].id = byID[i.attemptID].QueueID
	}
	queues, err := findQueues(ctx, q, c, refs)
	if err != nil {
		return err
	}
	for k, i := range items {
		i.err = fault.New(fault.StaleAttempt, "the token is not that of this attempt for this instance and epoch")
		if queues[k] == nil {
			i.err = fault.Missing(kindAttempt)
		}
	}
	return nil
}

// lockAttempts skips what is held elsewhere, so that one held row does not stall strangers; a single one it waits for.
func lockAttempts(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, ids []orbit.ID) ([]pulsedb.PulseAttempt, error) {
	switch len(ids) {
	case 0:
		return nil, nil
	case 1:
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
	ids := make([]orbit.ID, len(absent))
	for k, i := range absent {
		ids[k] = i.attemptID
	}
	rows, err := q.ListAttemptsByID(ctx, pulsedb.ListAttemptsByIDParams{NamespaceID: ns, Ids: ids})
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
