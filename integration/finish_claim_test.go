package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// finished is the reply to results with a claim.
type finished struct {
	Items []itemResult `json:"items"`
	Claim struct {
		Status   int             `json:"status"`
		ClaimSeq int64           `json:"claim_seq"`
		Offers   []offer         `json:"offers"`
		Problem  harness.Problem `json:"problem"`
	} `json:"claim"`
}

// succeedClaiming reports successes and claims in the same call.
func (w *worker) succeedClaiming(max int, ran ...offer) finished {
	w.t.Helper()
	w.seq++
	return w.succeedWith(map[string]any{"claim_seq": w.seq, "max": max}, ran...)
}

func (w *worker) succeedWith(claim map[string]any, ran ...offer) finished {
	w.t.Helper()
	var got finished
	w.call(finishPath, claiming(claim, ran...)).Want(w.t, 200).JSON(w.t, &got)
	return got
}

func claiming(claim map[string]any, ran ...offer) map[string]any {
	items := make([]any, len(ran))
	for i, o := range ran {
		items[i] = o.item("outcome", "succeeded", "result", 1)
	}
	return map[string]any{"items": items, "claim": claim}
}

// running starts n tasks of a queue, submitted for it.
func (w *worker) running(queue string, n int) []offer {
	w.t.Helper()
	submitMany(w.t, w.o, queue, n)
	offers := w.claim(n)
	if len(offers) != n {
		w.t.Fatalf("%d offers, want %d", len(offers), n)
	}
	for _, o := range offers {
		wantItem(w.t, w.start(o), 200, "")
	}
	return offers
}

func TestResultsMayComeWithAClaim(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	o.CreateQueue("fast", policy("one_step", true))
	w := openWorker(t, o, "w", "mail", "fast")
	running := w.running("mail", 3)
	tasks := slices.Sorted(slices.Values(submitMany(t, o, "mail", 3))) // of one time, and so in order of their ids
	fast := submit(t, o, "fast", "priority", 9)

	got := w.succeedClaiming(2, running[0], running[1])
	for i := range 2 {
		wantItem(t, got.Items[i], 200, "")
		wantState(t, o, running[i].TaskID, "succeeded")
	}
	if got.Claim.Status != 200 || got.Claim.ClaimSeq != w.seq || !slices.Equal(taskIDs(got.Claim.Offers), tasks[:2]) {
		t.Fatalf("%+v", got.Claim)
	}
	wantItem(t, w.start(got.Claim.Offers[0]), 200, "")

	// A bad item is its own affair; the queues may be named; what may start does.
	w.seq++
	got = w.succeedWith(map[string]any{"claim_seq": w.seq, "max": 100, "start": true, "queues": []string{"fast"}},
		offer{AttemptID: running[2].AttemptID, Token: running[0].Token}, got.Claim.Offers[0])
	wantItem(t, got.Items[0], 409, "stale_attempt")
	wantItem(t, got.Items[1], 200, "")
	if wantStarted(t, got.Claim.Offers, 1); got.Claim.Offers[0].TaskID != fast {
		t.Fatalf("%+v", got.Claim)
	}
	// Even if every item is bad.
	got = w.succeedClaiming(100, offer{AttemptID: newInstance(), Token: running[0].Token})
	wantItem(t, got.Items[0], 404, "not_found")
	if wantPlain(t, got.Claim.Offers, 1); got.Claim.Offers[0].TaskID != tasks[2] {
		t.Fatalf("%+v", got.Claim)
	}
	got = w.succeedClaiming(100, running[2]) // nothing is left, and it does not wait
	if wantItem(t, got.Items[0], 200, ""); got.Claim.Status != 200 || got.Claim.Offers == nil || len(got.Claim.Offers) != 0 {
		t.Fatalf("%+v", got)
	}
	// Without a claim the reply has none.
	if r := w.call(finishPath, map[string]any{"items": []any{running[0].item("outcome", "succeeded", "result", 1)}}).Want(t, 200); strings.Contains(string(r.Body), `"claim"`) {
		t.Fatalf("%s", r.Body)
	}
}

