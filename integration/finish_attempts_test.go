package integration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

const finishPath = "/v1/attempts:finish"

// attemptReceipt is a receipt, as far as tests look at it.
type attemptReceipt struct {
	AttemptID  string    `json:"attempt_id"`
	TaskID     string    `json:"task_id"`
	Outcome    string    `json:"outcome"`
	TaskState  string    `json:"task_state"`
	AcceptedAt time.Time `json:"accepted_at"`
	NextRunAt  time.Time `json:"next_run_at"`
}

func receiptOf(t testing.TB, i itemResult) attemptReceipt {
	t.Helper()
	wantItem(t, i, 200, "")
	var r attemptReceipt
	if err := json.Unmarshal([]byte(i.Receipt), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *worker) finish(o offer, more ...any) itemResult {
	w.t.Helper()
	return w.items(finishPath, o.item(more...))[0]
}

// ready lets the waits of backoff pass.
func ready(o *harness.Orbit, wait time.Duration) {
	o.Advance(wait)
	o.Pass("promote_scheduled")
}

func TestFinishAttemptsEndsATaskByWhatItsWorkerSays(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	boom := map[string]any{"code": "boom", "message": "it broke"}
	for name, c := range map[string]struct {
		cancel                   bool
		said                     []any
		attempt, task, code, msg string
	}{
		"a success":                           {false, []any{"outcome", "succeeded", "result", 1}, "succeeded", "succeeded", "", ""},
		"a success without a result":          {false, []any{"outcome", "succeeded"}, "succeeded", "succeeded", "", ""},
		"a success in spite of a cancel":      {true, []any{"outcome", "succeeded", "result", 1}, "succeeded", "succeeded", "", ""},
		"a failure to be tried again":         {false, []any{"outcome", "failed", "error", boom}, "failed", "queued", "boom", "it broke"},
		"a failure that says so":              {false, []any{"outcome", "failed", "error", boom, "retry", true}, "failed", "queued", "boom", "it broke"},
		"a failure for good":                  {false, []any{"outcome", "failed", "error", boom, "retry", false}, "failed", "failed", "boom", "it broke"},
		"a failure with a result":             {false, []any{"outcome", "failed", "error", boom, "retry", false, "result", []int{1}}, "failed", "failed", "boom", "it broke"},
		"a failure that a cancel overtook":    {true, []any{"outcome", "failed", "error", boom}, "failed", "cancelled", "boom", "it broke"},
		"a failure for good under a cancel":   {true, []any{"outcome", "failed", "error", boom, "retry", false}, "failed", "failed", "boom", "it broke"},
		"an acknowledged cancel":              {true, []any{"outcome", "cancelled"}, "cancelled", "cancelled", "", ""},
		"a cancel that the worker thought of": {false, []any{"outcome", "cancelled", "error", boom}, "cancelled", "cancelled", "boom", "it broke"},
	} {
		t.Run(name, func(t *testing.T) {
			id := submit(t, o, "mail")
			running := w.run()
			if c.cancel {
				o.Call("POST", "/v1/tasks/"+id+":cancel", nil, harness.Key(id)).Want(t, 200)
			}
			said := w.finish(running, c.said...)
			got := receiptOf(t, said)
			if got.AttemptID != running.AttemptID || got.TaskID != id || got.Outcome != c.said[1] || got.TaskState != c.task || got.AcceptedAt.IsZero() ||
				got.NextRunAt.IsZero() == (c.task == "queued") || said.Replayed {
				t.Fatalf("%+v", got)
			}
			shown := wantState(t, o, id, c.task)
			if shown.AttemptsUsed != 1 || shown.Generation != 1 || shown.Failure.Code != c.code || shown.Failure.Message != c.msg {
				t.Fatalf("%+v", shown)
			}
			if c.task == "queued" && (shown.Waiting.Kind != "scheduled" || !shown.Waiting.Until.Equal(got.NextRunAt)) {
				t.Fatalf("waits for %+v, the receipt says %s", shown.Waiting, got.NextRunAt)
			}
			a := wantAttempt(t, o, running.AttemptID, c.attempt, c.code)
			if a.Receipt != said.Receipt {
				t.Fatalf("receipt %s, want %s", a.Receipt, said.Receipt)
			}
			if c.task == "queued" {
				o.Call("POST", "/v1/tasks/"+id+":cancel", nil, harness.Key(id)).Want(t, 200)
			}
		})
	}
}

func TestRetriesBackOffUntilTheBudgetIsSpent(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("backoff_initial_ms", 1000, "backoff_max_ms", 3000))
	id := submit(t, o, "mail", "max_attempts", 5)
	w := openWorker(t, o, "w", "mail")
	for n, bound := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		running := w.run()
		if running.AttemptNumber != n+1 {
			t.Fatalf("attempt number %d, want %d", running.AttemptNumber, n+1)
		}
		got := receiptOf(t, w.fail(running, true))
		if wait := got.NextRunAt.Sub(got.AcceptedAt); got.TaskState != "queued" || wait > bound || wait < bound*4/5 {
			t.Fatalf("waits %s after failure %d, want %s less at most a fifth", wait, n+1, bound)
		}
		o.Pass("promote_scheduled")
		if len(w.claim(1)) != 0 {
			t.Fatal("offered before its wait was over")
		}
		ready(o, bound)
	}
	if got := receiptOf(t, w.fail(w.run(), true)); got.TaskState != "failed" || !got.NextRunAt.IsZero() {
		t.Fatalf("%+v after the last attempt", got)
	}
	if got := wantState(t, o, id, "failed"); got.AttemptsUsed != 5 || got.Failure.Code != "boom" {
		t.Fatalf("%+v", got)
	}
}

