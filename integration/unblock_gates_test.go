package integration_test

import (
	"fmt"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// blockBehindGate has n started offers of a queue refused by its pause, and answers their tasks. The queue stays paused.
func blockBehindGate(t testing.TB, o *harness.Orbit, w *worker, queueID, name string, n int) []string {
	t.Helper()
	for range n {
		submit(t, o, name)
	}
	var offers []offer
	for len(offers) < n {
		offers = append(offers, w.claimFrom(min(100, n-len(offers)), name)...)
	}
	o.Call("POST", "/v1/queues/"+queueID+":pause", map[string]any{"reason": "r"}, harness.Key("pause-"+offers[0].AttemptID)).Want(t, 200)
	var items []map[string]any
	for _, a := range offers {
		items = append(items, a.item())
	}
	for _, i := range w.items(startPath, items...) {
		wantItem(t, i, 409, "start_refused")
	}
	return taskIDs(offers)
}

func resume(t testing.TB, o *harness.Orbit, queueID, key string) {
	t.Helper()
	o.Call("POST", "/v1/queues/"+queueID+":resume", nil, harness.Key(key)).Want(t, 200)
}

func TestUnblockGatesWakesTasksOfOpenGatesOnly(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	ids := map[string]string{"a": o.CreateQueue("a", policy()), "b": o.CreateQueue("b", policy())}
	w := openWorker(t, o, "w", "a", "b")
	a, b := blockBehindGate(t, o, w, ids["a"], "a", 3), blockBehindGate(t, o, w, ids["b"], "b", 2)
	if n := o.Pass("unblock_gates"); n != 0 {
		t.Fatalf("%d tasks woke behind closed gates", n)
	}
	resume(t, o, ids["a"], "r")
	if n := o.Pass("unblock_gates"); n != 3 {
		t.Fatalf("%d tasks woke, want 3", n)
	}
	for _, id := range a {
		if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "ready" {
			t.Fatalf("%+v", got)
		}
	}
	for _, id := range b {
		if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "blocked" {
			t.Fatalf("%+v", got)
		}
	}
	// Blocked tasks can be cancelled like all others.
	act(o, b[0], "cancel", nil, harness.Key("c")).Want(t, 200)
	resume(t, o, ids["b"], "r")
	if n := o.Pass("unblock_gates"); n != 1 {
		t.Fatalf("%d tasks woke, want the one that was left", n)
	}
}

func TestATaskThatWokeBehindAGateClosedAgainWaitsAgain(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	tasks := blockBehindGate(t, o, w, id, "mail", 1)
	for round := range 3 {
		resume(t, o, id, fmt.Sprint("r", round))
		o.Pass("unblock_gates")
		offered := w.claimOne()
		o.Call("POST", "/v1/queues/"+id+":pause", map[string]any{"reason": "r"}, harness.Key(fmt.Sprint("p", round))).Want(t, 200)
		wantItem(t, w.start(offered), 409, "start_refused")
		if got := wantState(t, o, tasks[0], "queued"); got.Waiting.Kind != "blocked" || got.AttemptsUsed != 0 {
			t.Fatalf("%+v", got)
		}
	}
}

func TestManyBlockedTasksWakeAndPassesAtOnceMoveEachOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	id := o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	tasks := blockBehindGate(t, o, w, id, "mail", 250)
	resume(t, o, id, "r")
	sum := 0
	for _, n := range race(t, 4, func(i int) (int, error) { return pass(t, o, "unblock_gates", i%2) }) {
		sum += n
	}
	for {
		n := o.Pass("unblock_gates")
		if sum += n; n == 0 {
			break
		}
	}
	if sum != len(tasks) || o.Count("pulse_ready") != len(tasks) || o.Count("pulse_blocked") != 0 {
		t.Fatalf("%d woke, want %d", sum, len(tasks))
	}
}

func TestOneHeldTaskDoesNotKeepOthersFromWaking(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	tasks := blockBehindGate(t, o, w, id, "mail", 3)
	resume(t, o, id, "r")
	release := holdRows(t, o, "pulse_blocked WHERE task_id = UNHEX(?)", tasks[1])
	if n := o.Pass("unblock_gates"); n != 2 {
		t.Fatalf("%d tasks woke beside a held one, want 2", n)
	}
	release()
	if n := o.Pass("unblock_gates"); n != 1 {
		t.Fatalf("%d tasks woke, want the one that was held", n)
	}
}
