package pulse

import (
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// newTask is a task as it is accepted.
type newTask struct {
	id       orbit.ID
	queue    *pulsedb.PulseQueue
	req      *api.SubmitTaskRequest
	trace    propagation.MapCarrier
	priority uint8
	runAt    time.Time
	rankUs   int64
	deadline *time.Time
	budget   uint32

	originKind string // empty for a submission
	originID   orbit.NullID
}

// payload is the JSON text that is stored.
func (t newTask) payload() string {
	if len(t.req.Payload) == 0 {
		return "null"
	}
	return string(t.req.Payload)
}

// isReady tells that it may be offered now.
func (t newTask) isReady(now time.Time) bool { return !t.runAt.After(now) }

// toOffer is the task as ListTasksToOffer would read it.
func (t newTask) toOffer() pulsedb.ListTasksToOfferRow {
	payload := t.payload()
	return pulsedb.ListTasksToOfferRow{
		ID: t.id, Type: t.req.Type, InlinePayload: payload, PayloadBytes: int64(len(payload)), PayloadVersion: uint32(t.req.PayloadVersion.Or(0)),
		RunAt: t.runAt, DeadlineAt: t.deadline, TraceParent: t.trace.Get("traceparent"), TraceState: t.trace.Get("tracestate"),
		LeaseMs: t.queue.LeaseMs, OfferTimeoutMs: t.queue.OfferTimeoutMs, OneStep: t.queue.OneStep,
	}
}

// makeTask settles what the request leaves open by the database's clock. A run_at in the past stands, but gives no place before
// tasks that were ready earlier.
func makeTask(now time.Time, id orbit.ID, c *submitCall, queue *pulsedb.PulseQueue) (newTask, *fault.Fault) {
	r := c.req
	t := newTask{id: id, queue: queue, req: r, trace: c.trace, priority: uint8(r.Priority.Or(5)), runAt: now, budget: uint32(r.MaxAttempts.Or(int(queue.MaxAttempts)))}
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

// writeTasks collects new tasks; where they wait, or who has them, is for the caller to add.
func (s *Service) writeTasks(tx *dbtx.Tx, c platform.Caller, tasks []newTask) error {
	rows := make([][]any, 0, len(tasks))
	var deadlines [][]any
	for _, t := range tasks {
		rows = append(rows, []any{c.NamespaceID, t.id, t.queue.ID, t.req.Type, t.payload(), t.req.PayloadVersion.Or(0), t.priority, t.rankUs, t.runAt, t.deadline, t.budget,
			t.trace.Get("traceparent"), t.trace.Get("tracestate"), c.ActorID, t.originKind, t.originID, tx.Now, tx.Now})
		if t.deadline != nil {
			deadlines = append(deadlines, []any{*t.deadline, c.NamespaceID, t.id})
		}
		emit(tx, c.NamespaceID, c.ActorID.Null(), kindTask, t.id, 1, "task.accepted", facts{"queue_id": t.queue.ID, "type": t.req.Type, "run_at": t.runAt})
	}
	if err := batch.Insert(tx, pulsedb.InsertTask, rows); err != nil {
		return err
	}
	return batch.Insert(tx, pulsedb.InsertDeadline, deadlines)
}

func workingRows(tasks []newTask) []workingRow {
	rows := make([]workingRow, len(tasks))
	for i, t := range tasks {
		rows[i] = workingRow{taskID: t.id, queueID: t.queue.ID, priority: t.priority, rankUs: t.rankUs, runAt: t.runAt}
	}
	return rows
}