func TestAFailureMayNameItsOwnWait(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	got := receiptOf(t, w.finish(w.run(), "outcome", "failed", "retry_after_ms", 3_600_000))
	if wait := got.NextRunAt.Sub(got.AcceptedAt); wait != time.Hour {
		t.Fatalf("waits %s, want an hour", wait)
	}
	if shown := wantState(t, o, id, "queued"); shown.Waiting.Kind != "scheduled" || !shown.Waiting.Until.Equal(got.NextRunAt) {
		t.Fatalf("%+v", shown)
	}
}

func TestARepeatedResultGetsTheOriginalReceipt(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	running := w.run()
	first := w.finish(running, "outcome", "failed", "error", map[string]any{"code": "boom"}, "result", rawJSON(`{"a":1.50,"b":"é"}`))
	wantItem(t, first, 200, "")
	ready(o, time.Minute)
	next := w.run() // the task has gone on since
	for _, same := range []string{`{"a":1.50,"b":"é"}`, `{"b":"\u00e9","a":1.5}`, `{"b":"é","a":15e-1}`} {
		again := w.finish(running, "error", map[string]any{"code": "boom"}, "result", rawJSON(same), "outcome", "failed")
		if again.Status != 200 || !again.Replayed || again.Receipt != first.Receipt {
			t.Fatalf("%s got %+v, want the receipt %s", same, again, first.Receipt)
		}
	}
	wantItem(t, w.succeed(next, `1`), 200, "")
	if again := w.finish(running, "outcome", "failed", "error", map[string]any{"code": "boom"}, "result", rawJSON(`{"a":1.50,"b":"é"}`)); again.Receipt != first.Receipt {
		t.Fatalf("%+v", again)
	}
	wantState(t, o, id, "succeeded")
	if n := len(listEvidence(t, o, running.AttemptID)); n != 0 {
		t.Fatalf("%d evidence of repeats", n)
	}
}

