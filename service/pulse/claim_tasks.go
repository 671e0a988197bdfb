package pulse

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
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
	"github.com/orbit-run/orbit/service/platform"
)

const (
	// recheck is how often a waiting claim makes sure that its credential still opens.
	recheck = 2 * time.Second
	// inlineBytes is the largest payload read with its task; larger ones are read one by one, within maxOfferBytes.
	inlineBytes = 32 << 10
	// maxOfferBytes bounds the payloads of one reply; a single larger one travels alone.
	maxOfferBytes = 16 << 20
)

// ClaimTasks offers ready tasks to an instance, by priority and then by rank, and waits for some if there are none. An offer uses no attempt
// and ends by itself. A repeat is a new claim; after a lost reply its claim_seq is released. Of several claims at once each gets other tasks.
func (s *Service) ClaimTasks(ctx context.Context, req *api.ClaimTasksRequest) (*api.ClaimTasksResponse, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksExecute)
	if err != nil {
		return nil, err
	}
	c := call{caller: caller, instanceID: req.InstanceID, epoch: req.Epoch}
	queues, err := s.claimQueues(ctx, c, req.Queues)
	if err != nil {
		return nil, err
	}
	waited := make([]queueKey, len(queues))
	for i, id := range queues {
		waited[i] = queueKey{caller.NamespaceID, id}
	}
	wake, leave := s.waiters.wait(waited)
	defer leave()
	end := time.NewTimer(time.Duration(req.WaitMs.Or(0)) * time.Millisecond)
	defer end.Stop()
	for {
		offers, err := s.claim(ctx, c, req.ClaimSeq, queues, req.Max)
		if err != nil || len(offers) > 0 || req.WaitMs.Or(0) == 0 {
			return &api.ClaimTasksResponse{ClaimSeq: req.ClaimSeq, Offers: offers}, err
		}
		if again, err := s.awaitWork(ctx, wake, end.C); !again {
			return &api.ClaimTasksResponse{ClaimSeq: req.ClaimSeq, Offers: offers}, err
		}
	}
}

// awaitWork returns true when another claim is worth it, and false when the poll is over: its time is up, the replica drains, its caller is
// gone, or its credential no longer opens.
func (s *Service) awaitWork(ctx context.Context, wake <-chan struct{}, end <-chan time.Time) (bool, error) {
	check := time.NewTicker(recheck)
	defer check.Stop()
	for {
		select {
		case <-wake:
			err := s.Platform.StillValid(ctx)
			return err == nil && ctx.Err() == nil, err
		case <-check.C:
			if err := s.Platform.StillValid(ctx); err != nil {
				return false, err
			}
		case <-end:
			return false, nil
		case <-s.waiters.drained:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}

// claimQueues resolves the queues of a claim: those it names, or else those its instance was opened with, without any that was
// no longer granted.
func (s *Service) claimQueues(ctx context.Context, c call, names []string) ([]orbit.ID, error) {
	q := pulsedb.New(s.Batch.DB)
	if len(names) > 0 {
		return findQueueIDs(ctx, q, c.caller, names)
	}
	instance, err := q.GetInstance(ctx, pulsedb.GetInstanceParams{NamespaceID: c.caller.NamespaceID, ID: c.instanceID})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.Missing("worker instance")
	}
	if err != nil {
		return nil, err
	}
	var ids []orbit.ID
	if err := json.Unmarshal(instance.Queues, &ids); err != nil {
		return nil, err
	}
	refs := make([]queueRef, len(ids))
	for i, id := range ids {
		refs[i].id = id
	}
	queues, err := findQueues(ctx, q, c.caller, refs)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id orbit.ID) bool {
		return !slices.ContainsFunc(queues, func(row *pulsedb.PulseQueue) bool { return row != nil && row.ID == id })
	}), nil
}

// claim takes up to limit ready tasks and offers them, in one transaction.
func (s *Service) claim(ctx context.Context, c call, claimSeq int64, queues []orbit.ID, limit int) ([]api.Offer, error) {
	var offers []api.Offer
	err := s.Batch.Run(ctx, "claimTasks", func(ctx context.Context, tx *dbtx.Tx) error {
		offers = []api.Offer{}
		q := pulsedb.New(tx)
		head, superseded, err := fence(ctx, q, c)
		switch {
		case err != nil:
			return err
		case superseded:
			return errSuperseded(head)
		case claimSeq <= head.AbandonedClaim:
			return fault.New(fault.StateConflict, "claim_seq %d was released; claim with a number above %d", claimSeq, head.AbandonedClaim)
		}
		order, err := s.claimOrder(ctx, q, c.caller.NamespaceID, queues)
		if err != nil {
			return err
		}
		size := 0
		for _, queueID := range order {
			if len(offers) == limit || size >= maxOfferBytes {
				break
			}
			taken, bytes, err := s.claimQueue(ctx, tx, c, head.SessionID, claimSeq, queueID, limit-len(offers), maxOfferBytes-size)
			if err != nil {
				return err
			}
			offers, size = append(offers, taken...), size+bytes
		}
		return nil
	})
	return offers, err
}

