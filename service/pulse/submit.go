package pulse

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// A submitted task has one operation and path, singly or in a batch: one key is one task whichever way it came.
const (
	submitOperation = "submitTask"
	submitPath      = "/v1/tasks"
)

// MaxPayload is the largest payload or result, in bytes.
const MaxPayload = 8 << 20

// submitItem is one task to accept; a single submit is a batch of one.
type submitItem struct {
	req *api.SubmitTaskRequest
	try platform.Try
}

// submitOutcome is the answer to one item.
type submitOutcome struct {
	taskID orbit.ID
	reply  platform.Reply
	err    error
}

// check refuses what no database need be asked for.
func (i submitItem) check() *fault.Fault {
	switch r := i.req; {
	case r.QueueID.Set == r.Queue.Set:
		return fault.Invalid("/queue", "one_of", "name the queue by exactly one of queue_id and queue")
	case r.RunAt.Set && r.DelayMs.Set:
		return fault.Invalid("/delay_ms", "one_of", "give at most one of run_at and delay_ms")
	case len(r.Payload) > MaxPayload:
		return fault.New(fault.PayloadTooLarge, "the payload has %d bytes; at most %d are accepted: keep it elsewhere and send a reference", len(r.Payload), MaxPayload)
	case r.RunAt.Set && !storable(r.RunAt.Value):
		return fault.Invalid("/run_at", "out_of_range", "the year must be between 1970 and 9999")
	case r.DeadlineAt.Set && !storable(r.DeadlineAt.Value):
		return fault.Invalid("/deadline_at", "out_of_range", "the year must be between 1970 and 9999")
	case r.RunAt.Set && r.DeadlineAt.Set && !r.DeadlineAt.Value.Truncate(time.Microsecond).After(r.RunAt.Value.Truncate(time.Microsecond)):
		return deadlineFault()
	}
	return nil
}

func storable(t time.Time) bool { return t.UTC().Year() >= 1970 && t.UTC().Year() <= 9999 }

func deadlineFault() *fault.Fault {
	return fault.Invalid("/deadline_at", "not_after_start", "the deadline must be after the time the task may run")
}

// submitAlone accepts one item in the single lane, where it waits for a running try of its key.
func (s *Service) submitAlone(ctx context.Context, c platform.Caller, item submitItem) submitOutcome {
	var outcomes []submitOutcome
	err := s.Platform.OnKey(ctx, submitOperation, func(ctx context.Context, tx *dbtx.Tx, held platform.WhenHeld) (err error) {
		outcomes, err = s.accept(ctx, tx, c, []submitItem{item}, held)
		return err
	})
	if err != nil {
		return submitOutcome{err: err}
	}
	return outcomes[0]
}

// submitTogether accepts items with distinct keys in one transaction. What cannot be judged together goes one by one; after an unknown
// commit nothing is rerun, and each item's key settles it.
func (s *Service) submitTogether(ctx context.Context, c platform.Caller, items []submitItem) []submitOutcome {
	if len(items) == 1 {
		return []submitOutcome{s.submitAlone(ctx, c, items[0])}
	}
	var outcomes []submitOutcome
	err := s.Batch.Run(ctx, submitOperation, func(ctx context.Context, tx *dbtx.Tx) (err error) {
		outcomes, err = s.accept(ctx, tx, c, items, platform.GivesUp)
		return err
	})
	if err == nil {
		return outcomes
	}
	outcomes = make([]submitOutcome, len(items))
	var unknown *dbtx.UnknownCommit
	for i, item := range items {
		if errors.As(err, &unknown) {
			outcomes[i].err = err
			continue
		}
		outcomes[i] = s.submitAlone(ctx, c, item)
	}
	return outcomes
}

// accept does one submission of a batch, in the transaction's steps:
//  1. the queues, read as they are now: one that the caller does not see refuses its items before any replay;
//  2. the keys, reserved in key order: repeats are answered and not acted on;
//  3. tasks, working rows, deadlines, events;
//  4. the keys of items refused in step 3 are given back, the receipts of the others kept.
func (s *Service) accept(ctx context.Context, tx *dbtx.Tx, c platform.Caller, items []submitItem, held platform.WhenHeld) ([]submitOutcome, error) {
	outcomes := make([]submitOutcome, len(items))
	queues, err := s.submitQueues(ctx, pulsedb.New(tx), c, items)
	if err != nil {
		return nil, err
	}
	var judged []int
	var tries []platform.Try
	for i := range items {
		if queues[i] == nil {
			outcomes[i].err = fault.Missing("queue")
			continue
		}
		try := items[i].try
		try.ResourceKind, try.ResourceID = kindTask, orbit.NewID(tx.Now)
		judged, tries = append(judged, i), append(tries, try)
	}
	if len(tries) == 0 {
		return outcomes, nil
	}
	scope := platform.ScopeOf(c, submitOperation, submitPath)
	verdicts, err := s.Platform.ReserveKeys(ctx, tx, scope, tries, held)
	if err != nil {
		return nil, err
	}
	var kept, refused []platform.Try
	var replies []platform.Reply
	var tasks []newTask
	for k, i := range judged {
		switch v := verdicts[k]; {
		case v.Fault != nil:
			outcomes[i].err = v.Fault
		case v.Replay != nil:
			outcomes[i].reply, outcomes[i].taskID = *v.Replay, receiptTask(v.Replay.Body)
		default:
			task, f := makeTask(tx.Now, tries[k].ResourceID, items[i].req, queues[i])
			if f != nil {
				outcomes[i].err = f
				refused = append(refused, tries[k])
				continue
			}
			reply := platform.Reply{Status: 201, Body: task.receipt(tx.Now)}
			outcomes[i].reply, outcomes[i].taskID = reply, task.id
			tasks, kept, replies = append(tasks, task), append(kept, tries[k]), append(replies, reply)
		}
	}
	if len(refused) > 0 {
		if err := s.Platform.ForgetKeys(ctx, tx, scope, refused); err != nil {
			return nil, err
		}
	}
	if err := s.insertTasks(ctx, tx, c, tasks); err != nil {
		return nil, err
	}
	return outcomes, s.Platform.KeepReplies(ctx, tx, scope, kept, replies)
}

