package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// soon is a deadline one minute from now on the database's clock.
func soon(t testing.TB, o *harness.Orbit) time.Time {
	t.Helper()
	return value[time.Time](t, o, "SELECT NOW(6)").Add(o.Offset() + time.Minute)
}

func TestADeadlineFailsAnOpenTaskWhereverItIs(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("mail", policy("unknown_outcome", "review"))
	deadline := soon(t, o)
	w := openWorker(t, o, "w", "mail")
	blocked := submit(t, o, "mail", "deadline_at", deadline)
	toBlock := w.claimOne()
	o.Call("POST", "/v1/queues/"+queue+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
	wantItem(t, w.start(toBlock), 409, "start_refused")
	o.Call("POST", "/v1/queues/"+queue+":resume", nil, harness.Key("r")).Want(t, 200)
	review := inReview(t, o, "mail", "deadline_at", deadline)
	running := submit(t, o, "mail", "deadline_at", deadline)
	runs := w.run()
	offered := submit(t, o, "mail", "deadline_at", deadline)
	given := w.claimOne()
	isReady := submit(t, o, "mail", "deadline_at", deadline)
	scheduled := submit(t, o, "mail", "deadline_at", deadline, "delay_ms", 30_000)
	free := submit(t, o, "mail")
	ended := submit(t, o, "mail", "deadline_at", deadline)
	act(o, ended, "cancel", nil, harness.Key("c")).Want(t, 200)

	o.Advance(30 * time.Second)
	if n := o.Pass("expire_deadlines"); n != 0 {
		t.Fatalf("%d tasks failed before their deadline", n)
	}
	o.Advance(31 * time.Second)
	if got := taskIDs(w.claim(10)); len(got) != 1 || got[0] != free {
		t.Fatalf("offered %v, want none that is overdue", got)
	}
	// The ready one failed in the claim that met it.
	if n := o.Pass("expire_deadlines"); n != 4 {
		t.Fatalf("%d tasks failed, want 4", n)
	}
	for name, id := range map[string]string{"blocked": blocked, "running": running, "offered": offered, "ready": isReady, "scheduled": scheduled} {
		if got := wantState(t, o, id, "failed"); got.Failure.Code != "deadline_exceeded" || (got.AttemptsUsed == 1) != (name == "running") || !got.DeadlineAt.Equal(deadline) {
			t.Fatalf("%s: %+v", name, got)
		}
		if n := countEvents(t, o, id)["task.failed"]; n != 1 {
			t.Fatalf("%s: failed %d times", name, n)
		}
	}
	wantState(t, o, review, "review")
	wantState(t, o, ended, "cancelled")
	wantItem(t, w.start(given), 409, "stale_attempt")
	wantItem(t, w.heartbeat(runs), 409, "lease_lost")
	late := w.succeed(runs, `1`)
	if wantItem(t, late, 409, "state_conflict"); late.EvidenceID == "" {
		t.Fatal("a result after the deadline is lost")
	}
	wantState(t, o, running, "failed")
	if n := o.Pass("expire_deadlines"); n != 0 || o.Count("pulse_deadlines") != 0 {
		t.Fatalf("%d more", n)
	}
}

func TestARetriedTaskKeepsItsDeadline(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail", "deadline_at", soon(t, o))
	w := openWorker(t, o, "w", "mail")
	receiptOf(t, w.fail(w.run(), true))
	o.Advance(61 * time.Second)
	if n := o.Pass("expire_deadlines"); n != 1 {
		t.Fatalf("%d tasks failed, want 1", n)
	}
	if got := wantState(t, o, id, "failed"); got.Failure.Code != "deadline_exceeded" || got.AttemptsUsed != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestOneHeldTaskDoesNotKeepTheDeadlinesOfOthers(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	deadline := soon(t, o)
	held := submit(t, o, "mail", "deadline_at", deadline)
	w := openWorker(t, o, "w", "mail")
	running := w.run()
	other := submit(t, o, "mail", "deadline_at", deadline.Add(time.Second))
	release := holdRows(t, o, "pulse_attempts WHERE id = UNHEX(?)", running.AttemptID)
	o.Advance(65 * time.Second)
	if n := o.Pass("expire_deadlines"); n != 1 {
		t.Fatalf("%d tasks failed beside a held one, want 1", n)
	}
	wantState(t, o, held, "running")
	wantState(t, o, other, "failed")
	release()
	if n := o.Pass("expire_deadlines"); n != 1 {
		t.Fatalf("%d tasks failed, want the one that was held", n)
	}
	wantState(t, o, held, "failed")
}

func TestADeadlineAndAFinishAtOnceNeverBoth(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	won := map[string]int{}
	for range 12 {
		id := submit(t, o, "mail", "deadline_at", soon(t, o))
		running := w.run()
		o.Advance(61 * time.Second)
		var finish itemResult
		race(t, 3, func(i int) (_ struct{}, err error) {
			if i == 0 {
				finish, err = w.on(0).sendItem(finishPath, running.item("outcome", "succeeded", "result", 1))
				return
			}
			_, err = pass(t, o, "expire_deadlines", i%2)
			return
		})
		shown := getTask(t, o, id)
		switch {
		case finish.Status == 200 && shown.State == "succeeded":
			won["finish"]++
		case finish.Problem.Code == "state_conflict" && finish.EvidenceID != "" && shown.State == "failed" && shown.Failure.Code == "deadline_exceeded":
			won["deadline"]++
		default:
			t.Fatalf("finish %d %s, task %s (%s)", finish.Status, finish.Problem.Code, shown.State, shown.Failure.Code)
		}
		if n := countEvents(t, o, running.AttemptID)["attempt.ended"]; n != 1 {
			t.Fatalf("the attempt ended %d times", n)
		}
	}
	t.Log(won)
}

func TestDeadlinesClaimsAndCancelsAtOnceEndEachTaskOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	for round := range 5 {
		deadline := soon(t, o)
		ids := make([]string, 6)
		for i := range ids {
			ids[i] = submit(t, o, "mail", "deadline_at", deadline)
		}
		half := w.claim(3)
		o.Advance(61 * time.Second)
		race(t, len(ids)+6, func(i int) (_ struct{}, err error) {
			switch {
			case i < len(ids):
				r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks/"+ids[i]+":cancel", nil, harness.Key(fmt.Sprint(round, "-", i)))
				if err == nil && r.Status != 200 && r.Status != 409 {
					err = fmt.Errorf("cancel: %d %s", r.Status, r.Body)
				}
				return struct{}{}, err
			case i < len(ids)+3:
				_, err = pass(t, o, "expire_deadlines", i%2)
			default:
				_, err = w.on(i%2).sendItem(startPath, half[i-len(ids)-3].item())
			}
			return
		})
		// A task that was started and asked to stop is running still; its deadline ends it.
		o.Pass("expire_deadlines")
		for _, id := range ids {
			shown := getTask(t, o, id)
			counts := countEvents(t, o, id)
			if shown.State != "failed" && shown.State != "cancelled" || counts["task.failed"]+counts["task.cancelled"] != 1 {
				t.Fatalf("task is %s: %v", shown.State, counts)
			}
		}
	}
}

// A backlog that nobody can run any more hides nothing behind it.
func TestOverdueTasksAtTheFrontHideNoOthers(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	deadline := soon(t, o)
	var items []map[string]any
	for i := range 300 {
		items = append(items, map[string]any{"idempotency_key": fmt.Sprint("overdue-", i), "queue": "mail", "type": "t", "deadline_at": deadline})
	}
	o.Call("POST", "/v1/tasks:batch", map[string]any{"items": items}).Want(t, 200)
	free := submit(t, o, "mail")
	o.Advance(2 * time.Minute)
	w := openWorker(t, o, "w", "mail")
	if got := taskIDs(w.claim(100)); len(got) != 1 || got[0] != free {
		t.Fatalf("offered %v, want only the task that is not overdue", got)
	}
	if n := o.Count("pulse_tasks WHERE failure_code = 'deadline_exceeded'"); n != 300 {
		t.Fatalf("%d of 300 overdue tasks failed", n)
	}
}

// Two replicas that see the same overdue tasks fail each once, and none twice.
func TestReplicasFailOverdueTasksOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	deadline := soon(t, o)
	var items []map[string]any
	for i := range 200 {
		items = append(items, map[string]any{"idempotency_key": fmt.Sprint("overdue-", i), "queue": "mail", "type": "t", "deadline_at": deadline})
	}
	o.Call("POST", "/v1/tasks:batch", map[string]any{"items": items}).Want(t, 200)
	o.Advance(2 * time.Minute)
	moved := race(t, 2, func(replica int) (int, error) { return pass(t, o, "expire_deadlines", replica) })
	if rest := o.Pass("expire_deadlines"); moved[0]+moved[1]+rest != 200 {
		t.Fatalf("%v and %d tasks failed, want 200 in all", moved, rest)
	}
}