// claimOrder leaves out queues that are paused or empty and sorts the others by their first task; both by an unlocked look.
func (s *Service) claimOrder(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, queues []orbit.ID) ([]orbit.ID, error) {
	gates, err := peekGates(ctx, q, ns)
	if err != nil {
		return nil, err
	}
	first := map[orbit.ID]pulsedb.PeekReadyRow{}
	var order []orbit.ID
	for _, id := range queues {
		if gates.closedForQueue(id) {
			continue
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
		return cmp.Or(cmp.Compare(first[a].Priority, first[b].Priority), cmp.Compare(first[a].RankUs, first[b].RankUs))
	})
	return order, nil
}

// claimQueue takes ready rows of one queue and turns them into offers:
//  1. the rows, in claim order, without waiting for rivals;
//  2. their tasks, read under that licence; one past its deadline is left to the deadline pass;
//  3. the rows deleted, the attempts inserted with the next generation.
func (s *Service) claimQueue(ctx context.Context, tx *dbtx.Tx, c call, sessionID orbit.ID, claimSeq int64, queueID orbit.ID, limit, room int) ([]api.Offer, int, error) {
	q := pulsedb.New(tx)
	ns := c.caller.NamespaceID
	rows, err := q.LockReady(ctx, pulsedb.LockReadyParams{NamespaceID: ns, QueueID: queueID, Limit: int32(limit)})
	if err != nil || len(rows) == 0 {
		return nil, 0, err
	}
	queue, err := q.GetQueue(ctx, pulsedb.GetQueueParams{NamespaceID: ns, ID: queueID})
	if err != nil {
		return nil, 0, err
	}
	tasks, err := offerable(ctx, tx, q, ns, rows, room)
	if err != nil || len(tasks) == 0 {
		return nil, 0, err
	}
	var taken []batch.ReadyRow
	var attempts [][]any
	var offers []api.Offer
	size := 0
	until := tx.Now.Add(time.Duration(queue.OfferTimeoutMs) * time.Millisecond)
	for _, row := range rows {
		task, ok := tasks[row.TaskID]
		if !ok {
			continue
		}
		id, token := orbit.NewID(tx.Now), orbit.NewToken()
		taken = append(taken, batch.ReadyRow{Priority: row.Priority, RankUs: row.RankUs, TaskID: row.TaskID})
		attempts = append(attempts, []any{ns, id, row.TaskID, queueID, task.Generation + 1, c.instanceID, sessionID, c.epoch, claimSeq, token.Digest(),
			queue.OfferTimeoutMs, until, c.instanceID, queueID, tx.Now})
		offers = append(offers, offer(queue, row, task, id, token, until))
		size += len(task.InlinePayload)
		emit(tx, ns, c.caller.ActorID.Null(), kindAttempt, id, 1, "attempt.offered", facts{"task_id": row.TaskID, "instance_id": c.instanceID, "generation": task.Generation + 1})
	}
	n, err := batch.DeleteReady(ctx, tx, ns, queueID, taken)
	if err := dbtx.SwappedAll(n, err, len(taken)); err != nil {
		return nil, 0, err
	}
	return offers, size, batch.Insert(ctx, tx, pulsedb.InsertAttempt, attempts)
}

// offerable reads the tasks behind ready rows, payloads included, as far as they fit into the room left; at least one does.
func offerable(ctx context.Context, tx *dbtx.Tx, q *pulsedb.Queries, ns orbit.ID, rows []pulsedb.LockReadyRow, room int) (map[orbit.ID]pulsedb.ListTasksToOfferRow, error) {
	ids := make([]orbit.ID, len(rows))
	for i, r := range rows {
		ids[i] = r.TaskID
	}
	found, err := q.ListTasksToOffer(ctx, pulsedb.ListTasksToOfferParams{InlineBytes: inlineBytes, NamespaceID: ns, Ids: ids})
	if err != nil {
		return nil, err
	}
	byID := make(map[orbit.ID]pulsedb.ListTasksToOfferRow, len(found))
	for _, t := range found {
		byID[t.ID] = t
	}
	tasks := make(map[orbit.ID]pulsedb.ListTasksToOfferRow, len(found))
	var large []orbit.ID
	for _, r := range rows {
		t, ok := byID[r.TaskID]
		if !ok {
			return nil, errors.New("a ready row has no task")
		}
		if t.DeadlineAt != nil && !t.DeadlineAt.After(tx.Now) {
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
		return tasks, nil
	}
	payloads, err := q.ListPayloads(ctx, pulsedb.ListPayloadsParams{NamespaceID: ns, Ids: large})
	for _, p := range payloads {
		t := tasks[p.ID]
		t.InlinePayload = p.Payload
		tasks[p.ID] = t
	}
	return tasks, err
}

func offer(queue pulsedb.PulseQueue, row pulsedb.LockReadyRow, task pulsedb.ListTasksToOfferRow, id orbit.ID, token orbit.Token, until time.Time) api.Offer {
	o := api.Offer{
		AttemptID: id, TaskID: row.TaskID, QueueID: queue.ID, Type: task.Type, Generation: task.Generation + 1, AttemptNumber: int(task.AttemptsUsed) + 1,
		Token: token.Text(), OfferExpiresAt: until, LeaseMs: int64(queue.LeaseMs), Payload: jx.Raw(task.InlinePayload), PayloadVersion: int64(task.PayloadVersion),
		Priority: int(row.Priority), RunAt: task.RunAt,
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
	return o
}
