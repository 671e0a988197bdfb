package pulse

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/combine"
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

// submitCall is one task to accept, and its answer.
type submitCall struct {
	caller platform.Caller
	req    *api.SubmitTaskRequest
	try    platform.Try
	trace  propagation.MapCarrier // of the request it came in

	taskID orbit.ID
	reply  platform.Reply
	err    error
	alone  bool // the batch could not judge it, and it goes through the single lane
}

// traceOf is the W3C trace context of a request.
func traceOf(ctx context.Context) propagation.MapCarrier {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
}

// check refuses what no database need be asked for.
func (c *submitCall) check() *fault.Fault {
	switch r := c.req; {
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

// joinSubmits submits tasks of one call, as a group, in a transaction with whatever else of the namespace waits.
func (s *Service) joinSubmits(ns orbit.ID, calls []*submitCall, bytes int) {
	s.submits.Do(combine.Call[[]*submitCall]{NamespaceID: ns, Items: len(calls), Bytes: bytes, Work: calls})
}

// submitAlone accepts one task in the single lane, where it waits for a running try of its key.
func (s *Service) submitAlone(ctx context.Context, c *submitCall) {
	group := newSubmitGroup([]*submitCall{c})
	err := s.Platform.OnKey(ctx, submitOperation, func(ctx context.Context, tx *dbtx.Tx, held platform.WhenHeld) error {
		if err := tx.Ask(ctx, group.questions(held)...); err != nil {
			return err
		}
		return s.accept(ctx, tx, group, held, s.newHandOff(tx))
	})
	if err != nil {
		c.err = err
	}
}

// submitTogether accepts the tasks of one namespace in one transaction. A repeat of a key of the same batch is answered with the first
// one's receipt. What cannot be judged together is judged in halves, so that one key that somebody holds, or one bad item, keeps few others
// company, and by itself in the single lane at last. After an unknown commit nothing is run again, and each key settles its task.
func (s *Service) submitTogether(calls []*submitCall) {
	first, repeats := distinctKeys(calls)
	s.submitFirst(first)
	for c, of := range repeats {
		if of.err == nil && !of.alone && c.try.Digest == of.try.Digest && c.caller.CredentialID == of.caller.CredentialID {
			c.taskID, c.reply = of.taskID, of.reply
			c.reply.Replayed = true
		} else {
			c.alone = true
		}
	}
}

func (s *Service) submitFirst(calls []*submitCall) {
	groups := byCaller(calls)
	var first []dbtx.Question
	for _, g := range groups {
		first = append(first, g.questions(platform.GivesUp)...)
	}
	err := s.Batch.Run(context.Background(), submitOperation, func(ctx context.Context, tx *dbtx.Tx) error {
		h := s.newHandOff(tx)
		for _, g := range groups {
			if err := s.accept(ctx, tx, g, platform.GivesUp, h); err != nil {
				return err
			}
		}
		return nil
	}, first...)
	if err == nil {
		return
	}
	var unknown *dbtx.UnknownCommit
	for _, c := range calls {
		c.taskID, c.reply, c.err = orbit.ID{}, platform.Reply{}, nil
		if errors.As(err, &unknown) {
			c.err = err
		}
	}
	switch half := len(calls) / 2; {
	case unknown != nil:
	case half == 0 || dbtx.IsAway(err) && !dbtx.IsLockWait(err):
		for _, c := range calls {
			c.alone = true
		}
	default:
		s.submitFirst(calls[:half])
		s.submitFirst(calls[half:])
	}
}

// submitGroup is the calls of one caller in a transaction, and what is read for them with its opening.
type submitGroup struct {
	caller platform.Caller
	calls  []*submitCall
	queues queueLook
	keys   platform.Keys
}

// byCaller groups calls, in one order, so that two batches cannot deadlock.
func byCaller(calls []*submitCall) []*submitGroup {
	by := map[orbit.ID][]*submitCall{}
	for _, c := range calls {
		by[c.caller.CredentialID] = append(by[c.caller.CredentialID], c)
	}
	var groups []*submitGroup
	for _, id := range slices.SortedFunc(maps.Keys(by), orbit.ID.Compare) {
		groups = append(groups, newSubmitGroup(by[id]))
	}
	return groups
}

func newSubmitGroup(calls []*submitCall) *submitGroup {
	g := &submitGroup{caller: calls[0].caller, calls: calls}
	for _, c := range calls {
		g.queues.refs = append(g.queues.refs, queueRef{id: c.req.QueueID.Value, name: c.req.Queue.Value})
	}
	return g
}

func (g *submitGroup) scope() platform.Scope {
	return platform.ScopeOf(g.caller, submitOperation, submitPath)
}

// questions are the queues and, where no key is waited for, the keys.
func (g *submitGroup) questions(held platform.WhenHeld) []dbtx.Question {
	questions := []dbtx.Question{
		func(ctx context.Context, db dbtx.DBTX) error {
			return g.queues.readByID(ctx, pulsedb.New(db), g.caller.NamespaceID)
		},
		func(ctx context.Context, db dbtx.DBTX) error {
			return g.queues.readByName(ctx, pulsedb.New(db), g.caller.NamespaceID)
		},
	}
	if held == platform.GivesUp {
		keys := make([]string, len(g.calls))
		for i, c := range g.calls {
			keys[i] = c.try.Key
		}
		questions = append(questions, g.keys.Ask(g.scope(), keys))
	}
	return questions
}

// distinctKeys parts the calls whose key stands first from those that repeat one of them.
func distinctKeys(calls []*submitCall) (first []*submitCall, repeats map[*submitCall]*submitCall) {
	type identity struct {
		actorID orbit.ID
		key     string
	}
	seen := map[identity]*submitCall{}
	repeats = map[*submitCall]*submitCall{}
	for _, c := range calls {
		id := identity{c.caller.ActorID, c.try.Key}
		if of, twice := seen[id]; twice {
			repeats[c] = of
			continue
		}
		seen[id] = c
		first = append(first, c)
	}
	return first, repeats
}

// accept does the submissions of one caller, in the transaction's steps:
//  1. the queues, read as they are now: one that the caller does not see refuses its items before any replay;
//  2. the keys: repeats are answered and not acted on. A key that is waited for is reserved here; the others are taken in step 4, since what is
//     done till then touches nobody else's rows;
//  3. the polls that take tasks at once;
//  4. keys, tasks, attempts or working rows, deadlines, receipts, events.
func (s *Service) accept(ctx context.Context, tx *dbtx.Tx, g *submitGroup, held platform.WhenHeld, h *handOff) error {
	c, calls := g.caller, g.calls
	queues := g.queues.seen(c)
	var judged []*submitCall
	var tries []platform.Try
	queueOf := map[*submitCall]*pulsedb.PulseQueue{}
	for i, call := range calls {
		call.taskID, call.reply, call.err = orbit.ID{}, platform.Reply{}, nil
		if queues[i] == nil {
			call.err = fault.Missing("queue")
			continue
		}
		try := call.try
		try.ResourceKind, try.ResourceID = kindTask, orbit.NewID(tx.Now)
		queueOf[call] = queues[i]
		judged, tries = append(judged, call), append(tries, try)
	}
	if len(tries) == 0 {
		return nil
	}
	scope := g.scope()
	verdicts, err := s.judgeKeys(ctx, tx, g, tries, held)
	if err != nil {
		return err
	}
	var kept []platform.Try
	var replies []platform.Reply
	var tasks []newTask
	for k, call := range judged {
		switch v := verdicts[k]; {
		case v.Fault != nil:
			call.err = v.Fault
		case v.Replay != nil:
			call.reply, call.taskID = *v.Replay, receiptTask(v.Replay.Body)
		default:
			task, f := makeTask(tx.Now, tries[k].ResourceID, call, queueOf[call])
			if f != nil {
				call.err = f
				continue
			}
			call.reply, call.taskID = platform.Reply{Status: 201, Body: task.receipt(tx.Now)}, task.id
			tasks, kept, replies = append(tasks, task), append(kept, tries[k]), append(replies, call.reply)
		}
	}
	offering, err := h.prepare(ctx, tx, c.NamespaceID, tasks)
	if err != nil {
		return err
	}
	switch {
	case held == platform.GivesUp:
		err = s.Platform.TakeKeys(tx, scope, kept)
	case verdicts[0].First && len(kept) == 0:
		err = s.Platform.ForgetKey(ctx, tx, scope, tries[0].Key)
	}
	if err != nil {
		return err
	}
	if err := s.writeTasks(tx, c, tasks); err != nil {
		return err
	}
	attempts, rest := offering.hand(tx, c.NamespaceID, tasks)
	if err := batch.Insert(tx, pulsedb.InsertAttempt, attempts); err != nil {
		return err
	}
	if err := s.insertWorkingRows(tx, c.NamespaceID, workingRows(rest)); err != nil {
		return err
	}
	return s.Platform.KeepReplies(tx, scope, kept, replies)
}

func (s *Service) judgeKeys(ctx context.Context, tx *dbtx.Tx, g *submitGroup, tries []platform.Try, held platform.WhenHeld) ([]platform.Verdict, error) {
	if held == platform.GivesUp {
		return s.Platform.JudgeKeys(ctx, tx, g.keys, tries)
	}
	verdict, err := s.Platform.ReserveKey(ctx, tx, g.scope(), &tries[0], held)
	return []platform.Verdict{verdict}, err
}

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