func TestARefusedClaimHarmsNoResults(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	running := w.running("mail", 2)
	waiting := submit(t, o, "mail")
	w.call(releasePath, map[string]any{"claim_seq": 7}).Want(t, 200)
	got := w.succeedWith(map[string]any{"claim_seq": 7, "max": 1}, running[0])
	wantItem(t, got.Items[0], 200, "")
	if got.Claim.Status != 409 || got.Claim.Problem.Code != "state_conflict" || got.Claim.ClaimSeq != 7 || len(got.Claim.Offers) != 0 {
		t.Fatalf("%+v", got.Claim)
	}
	openWorker(t, o, "w", "mail")
	got = w.succeedWith(map[string]any{"claim_seq": 8, "max": 1, "start": true}, running[0], running[1])
	if wantItem(t, got.Items[0], 200, ""); !got.Items[0].Replayed {
		t.Fatalf("%+v", got.Items[0])
	}
	if wantItem(t, got.Items[1], 409, "session_superseded"); got.Items[1].EvidenceID == "" {
		t.Fatalf("%+v", got.Items[1])
	}
	if got.Claim.Status != 409 || got.Claim.Problem.Code != "session_superseded" {
		t.Fatalf("%+v", got.Claim)
	}
	wantState(t, o, waiting, "queued")
}

func TestResultsWithAnImpossibleClaimAreRefusedUntouched(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	o.CreateQueue("secret", policy())
	w := &worker{t: t, o: o, url: o.URL(), key: o.Credential(o.Namespace, []string{"tasks:execute"}, []string{"mail"}), instance: newInstance()}
	w.open("w", "mail")
	running := w.running("mail", 1)
	for _, queue := range []string{"secret", "nope"} {
		w.call(finishPath, claiming(map[string]any{"claim_seq": 9, "max": 1, "queues": []string{queue}}, running...)).WantProblem(t, 404, "not_found")
	}
	for name, claim := range map[string]map[string]any{
		"no seq": {"max": 1}, "seq 0": {"claim_seq": 0, "max": 1}, "no max": {"claim_seq": 9}, "max 0": {"claim_seq": 9, "max": 0}, "max 101": {"claim_seq": 9, "max": 101},
		"wait": {"claim_seq": 9, "max": 1, "wait_ms": 1}, "no queue": {"claim_seq": 9, "max": 1, "queues": []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			w.call(finishPath, claiming(claim, running...)).WantProblem(t, 400, "invalid_request")
		})
	}
	w.call(finishPath, map[string]any{"items": []any{}, "claim": map[string]any{"claim_seq": 9, "max": 1}}).WantProblem(t, 400, "invalid_request")
	wantState(t, o, running[0].TaskID, "running")
	wantItem(t, w.succeed(running[0], `1`), 200, "")
}

// The results of a repeat are settled by their tokens, and its claim is one more: nothing tells it from a claim that was meant.
func TestARepeatOfResultsWithAClaimClaimsAgain(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	running := w.running("mail", 1)
	tasks := slices.Sorted(slices.Values(submitMany(t, o, "mail", 3))) // of one time, and so in order of their ids
	w.seq++
	claim := map[string]any{"claim_seq": w.seq, "max": 1}
	first, second := w.succeedWith(claim, running...), w.succeedWith(claim, running...)
	if wantItem(t, second.Items[0], 200, ""); first.Items[0].Replayed || !second.Items[0].Replayed || first.Items[0].Receipt != second.Items[0].Receipt {
		t.Fatalf("%+v and %+v", first.Items[0], second.Items[0])
	}
	if got := append(taskIDs(first.Claim.Offers), taskIDs(second.Claim.Offers)...); !slices.Equal(got, tasks[:2]) {
		t.Fatalf("claimed %v, want %v", got, tasks[:2])
	}
	// Its number stands for both.
	var given struct{ Items []itemResult }
	w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200).JSON(t, &given)
	if len(given.Items) != 2 {
		t.Fatalf("%d given back, want 2", len(given.Items))
	}
	if third := w.succeedWith(claim, running...); third.Claim.Problem.Code != "state_conflict" || !third.Items[0].Replayed {
		t.Fatalf("%+v", third)
	}
	if got := taskIDs(w.claim(100)); !slices.Equal(got, tasks) {
		t.Fatalf("claimed %v, want %v", got, tasks)
	}
}

