package pulse

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// How ready tasks become offers: by a claim, by one that comes with results, and, of new tasks, by the hand-off.

const (
	// inlineBytes is the largest payload read with its task; larger ones are read one by one, within maxOfferBytes.
	inlineBytes = 32 << 10
	// maxOfferBytes bounds the payloads of one reply; a single larger one travels alone.
	maxOfferBytes = 16 << 20
)

// front is the ready rows at the front of a queue, locked with the opening of a transaction because only one queue is claimed from.
type front struct {
	queueID orbit.ID
	rows    []pulsedb.LockReadyRow
}

func (f *front) ask(ns orbit.ID, claims []*claimCall) dbtx.Question {
	room := 0
	for _, c := range claims {
		room += c.limit
	}
	queueID, only := onlyQueue(claims)
	return func(ctx context.Context, db dbtx.DBTX) (err error) {
		if !only {
			return nil
		}
		f.queueID = queueID
		f.rows, err = pulsedb.New(db).LockReady(ctx, pulsedb.LockReadyParams{NamespaceID: ns, QueueID: queueID, Limit: int32(room)})
		return err
	}
}

func onlyQueue(claims []*claimCall) (id orbit.ID, only bool) {
	for _, c := range claims {
		for _, queueID := range c.queues {
			if !id.IsZero() && queueID != id {
				return id, false
			}
			id = queueID
		}
	}
	return id, !id.IsZero()
}

// take gives the rows of a queue, once.
func (f *front) take(queueID orbit.ID) (rows []pulsedb.LockReadyRow, looked bool) {
	if f.queueID != queueID {
		return nil, false
	}
	f.queueID = orbit.ID{}
	return f.rows, true
}

// admitted leaves out claims that were refused, or are now because they were abandoned, closed or superseded. Their heads are shared.
func admitted(claims []*claimCall) (open []*claimCall) {
	for _, c := range claims {
		switch {
		case c.err != nil || c.again:
		case c.superseded:
			c.err = errSuperseded(c.head)
		case c.seq <= c.head.AbandonedClaim:
			c.err = fault.New(fault.StateConflict, "claim_seq %d was released; claim with a number above %d", c.seq, c.head.AbandonedClaim)
		default:
			open = append(open, c)
		}
	}
	return open
}

// claimFenced takes ready rows for claims whose session heads are shared, queue by queue, the one with the first task first, for all claims that
// want of it. If anything may be started the root gate is shared.
func (s *Service) claimFenced(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, claims []*claimCall, gates closedGates, ahead *front) error {
	order, err := s.claimOrder(ctx, pulsedb.New(tx), ns, gates, claims)
	if err != nil {
		return err
	}
	for _, queueID := range order {
		if err := s.claimQueue(ctx, tx, ns, queueID, gates, claims, ahead); err != nil {
			return err
		}
	}
	return nil
}

// claimOrder leaves out queues that are paused or empty and sorts the others by their first task; both by an unlocked look.
func (s *Service) claimOrder(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, gates closedGates, claims []*claimCall) ([]orbit.ID, error) {
	wanted := map[orbit.ID]bool{}
	for _, c := range claims {
		for _, id := range c.queues {
			wanted[id] = true
		}
	}
	first := map[orbit.ID]pulsedb.PeekReadyRow{}
	var order []orbit.ID
	for id := range wanted {
		if gates.closedForQueue(id) {
			continue
		}
		if len(wanted) == 1 {
			return []orbit.ID{id}, nil // there is nothing to put in order
		}
		row, err := q.PeekReady(ctx, pulsedb.PeekReadyParams{NamespaceID: ns, QueueID: id})
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		first[id] = row
		order = append(order, id)
	}
	slices.SortFunc(order, func(a, b orbit.ID) int {
		return cmp.Or(cmp.Compare(first[a].Priority, first[b].Priority), cmp.Compare(first[a].RankUs, first[b].RankUs), a.Compare(b))
	})
	return order, nil
}

