package pulse

import (
	"context"
	"time"

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
	claim      *claimCall // with finish: what is claimed in the same transaction

	err        error                  // refuses the whole call
	head       pulsedb.ShareFencesRow // the session, as the fence found it
	superseded bool                   // the call's epoch is not the current one, or it was closed
	again      bool                   // the batch could not judge the call, which is then judged by itself
	patient    bool                   // judged by itself: it keeps nobody waiting, and waits for rows itself
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

// askAttempts locks the attempts of all items by primary key, until the commit, with task and queue as they are. It skips what is held elsewhere,
// so that one held row does not stall strangers; a patient call waits for its single one.
func (b *workerBatch) askAttempts(ctx context.Context, db dbtx.DBTX) (err error) {
	if len(b.items) == 0 {
		return nil
	}
	b.attempts, err = lockAttempts(ctx, pulsedb.New(db), b.ns, attemptIDs(b.items), len(b.items) == 1 && b.items[0].call.patient)
	return err
}

// hold finds the attempts of items among those that are locked, and answers the items whose attempt does not exist, is not theirs, or is held elsewhere.
func (b *workerBatch) hold(ctx context.Context, q *pulsedb.Queries, items []*item) (map[*item]ending, error) {
	byID := make(map[orbit.ID]ending, len(b.attempts))
	for _, r := range b.attempts {
		byID[r.PulseAttempt.ID] = endingOf(r)
	}
	var absent []*item
	held := make(map[*item]ending, len(items))
	for _, i := range items {
		e, ok := byID[i.attemptID]
		switch {
		case !ok:
			absent = append(absent, i)
		case !i.call.caller.SeesQueue(e.queue.Name) && !i.owns(e.attempt):
			i.err = fault.Missing(kindAttempt) // who does not see the queue is not told that there is such an attempt
		case !i.owns(e.attempt):
			i.err = fault.New(fault.StaleAttempt, "the token is not that of this attempt for this instance and epoch")
		default:
			held[i] = e
		}
	}
	return held, explainAbsent(ctx, q, b.ns, absent)
}

// owns reports whether the item shows the token of an attempt, for the instance and epoch it was offered to.
func (i *item) owns(a pulsedb.PulseAttempt) bool {
	return a.TokenDigest == i.token && a.InstanceID == i.call.instanceID && a.Epoch == i.call.epoch
}

func lockAttempts(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, ids []orbit.ID, patient bool) ([]pulsedb.LockAttemptsRow, error) {
	if !patient {
		return q.LockAttempts(ctx, pulsedb.LockAttemptsParams{NamespaceID: ns, Ids: ids})
	}
	rows, err := q.AwaitAttempts(ctx, pulsedb.AwaitAttemptsParams{NamespaceID: ns, Ids: ids})
	held := make([]pulsedb.LockAttemptsRow, len(rows))
	for k, r := range rows {
		held[k] = pulsedb.LockAttemptsRow(r)
	}
	return held, err
}

// endingOf is what deciders and settle need of a held attempt.
func endingOf(r pulsedb.LockAttemptsRow) ending {
	return ending{attempt: r.PulseAttempt, queue: r.PulseQueue, task: pulsedb.ListTaskHeadsRow{
		ID: r.ID, QueueID: r.QueueID, Type: r.Type, Priority: r.Priority, RankUs: r.RankUs, RunAt: r.RunAt, DeadlineAt: r.DeadlineAt,
		MaxAttempts: r.MaxAttempts, AttemptsUsed: r.AttemptsUsed, Generation: r.Generation, IdleOffers: r.IdleOffers, OriginKind: r.OriginKind, OriginID: r.OriginID, State: r.State, Revision: r.Revision,
	}}
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
		i.err = fault.Missing(kindAttempt)
		if exists[i.attemptID] {
			i.err = errSkipped
		}
	}
	return nil
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