func TestAContradictionIsRefusedAndKeptOnceAsEvidence(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	running := w.run()
	wantItem(t, w.succeed(running, `{"n":0.10}`), 200, "")
	kept := map[string]string{}
	for range 3 {
		for _, other := range [][]any{{"outcome", "succeeded", "result", rawJSON(`{"n":0.20}`)}, {"outcome", "succeeded"},
			{"outcome", "failed", "error", map[string]any{"code": "boom"}}, {"outcome", "cancelled"}} {
			got := w.finish(running, other...)
			wantItem(t, got, 409, "result_conflict")
			name := fmt.Sprint(other)
			if kept[name] != "" && kept[name] != got.EvidenceID || got.EvidenceID == "" {
				t.Fatalf("%s is evidence %s and %s", name, kept[name], got.EvidenceID)
			}
			kept[name] = got.EvidenceID
		}
	}
	got := listEvidence(t, o, running.AttemptID)
	if len(got) != 4 {
		t.Fatalf("%d evidence, want 4", len(got))
	}
	for _, e := range got {
		if e.Reason != "result_conflict" {
			t.Fatalf("%+v", e)
		}
	}
	var whole evidence
	o.Call("GET", "/v1/attempts/"+running.AttemptID+"/evidence/"+kept[`[outcome succeeded result {"n":0.20}]`], nil).Want(t, 200).JSON(t, &whole)
	if whole.Result != `{"n":0.20}` || whole.Outcome != "succeeded" {
		t.Fatalf("%+v", whole)
	}
	if shown := wantState(t, o, id, "succeeded"); shown.Result != `{"n":0.10}` {
		t.Fatalf("result %s", shown.Result)
	}
}

// The worker stops at its lease, as by SIGSTOP, and goes on later.
func TestAResultAfterTheLeaseCountsUntilRecoveryHasTakenIt(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("unknown_outcome", "review"))
	early, late := submit(t, o, "mail"), submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	inTime, tooLate := w.run(), w.run()
	o.StayFresh(10 * time.Second)
	wantItem(t, w.succeed(inTime, `"in time"`), 200, "")
	wantState(t, o, early, "succeeded")
	if n := o.Pass("recover_leases"); n != 1 {
		t.Fatalf("%d leases lost, want 1", n)
	}
	wantState(t, o, late, "review")
	first := w.succeed(tooLate, `"too late"`)
	wantItem(t, first, 409, "lease_lost")
	again := w.succeed(tooLate, `"too late"`)
	if wantItem(t, again, 409, "lease_lost"); again.EvidenceID != first.EvidenceID || first.EvidenceID == "" {
		t.Fatalf("evidence %q and %q", first.EvidenceID, again.EvidenceID)
	}
	other := w.fail(tooLate, false)
	if wantItem(t, other, 409, "lease_lost"); other.EvidenceID == first.EvidenceID {
		t.Fatal("another submission is the same evidence")
	}
	if kept := listEvidence(t, o, tooLate.AttemptID); len(kept) != 2 || kept[0].Reason != "lease_lost" {
		t.Fatalf("%+v", kept)
	}
	wantState(t, o, late, "review") // evidence changes nothing by itself
}