// claimGates are the closed gates, as a start must see them if a claim may start something, and else by a look if the fence hinted at some.
func claimGates(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, claims []*claimCall, root pulsedb.ShareRootGateRow) (closedGates, error) {
	hint := root.ClosedGates > 0
	for _, c := range claims {
		hint = hint || c.head.ClosedGates > 0
	}
	if !hint {
		return nil, nil
	}
	return peekGates(ctx, q, ns)
}

func anyStarts(claims []*claimCall) bool {
	return slices.ContainsFunc(claims, func(c *claimCall) bool { return c.start })
}

// claimQueue takes ready rows of one queue and turns them into offers, in turns among the claims that want of it:
//  1. the rows, in claim order, without waiting for rivals;
//  2. their tasks, read under that licence; one past its deadline fails here and now;
//  3. the rows deleted, the attempts inserted with the next generation.
//
// Where nothing but overdue tasks was at the front it looks again, a few times: those must not hide the others.
func (s *Service) claimQueue(ctx context.Context, tx *dbtx.Tx, ns, queueID orbit.ID, gates closedGates, claims []*claimCall, ahead *front) error {
	for range maxOverdueLooks {
		overdue, err := s.claimFront(ctx, tx, ns, queueID, gates, claims, ahead)
		if err != nil || !overdue {
			return err
		}
	}
	return nil
}

// maxOverdueLooks bounds how many stretches of overdue tasks one claim clears away.
const maxOverdueLooks = 8

// claimFront does claimQueue's steps once, and tells whether it met overdue tasks.
func (s *Service) claimFront(ctx context.Context, tx *dbtx.Tx, ns, queueID orbit.ID, gates closedGates, claims []*claimCall, ahead *front) (overdue bool, err error) {
	var takers []*claimCall
	room := 0
	for _, c := range claims {
		if slices.Contains(c.queues, queueID) && c.takes(0) {
			takers = append(takers, c)
			room += c.limit - len(c.offers)
		}
	}
	if room == 0 {
		return false, nil
	}
	q := pulsedb.New(tx)
	rows, looked := ahead.take(queueID)
	if !looked {
		rows, err = q.LockReady(ctx, pulsedb.LockReadyParams{NamespaceID: ns, QueueID: queueID, Limit: int32(room)})
	}
	if err != nil || len(rows) == 0 {
		return false, err
	}
	tasks, late, err := offerable(ctx, tx, q, ns, rows)
	if err != nil {
		return false, err
	}
	for _, id := range late {
		if err := s.failOverdueReady(ctx, tx, ns, id); err != nil {
			return false, err
		}
	}
	var taken []batch.ReadyRow
	var attempts [][]any
	turn := 0
	for _, row := range rows {
		task, ok := tasks[row.TaskID]
		if !ok {
			continue
		}
		c := nextTaker(takers, &turn, int(task.PayloadBytes))
		if c == nil {
			break
		}
		taken = append(taken, batch.ReadyRow{Priority: row.Priority, RankUs: row.RankUs, TaskID: row.TaskID})
		attempts = append(attempts, give(tx, ns, queueID, row, task, c, gates))
	}
	if len(taken) == 0 {
		return len(late) > 0, nil
	}
	batch.DeleteReady(tx, ns, queueID, taken)
	return len(late) > 0, batch.Insert(tx, pulsedb.InsertAttempt, attempts)
}

// failOverdueReady fails a ready task whose row this transaction holds.
func (s *Service) failOverdueReady(ctx context.Context, tx *dbtx.Tx, ns, taskID orbit.ID) error {
	l, err := takeLicence(ctx, pulsedb.New(tx), ns, taskID)
	if err != nil {
		return err
	}
	return s.endTask(ctx, tx, ns, system, l, fateFail, codeDeadlineExceeded, textDeadlineExceeded)
}

// nextTaker is the claim whose turn it is and which has room.
func nextTaker(takers []*claimCall, turn *int, bytes int) *claimCall {
	for range takers {
		c := takers[*turn%len(takers)]
		*turn++
		if c.takes(bytes) {
			return c
		}
	}
	return nil
}