func TestAnUnansweredCommitOfResultsWithAClaimIsSettled(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*stoppedStatement)
		done bool
	}{"that was carried out": {(*stoppedStatement).lose, true}, "that never arrived": {(*stoppedStatement).cut, false}} {
		for _, oneStep := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", one step: ", oneStep), func(t *testing.T) {
				o := harness.Start(t, harness.Options{})
				wired, wire := addWired(t, o, harness.Options{})
				o.CreateQueue("mail", policy("one_step", oneStep))
				w := openWorker(t, o, "w", "mail")
				running := w.running("mail", 2)
				tasks := slices.Sorted(slices.Values(submitMany(t, o, "mail", 3))) // of one time, and so in order of their ids
				broken := *w
				broken.url = wired.URL
				broken.call("/v1/attempts:heartbeat", map[string]any{"items": []any{}}).Want(t, 200) // the credential is known there from now on
				c.end(wire.stop(harness.Commit))
				w.seq++
				claim := map[string]any{"claim_seq": w.seq, "max": 2, "start": true}
				broken.call(finishPath, claiming(claim, running...)).WantProblem(t, 503, "outcome_unknown")

				for _, i := range w.items(finishPath, running[0].item("outcome", "succeeded", "result", 1), running[1].item("outcome", "succeeded", "result", 1)) {
					if wantItem(t, i, 200, ""); i.Replayed != c.done {
						t.Fatalf("replayed: %t, committed: %t", i.Replayed, c.done)
					}
				}
				var given struct{ Items []itemResult }
				w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200).JSON(t, &given)
				if want := map[bool]int{true: 2}[c.done]; len(given.Items) != want {
					t.Fatalf("%d given back, want %d", len(given.Items), want)
				}
				offers := w.claim(100)
				if !slices.Equal(taskIDs(offers), tasks) {
					t.Fatalf("claimed %v, want %v", taskIDs(offers), tasks)
				}
				for _, a := range offers {
					if a.AttemptNumber != 1 {
						t.Fatalf("a lost claim used an attempt: %+v", a)
					}
					wantItem(t, w.start(a), 200, "")
					wantItem(t, w.succeed(a, `1`), 200, "")
				}
				if n := o.Count("pulse_attempt_receipts"); n != 5 {
					t.Fatalf("%d receipts, want 5", n)
				}
			})
		}
	}
}

// A transaction that fails before its commit has claimed nothing: the results are taken one by one, and the claim is answered with no offers.
func TestResultsWhoseTransactionFailsAreTakenWithoutTheClaim(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	wired, wire := addWired(t, o, harness.Options{})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	running := w.running("mail", 2)
	task := submit(t, o, "mail")
	broken := *w
	broken.url = wired.URL
	wire.stop("InsertSpool").cut()
	got := broken.succeedClaiming(1, running...)
	for _, i := range got.Items {
		if wantItem(t, i, 200, ""); i.Replayed {
			t.Fatalf("%+v", i)
		}
	}
	if got.Claim.Status != 200 || len(got.Claim.Offers) != 0 {
		t.Fatalf("%+v", got.Claim)
	}
	wantState(t, o, task, "queued")
}

// What is held for the results must not wait for a gate: others hold them in the other order.
func TestResultsWithAClaimThatMayStartWaitForAGateBeforeTheyHoldAttempts(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	running := w.running("mail", 2)
	release := holdRows(t, o, "pulse_execution_gates WHERE scope = 'namespace' AND namespace_id = ?", o.Namespace.ID)
	finish := later(t, func() (harness.Reply, error) {
		return w.send(finishPath, claiming(map[string]any{"claim_seq": 50, "max": 1, "start": true}, running[0]))
	})
	awaitLockWait(t, o, "pulse_execution_gates")
	if _, err := o.DB.ExecContext(t.Context(), "SELECT id FROM pulse_attempts WHERE id = UNHEX(?) FOR UPDATE NOWAIT", running[0].AttemptID); err != nil {
		t.Fatalf("the attempt is held while the gate is waited for: %v", err)
	}
	wantItem(t, w.succeed(running[1], `1`), 200, "") // gates are nothing to a result
	release()
	var got finished
	finish().Want(t, 200).JSON(t, &got)
	wantItem(t, got.Items[0], 200, "")
}