func TestFinishAttemptsRefusesItemByItem(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	for range 5 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(5)
	good, offered, released, open, other := offers[0], offers[1], offers[2], offers[3], offers[4]
	for _, a := range []offer{good, open, other} {
		wantItem(t, w.start(a), 200, "")
	}
	wantItem(t, w.release(released, "shutdown"), 200, "")
	got := w.items(finishPath,
		good.item("outcome", "succeeded", "result", 1),
		offered.item("outcome", "succeeded"),
		released.item("outcome", "succeeded"),
		map[string]any{"attempt_id": open.AttemptID, "token": other.Token, "outcome": "succeeded"},
		map[string]any{"attempt_id": newInstance(), "token": other.Token, "outcome": "succeeded"},
		map[string]any{"attempt_id": open.AttemptID, "token": open.Token},
		open.item("outcome", "lost"),
		open.item("outcome", "succeeded", "error", map[string]any{"code": "x"}),
		open.item("outcome", "succeeded", "retry", true),
		open.item("outcome", "cancelled", "retry_after_ms", 1),
		open.item("outcome", "failed", "retry_after_ms", -1),
		open.item("outcome", "failed", "error", map[string]any{"message": "no code"}),
		open.item("outcome", "succeeded", "result", rawJSON(`{"a":1,"a":2}`)),
		open.item("outcome", "succeeded", "result", rawJSON(strings.Repeat("[", 101)+strings.Repeat("]", 101))),
		open.item("outcome", "succeeded", "result", rawJSON(`1e400`)),
		open.item("outcome", "succeeded", "result", rawJSON(`"`+strings.Repeat("x", 8<<20)+`"`)),
		other.item("outcome", "succeeded", "result", rawJSON(`12345678901234567890123456789012345678`)),
	)
	for i, want := range []struct {
		status int
		code   string
	}{
		{200, ""}, {409, "stale_attempt"}, {409, "stale_attempt"}, {409, "stale_attempt"}, {404, "not_found"}, {400, "invalid_request"}, {400, "invalid_request"},
		{400, "invalid_request"}, {400, "invalid_request"}, {400, "invalid_request"}, {400, "invalid_request"}, {400, "invalid_request"},
		{400, "invalid_request"}, {400, "invalid_request"}, {400, "invalid_request"}, {413, "payload_too_large"}, {200, ""},
	} {
		if got[i].Status != want.status || got[i].Problem.Code != want.code {
			t.Errorf("item %d: %d %s (%s), want %d %s", i, got[i].Status, got[i].Problem.Code, got[i].Problem.Detail, want.status, want.code)
		}
		if got[i].EvidenceID != "" {
			t.Errorf("item %d was kept as evidence", i)
		}
	}
	if n := o.Count("pulse_attempt_evidence"); n != 0 {
		t.Fatalf("%d evidence of what was no result", n)
	}
	wantState(t, o, open.TaskID, "running")
	wantState(t, o, offered.TaskID, "offered")
	if shown := wantState(t, o, other.TaskID, "succeeded"); shown.Result != `12345678901234567890123456789012345678` {
		t.Fatalf("result %s", shown.Result)
	}
	wantForeign(t, w, finishPath, map[string]any{"items": []any{open.item("outcome", "succeeded")}})
	ahead := *w
	ahead.epoch++
	wantItem(t, ahead.succeed(open, `1`), 409, "stale_attempt") // no attempt of that epoch
	w.call(finishPath, map[string]any{"items": []any{}}).WantProblem(t, 400, "invalid_request")
	w.call(finishPath, map[string]any{"items": slices.Repeat([]any{open.item("outcome", "succeeded")}, 1001)}).WantProblem(t, 400, "invalid_request")
	wantState(t, o, open.TaskID, "running")
}

func TestAnAttemptTwiceInOneFinishIsFinishedOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	running := w.run()
	got := w.items(finishPath, running.item("outcome", "succeeded", "result", 1), running.item("outcome", "succeeded", "result", 1), running.item("outcome", "succeeded", "result", 2))
	wantItem(t, got[0], 200, "")
	if wantItem(t, got[1], 200, ""); got[0].Replayed || !got[1].Replayed || got[1].Receipt != got[0].Receipt {
		t.Fatalf("%+v and %+v", got[0], got[1])
	}
	wantItem(t, got[2], 409, "result_conflict")
	if shown := wantState(t, o, id, "succeeded"); shown.Result != "1" || shown.AttemptsUsed != 1 {
		t.Fatalf("%+v", shown)
	}
}

