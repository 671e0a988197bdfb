package pulse

import (
	"context"
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
		return s.accept(ctx, tx, []*submitGroup{group}, held)
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
		return s.accept(ctx, tx, groups, platform.GivesUp)
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

// submitGroup is the calls of one caller in a transaction, what is read for them with its opening, and what is to be written.
type submitGroup struct {
	caller platform.Caller
	calls  []*submitCall
	queues queueLook
	keys   platform.Keys

	kept    []platform.Try // with replies and tasks, one each
	replies []platform.Reply
	tasks   []newTask
	refused string // a key that was reserved and is given back
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

// accept does the submissions of callers of one namespace, in the transaction's steps:
//  1. the queues, read as they are now: one that the caller does not see refuses its items before any replay;
//  2. the keys: repeats are answered and not acted on. A key that is waited for is reserved here; the others are taken in step 4, since what is
//     done till then touches nobody else's rows;
//  3. the polls that take tasks at once;
//  4. keys, tasks, receipts, deadlines, attempts or working rows, events.
func (s *Service) accept(ctx context.Context, tx *dbtx.Tx, groups []*submitGroup, held platform.WhenHeld) error {
	ns := groups[0].caller.NamespaceID
	var tasks []newTask
	for _, g := range groups {
		if err := s.judgeSubmits(ctx, tx, g, held); err != nil {
			return err
		}
		tasks = append(tasks, g.tasks...)
	}
	offering, err := s.newHandOff(tx).prepare(ctx, tx, ns, tasks)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if err := s.writeSubmits(ctx, tx, g, held); err != nil {
			return err
		}
	}
	attempts, rest := offering.hand(tx, ns, tasks)
	if err := batch.Insert(tx, pulsedb.InsertAttempt, attempts); err != nil {
		return err
	}
	return s.insertWorkingRows(tx, ns, workingRows(rest))
}

// judgeSubmits answers the calls of a group, and says what is to be written for them.
func (s *Service) judgeSubmits(ctx context.Context, tx *dbtx.Tx, g *submitGroup, held platform.WhenHeld) error {
	g.kept, g.replies, g.tasks, g.refused = nil, nil, nil, ""
	queues := g.queues.seen(g.caller)
	var judged []*submitCall
	var tries []platform.Try
	queueOf := map[*submitCall]*pulsedb.PulseQueue{}
	for i, call := range g.calls {
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
	verdicts, err := s.judgeKeys(ctx, tx, g, tries, held)
	if err != nil {
		return err
	}
	for k, call := range judged {
		switch v := verdicts[k]; {
		case v.Fault != nil:
			call.err = v.Fault
		case v.Replay != nil:
			call.reply, call.taskID = *v.Replay, receiptTask(v.Replay.Body)
		default:
			task, f := makeTask(tx.Now, tries[k].ResourceID, call, queueOf[call])
			if f != nil {
				call.err, g.refused = f, call.try.Key
				continue
			}
			call.reply, call.taskID = platform.Reply{Status: 201, Body: task.receipt(tx.Now)}, task.id
			g.tasks, g.kept, g.replies = append(g.tasks, task), append(g.kept, tries[k]), append(g.replies, call.reply)
		}
	}
	return nil
}

// writeSubmits collects keys, tasks and replies of a group.
func (s *Service) writeSubmits(ctx context.Context, tx *dbtx.Tx, g *submitGroup, held platform.WhenHeld) (err error) {
	switch {
	case held == platform.GivesUp:
		err = s.Platform.TakeKeys(tx, g.scope(), g.kept)
	case g.refused != "":
		err = s.Platform.ForgetKey(ctx, tx, g.scope(), g.refused)
	}
	if err != nil {
		return err
	}
	if err := s.writeTasks(tx, g.caller, g.tasks); err != nil {
		return err
	}
	return s.Platform.KeepReplies(tx, g.scope(), g.kept, g.replies)
}

func (s *Service) judgeKeys(ctx context.Context, tx *dbtx.Tx, g *submitGroup, tries []platform.Try, held platform.WhenHeld) ([]platform.Verdict, error) {
	if held == platform.GivesUp {
		return s.Platform.JudgeKeys(ctx, tx, g.keys, tries)
	}
	verdict, err := s.Platform.ReserveKey(ctx, tx, g.scope(), &tries[0], held)
	return []platform.Verdict{verdict}, err
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
