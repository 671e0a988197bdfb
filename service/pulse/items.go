package pulse

import (
	"context"
	"slices"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/ogenerrors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// maxWorkerItems is the largest number of items in one call of a worker.
const maxWorkerItems = 1000

// workerItem is one item of a call on attempts, as far as all calls share it.
type workerItem struct {
	attemptID orbit.ID
	token     orbit.Digest // of the token sent
	digest    orbit.Digest // of the item's meaning
	err       error        // the answer, if the item was refused
}

func (i *workerItem) item() *workerItem { return i }

// decodable is a generated item type.
type decodable interface {
	Decode(d *jx.Decoder) error
	Validate() error
}

// decodeItem reads and checks one raw item by itself, so that a bad one harms no other.
func decodeItem(ctx context.Context, raw jx.Raw, place int, into decodable) error {
	if scanned := body.From(ctx).Items; place < len(scanned) && scanned[place].Faults != nil {
		return scanned[place].Faults
	}
	if err := into.Decode(jx.DecodeBytes(raw)); err != nil {
		return badItem(err)
	}
	return into.Validate()
}

func badItem(err error) error { return &ogenerrors.DecodeRequestError{Err: err} }

// readToken gives the digest a token is compared by; an ill-formed one matches nothing.
func readToken(text string) orbit.Digest {
	token, err := orbit.ParseToken(text)
	if err != nil {
		return orbit.Digest{}
	}
	return token.Digest()
}

func checkCount(n, least int) *fault.Fault {
	if n < least || n > maxWorkerItems {
		return fault.Invalid("/items", "length", "a call has %d to %d items, this one has %d", least, maxWorkerItems, n)
	}
	return nil
}

// hold locks the attempts of all items that are still unanswered, by primary key. What somebody else holds is skipped, and what does not
// exist is absent. In a call of one item it waits for the row instead.
func hold(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, ids []orbit.ID) (map[orbit.ID]pulsedb.PulseAttempt, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if len(ids) == 1 {
		row, err := q.LockAttempt(ctx, pulsedb.LockAttemptParams{NamespaceID: ns, ID: ids[0]})
		if isNoRows(err) {
			return nil, nil
		}
		return map[orbit.ID]pulsedb.PulseAttempt{row.ID: row}, err
	}
	slices.SortFunc(ids, orbit.ID.Compare)
	rows, err := q.LockAttempts(ctx, pulsedb.LockAttemptsParams{NamespaceID: ns, Ids: ids})
	held := make(map[orbit.ID]pulsedb.PulseAttempt, len(rows))
	for _, r := range rows {
		held[r.ID] = r
	}
	return held, err
}

// errSkipped marks an item whose row somebody else holds: it goes to the single lane.
var errSkipped = fault.New(fault.Unavailable, "the attempt is being changed by another call; try again")

// endingsOf joins held attempts with their tasks and queues, as settle needs them. The task rows are read without locks: the
// held attempt is the licence, and nobody else writes the task.
func endingsOf(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, attempts []pulsedb.PulseAttempt) ([]ending, error) {
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
	endings := make([]ending, len(attempts))
	for i, a := range attempts {
		endings[i] = ending{attempt: a, task: taskByID[a.TaskID], queue: queueByID[a.QueueID]}
	}
	return endings, nil
}

// together runs a worker call's items in one transaction, then alone those that were skipped, or all if the
// transaction failed before its commit. Duplicates of an attempt in one call are answered by the first.
func (s *Service) together(ctx context.Context, op string, items []*workerItem, run func(ctx context.Context, tx *dbtx.Tx, items []*workerItem) error) error {
	open := slices.DeleteFunc(slices.Clone(items), func(i *workerItem) bool { return i.err != nil })
	err := s.Batch.Run(ctx, op, func(ctx context.Context, tx *dbtx.Tx) error {
		for _, i := range open {
			i.err = nil
		}
		return run(ctx, tx, open)
	})
	if err != nil && (len(open) <= 1 || !rerunsAlone(err)) {
		return err
	}
	for _, i := range open {
		if err == nil && i.err != error(errSkipped) {
			continue
		}
		lone := s.Lane.Run(ctx, op, func(ctx context.Context, tx *dbtx.Tx) error {
			i.err = nil
			return run(ctx, tx, []*workerItem{i})
		})
		if lone != nil {
			i.err = lone
		}
	}
	return nil
}