func TestFinishesOfOneAttemptAtOnceHaveOneReceipt(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	t.Run("with the same result", func(t *testing.T) {
		submit(t, o, "mail")
		running := w.run()
		firsts := 0
		got := race(t, 16, func(i int) (itemResult, error) {
			return w.on(i%2).sendItem(finishPath, running.item("outcome", "succeeded", "result", rawJSON(`{"n":1}`)))
		})
		for _, g := range got {
			if wantItem(t, g, 200, ""); g.Receipt != got[0].Receipt {
				t.Fatalf("%s and %s", got[0].Receipt, g.Receipt)
			}
			if !g.Replayed {
				firsts++
			}
		}
		if firsts != 1 || o.Count("pulse_attempt_evidence") != 0 {
			t.Fatalf("%d were first, want 1", firsts)
		}
	})
	t.Run("with a result each", func(t *testing.T) {
		id := submit(t, o, "mail")
		running := w.run()
		got := race(t, 16, func(i int) (itemResult, error) {
			return w.on(i%2).sendItem(finishPath, running.item("outcome", "succeeded", "result", i))
		})
		winner := -1
		for i, g := range got {
			if g.Status == 200 && winner < 0 {
				winner = i
				continue
			}
			if wantItem(t, g, 409, "result_conflict"); g.EvidenceID == "" {
				t.Fatalf("result %d is lost", i)
			}
		}
		if shown := wantState(t, o, id, "succeeded"); string(shown.Result) != fmt.Sprint(winner) {
			t.Fatalf("result %s, caller %d has the receipt", shown.Result, winner)
		}
		if kept := listEvidence(t, o, running.AttemptID); len(kept) != 15 {
			t.Fatalf("%d evidence, want 15", len(kept))
		}
	})
}

func TestFinishAndRecoveryAtOnceNeverBoth(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy("unknown_outcome", "review"))
	w := openWorker(t, o, "w", "mail")
	won := map[string]int{}
	const each = 4
	for range 10 {
		var running []offer
		for range each {
			submit(t, o, "mail")
			running = append(running, w.run())
		}
		o.StayFresh(6 * time.Second)
		finished := make([]itemResult, each)
		lost := 0
		race(t, each+1, func(i int) (_ struct{}, err error) {
			if i == each {
				lost, err = pass(t, o, "recover_leases", 0)
				return
			}
			finished[i], err = w.on(i%2).sendItem(finishPath, running[i].item("outcome", "succeeded", "result", i))
			return
		})
		// What the pass found held by a finish it has left alone; by now that finish has ended.
		lost += o.Pass("recover_leases")
		for i, f := range finished {
			shown, kept := getTask(t, o, running[i].TaskID), listEvidence(t, o, running[i].AttemptID)
			switch {
			case f.Status == 200 && shown.State == "succeeded" && len(kept) == 0:
				won["finish"]++
			case f.Problem.Code == "lease_lost" && shown.State == "review" && len(kept) == 1 && kept[0].ID == f.EvidenceID:
				won["recovery"]++
				lost--
			default:
				t.Fatalf("finish %d %s, task %s, %d evidence", f.Status, f.Problem.Code, shown.State, len(kept))
			}
			if n := countEvents(t, o, running[i].AttemptID)["attempt.ended"]; n != 1 {
				t.Fatalf("the attempt ended %d times", n)
			}
		}
		if lost != 0 {
			t.Fatalf("%d more leases lost than refused", lost)
		}
	}
	t.Log(won)
}

func TestOneHeldAttemptInAFinishHarmsOnlyItself(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	for range 3 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(3)
	for _, a := range offers {
		wantItem(t, w.start(a), 200, "")
	}
	release := holdRows(t, o, "pulse_attempts WHERE id = UNHEX(?)", offers[1].AttemptID)
	finish := later(t, func() (harness.Reply, error) {
		return w.send(finishPath, map[string]any{"items": []any{
			offers[0].item("outcome", "succeeded", "result", 0), offers[1].item("outcome", "succeeded", "result", 1), offers[2].item("outcome", "succeeded", "result", 2)}})
	})
	awaitLockWait(t, o, "pulse_attempts")
	// The others are done while the held one waits.
	wantState(t, o, offers[0].TaskID, "succeeded")
	wantState(t, o, offers[2].TaskID, "succeeded")
	wantState(t, o, offers[1].TaskID, "running")
	release()
	var got struct {
		Items []itemResult `json:"items"`
	}
	finish().Want(t, 200).JSON(t, &got)
	for _, i := range got.Items {
		wantItem(t, i, 200, "")
	}
	wantState(t, o, offers[1].TaskID, "succeeded")
}