func TestResultsWithClaimsAtOnceAreEachAnsweredTheirs(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy("one_step", true, "lease_ms", 600_000))
	const callers, tasks = 12, 120
	workers := make([]*worker, callers)
	for i := range workers {
		workers[i] = openWorker(t, o, fmt.Sprint("w", i), "mail").on(i % 2)
	}
	want := map[string]bool{}
	for _, id := range submitMany(t, o, "mail", tasks) {
		want[id] = true
	}
	got := race(t, callers, func(i int) ([]string, error) {
		var mine []string
		var last []offer
		for {
			offers, err := workers[i].sendNext(last, 1+i%3)
			if err != nil {
				return nil, err
			}
			if len(offers) > 1+i%3 {
				return nil, fmt.Errorf("%d offers, want at most %d", len(offers), 1+i%3)
			}
			if len(offers) == 0 && len(last) == 0 {
				return mine, nil
			}
			mine, last = append(mine, taskIDs(offers)...), offers
		}
	})
	for _, id := range slices.Concat(got...) {
		if !want[id] {
			t.Fatalf("task %s was given twice", id)
		}
		delete(want, id)
	}
	if len(want) != 0 {
		t.Fatalf("%d tasks were given to nobody", len(want))
	}
	if n := o.Count("pulse_tasks WHERE state = 'succeeded' AND attempts_used = 1"); n != tasks {
		t.Fatalf("%d tasks succeeded at the first attempt, want %d", n, tasks)
	}
}

func TestClaimsWithResultsOfLargePayloadsStayWithinOneReply(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	running := w.running("mail", 2)
	payload := rawJSON(`"` + strings.Repeat("x", 6<<20) + `"`)
	var want []string
	for range 3 {
		want = append(want, submit(t, o, "mail", "payload", payload))
	}
	first, second := w.succeedClaiming(3, running[0]), w.succeedClaiming(3, running[1])
	wantItem(t, first.Items[0], 200, "")
	wantItem(t, second.Items[0], 200, "")
	offers := append(first.Claim.Offers, second.Claim.Offers...)
	if len(first.Claim.Offers) != 2 || !slices.Equal(taskIDs(offers), want) {
		t.Fatalf("%d and then %d offers of 6 MiB each, want 2 and 1", len(first.Claim.Offers), len(second.Claim.Offers))
	}
	for _, o := range offers {
		if o.Payload != payload {
			t.Fatalf("a payload of %d bytes came with %d", len(payload), len(o.Payload))
		}
	}
}

// A claim takes what was ready before its results: a task that they make ready is for the next one.
func TestAClaimWithAFailureTakesNotItsOwnTask(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("one_step", true, "backoff_initial_ms", 0))
	w := openWorker(t, o, "w", "mail")
	running := w.running("mail", 1)[0]
	var got finished
	w.call(finishPath, map[string]any{"items": []any{running.item("outcome", "failed")}, "claim": map[string]any{"claim_seq": 9, "max": 2, "start": true}}).Want(t, 200).JSON(t, &got)
	receiptOf(t, got.Items[0])
	wantStarted(t, got.Claim.Offers, 0)
	w.call(finishPath, map[string]any{"items": []any{running.item("outcome", "failed")}, "claim": map[string]any{"claim_seq": 10, "max": 2, "start": true}}).Want(t, 200).JSON(t, &got)
	again := wantStarted(t, got.Claim.Offers, 1)[0]
	if again.TaskID != running.TaskID || again.AttemptNumber != 2 || again.Generation != 2 {
		t.Fatalf("%+v", again)
	}
	wantItem(t, w.succeed(again, `1`), 200, "")
	if got := wantState(t, o, running.TaskID, "succeeded"); got.AttemptsUsed != 2 {
		t.Fatalf("%+v", got)
	}
}