// offerable reads the tasks behind ready rows, payloads included, as far as one batch's room goes; at least one fits. Those past their
// deadline are late, and no offers.
func offerable(ctx context.Context, tx *dbtx.Tx, q *pulsedb.Queries, ns orbit.ID, rows []pulsedb.LockReadyRow) (tasks map[orbit.ID]pulsedb.ListTasksToOfferRow, late []orbit.ID, err error) {
	ids := make([]orbit.ID, len(rows))
	for i, r := range rows {
		ids[i] = r.TaskID
	}
	found, err := q.ListTasksToOffer(ctx, pulsedb.ListTasksToOfferParams{InlineBytes: inlineBytes, NamespaceID: ns, Ids: ids})
	if err != nil {
		return nil, nil, err
	}
	byID := make(map[orbit.ID]pulsedb.ListTasksToOfferRow, len(found))
	for _, t := range found {
		byID[t.ID] = t
	}
	tasks = make(map[orbit.ID]pulsedb.ListTasksToOfferRow, len(found))
	var large []orbit.ID
	room := maxOfferBytes
	for _, r := range rows {
		t, ok := byID[r.TaskID]
		if !ok {
			return nil, nil, errors.New("a ready row has no task")
		}
		if t.DeadlineAt != nil && !t.DeadlineAt.After(tx.Now) {
			late = append(late, t.ID)
			continue
		}
		if room -= int(t.PayloadBytes); room < 0 && len(tasks) > 0 {
			break
		}
		if t.PayloadBytes > inlineBytes {
			large = append(large, t.ID)
		}
		tasks[t.ID] = t
	}
	if len(large) == 0 {
		return tasks, late, nil
	}
	payloads, err := q.ListPayloads(ctx, pulsedb.ListPayloadsParams{NamespaceID: ns, Ids: large})
	for _, p := range payloads {
		t := tasks[p.ID]
		t.InlinePayload = p.Payload
		tasks[p.ID] = t
	}
	return tasks, late, err
}

// give makes a task an offer of a claim, or starts it if the claim asks for that, its queue allows it and no gate is closed for it; it answers
// the attempt's row.
func give(tx *dbtx.Tx, ns, queueID orbit.ID, row pulsedb.LockReadyRow, task pulsedb.ListTasksToOfferRow, c *claimCall, gates closedGates) []any {
	id, token := orbit.NewID(tx.Now), orbit.NewToken()
	state, event, leaseMs, startedAt := orbit.AttemptOffered, "attempt.offered", task.OfferTimeoutMs, (*time.Time)(nil)
	if c.start && task.OneStep && gates.closedFor(queueID, task.Type, c.instanceID) == "" {
		state, event, leaseMs, startedAt = orbit.AttemptRunning, "attempt.started", task.LeaseMs, &tx.Now
	}
	until := tx.Now.Add(time.Duration(leaseMs) * time.Millisecond)
	o := api.Offer{
		AttemptID: id, TaskID: row.TaskID, QueueID: queueID, Type: task.Type, Generation: task.Generation + 1, AttemptNumber: int(task.AttemptsUsed) + 1,
		Token: token.Text(), OfferExpiresAt: until, LeaseMs: int64(task.LeaseMs), Payload: jx.Raw(task.InlinePayload), PayloadVersion: int64(task.PayloadVersion),
		Priority: int(row.Priority), RunAt: task.RunAt,
	}
	if startedAt != nil {
		o.StartedAt, o.LeaseUntil = api.NewOptDateTime(tx.Now), api.NewOptDateTime(until)
	}
	if task.DeadlineAt != nil {
		o.DeadlineAt = api.NewOptDateTime(*task.DeadlineAt)
	}
	if task.TraceParent != "" {
		o.Traceparent = api.NewOptString(task.TraceParent)
	}
	if task.TraceState != "" {
		o.Tracestate = api.NewOptString(task.TraceState)
	}
	c.offers, c.size = append(c.offers, o), c.size+int(task.PayloadBytes)
	emit(tx, ns, c.caller.ActorID.Null(), kindAttempt, id, 1, event, facts{"task_id": row.TaskID, "instance_id": c.instanceID, "generation": task.Generation + 1})
	return []any{ns, id, row.TaskID, queueID, task.Generation + 1, c.instanceID, c.head.SessionID, c.epoch, c.seq, token.Digest(), state,
		leaseMs, until, c.instanceID, queueID, tx.Now, startedAt}
}