// submitQueues finds each item's queue, by id or by name; nil means that the caller sees none.
func (s *Service) submitQueues(ctx context.Context, q *pulsedb.Queries, c platform.Caller, items []submitItem) ([]*pulsedb.PulseQueue, error) {
	var refs []queueRef
	for _, i := range items {
		refs = append(refs, queueRef{id: i.req.QueueID.Value, name: i.req.Queue.Value})
	}
	return findQueues(ctx, q, c, refs)
}

// newTask is a task as it is accepted.
type newTask struct {
	id       orbit.ID
	queue    *pulsedb.PulseQueue
	req      *api.SubmitTaskRequest
	priority uint8
	runAt    time.Time
	rankUs   int64
	deadline *time.Time
	budget   uint32
}

// makeTask settles what the request leaves open by the database's clock. A run_at in the past stands, but gives no place before
// tasks that were ready earlier.
func makeTask(now time.Time, id orbit.ID, r *api.SubmitTaskRequest, queue *pulsedb.PulseQueue) (newTask, *fault.Fault) {
	t := newTask{id: id, queue: queue, req: r, priority: uint8(r.Priority.Or(5)), runAt: now, budget: uint32(r.MaxAttempts.Or(int(queue.MaxAttempts)))}
	switch {
	case r.RunAt.Set:
		t.runAt = r.RunAt.Value.UTC().Truncate(time.Microsecond)
	case r.DelayMs.Set:
		t.runAt = now.Add(time.Duration(r.DelayMs.Value) * time.Millisecond)
	}
	if !storable(t.runAt) {
		return t, fault.Invalid("/delay_ms", "out_of_range", "the delay leads past the year 9999")
	}
	t.rankUs = max(t.runAt.UnixMicro(), now.UnixMicro())
	if r.DeadlineAt.Set {
		at := r.DeadlineAt.Value.UTC().Truncate(time.Microsecond)
		if !at.After(t.runAt) || !at.After(now) {
			return t, deadlineFault()
		}
		t.deadline = &at
	}
	return t, nil
}

// receipt is the bytes of the acceptance receipt, stored and sent as they are.
func (t newTask) receipt(now time.Time) []byte {
	r := api.AcceptanceReceipt{TaskID: t.id, QueueID: t.queue.ID, Type: t.req.Type, AcceptedAt: now, RunAt: t.runAt}
	return encode(&r)
}

// receiptTask reads the task out of a stored receipt.
func receiptTask(body []byte) orbit.ID {
	var r struct {
		TaskID orbit.ID `json:"task_id"`
	}
	_ = json.Unmarshal(body, &r)
	return r.TaskID
}

func (s *Service) insertTasks(ctx context.Context, tx *dbtx.Tx, c platform.Caller, tasks []newTask) error {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	rows := make([][]any, 0, len(tasks))
	working := make([]workingRow, 0, len(tasks))
	var deadlines [][]any
	for _, t := range tasks {
		payload := string(t.req.Payload)
		if payload == "" {
			payload = "null"
		}
		rows = append(rows, []any{c.NamespaceID, t.id, t.queue.ID, t.req.Type, payload, t.req.PayloadVersion.Or(0), t.priority, t.rankUs, t.runAt, t.deadline, t.budget,
			carrier.Get("traceparent"), clip(carrier.Get("tracestate"), 512), c.ActorID, tx.Now, tx.Now})
		working = append(working, workingRow{taskID: t.id, queueID: t.queue.ID, priority: t.priority, rankUs: t.rankUs, runAt: t.runAt})
		if t.deadline != nil {
			deadlines = append(deadlines, []any{*t.deadline, c.NamespaceID, t.id})
		}
		emit(tx, c.NamespaceID, c.ActorID.Null(), kindTask, t.id, 1, "task.accepted", facts{"queue_id": t.queue.ID, "type": t.req.Type, "run_at": t.runAt})
	}
	if err := batch.Insert(ctx, tx, pulsedb.InsertTask, rows); err != nil {
		return err
	}
	if err := batch.Insert(ctx, tx, pulsedb.InsertDeadline, deadlines); err != nil {
		return err
	}
	return s.insertWorkingRows(ctx, tx, c.NamespaceID, working)
}

// encode gives the JSON of a generated type.
func encode(v interface{ Encode(e *jx.Encoder) }) []byte {
	var e jx.Encoder
	v.Encode(&e)
	return e.Bytes()
}

// clip bounds a text in bytes without cutting a character in two.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && text[limit]&0xc0 == 0x80 {
		limit--
	}
	return text[:limit]
}
