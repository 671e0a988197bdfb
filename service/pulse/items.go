package pulse

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/ogenerrors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/body"
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
