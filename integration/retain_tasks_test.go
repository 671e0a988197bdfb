package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestRetainTasksRemovesATaskWithAllThatHangsOnItButNotKeysAndEvents(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("retention_ms", 3_600_000))
	w := openWorker(t, o, "w", "mail")
	body := map[string]any{"queue": "mail", "type": "t"}
	var receipt struct {
		TaskID string `json:"task_id"`
	}
	first := o.Call("POST", "/v1/tasks", body, harness.Key("kept"))
	first.Want(t, 201).JSON(t, &receipt)
	receiptOf(t, w.fail(w.run(), true))
	ready(o, time.Minute)
	running := w.run()
	wantItem(t, w.succeed(running, `1`), 200, "")
	wantItem(t, w.succeed(running, `2`), 409, "result_conflict")
	young := submit(t, o, "mail")
	open := submit(t, o, "mail")
	w.claimOne()
	o.Advance(59 * time.Minute)
	act(o, young, "cancel", nil, harness.Key("c")).Want(t, 200)
	if n := o.Pass("retain_tasks"); n != 0 {
		t.Fatalf("%d tasks removed before their time", n)
	}
	o.Advance(2 * time.Minute)
	if n := o.Pass("retain_tasks"); n != 1 {
		t.Fatalf("%d tasks removed, want 1", n)
	}
	for _, path := range []string{"/v1/tasks/" + receipt.TaskID, "/v1/tasks/" + receipt.TaskID + "/attempts", "/v1/attempts/" + running.AttemptID, "/v1/attempts/" + running.AttemptID + "/evidence"} {
		o.Call("GET", path, nil).WantProblem(t, 404, "not_found")
	}
	for _, table := range []string{"pulse_attempt_receipts", "pulse_attempt_evidence"} {
		if n := o.Count(table); n != 0 {
			t.Fatalf("%d rows are left in %s", n, table)
		}
	}
	if n := o.Count("pulse_attempts"); n != 1 {
		t.Fatalf("%d attempts, want the one of another task", n)
	}
	wantState(t, o, young, "cancelled")
	if s := getTask(t, o, open).State; s != "queued" {
		t.Fatalf("task is %s", s)
	}
	// The key outlives its task: nothing is accepted twice.
	again := o.Call("POST", "/v1/tasks", body, harness.Key("kept")).Want(t, 201)
	if string(again.Body) != string(first.Body) || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("the key's reply is %s, was %s", again.Body, first.Body)
	}
	if got := countEvents(t, o, receipt.TaskID); got["task.accepted"] != 1 || got["task.succeeded"] != 1 {
		t.Fatalf("events %v", got)
	}
	wantItem(t, w.succeed(running, `1`), 404, "not_found")
}

func TestAnExpiredTaskIsEitherRetriedOrRemoved(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy("retention_ms", 3_600_000))
	w := openWorker(t, o, "w", "mail")
	won := map[string]int{}
	for round := range 10 {
		ids := []string{failed(t, o, w, "mail"), failed(t, o, w, "mail"), failed(t, o, w, "mail")}
		o.Advance(61 * time.Minute)
		replies := make([]harness.Reply, len(ids))
		race(t, len(ids)+2, func(i int) (_ struct{}, err error) {
			if i < len(ids) {
				replies[i], err = harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks/"+ids[i]+":retry", nil, harness.Key(fmt.Sprint(round, "-", i)))
				return
			}
			_, err = pass(t, o, "retain_tasks", i%2)
			return
		})
		o.Pass("retain_tasks") // what a retry held was left alone
		for i, r := range replies {
			switch r.Status {
			case 200:
				won["retry"]++
				wantState(t, o, ids[i], "queued")
			case 404:
				won["removal"]++
				o.Call("GET", "/v1/tasks/"+ids[i], nil).WantProblem(t, 404, "not_found")
			default:
				t.Fatalf("retry: %d %s", r.Status, r.Body)
			}
		}
		for _, again := range w.claim(10) {
			wantItem(t, w.start(again), 200, "")
			wantItem(t, w.succeed(again, `1`), 200, "")
		}
	}
	t.Log(won)
}

func TestARetryUnderWayKeepsItsTask(t *testing.T) {
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{})
	o.AddReplica(harness.Options{Between: harness.Around(b.around)})
	o.CreateQueue("mail", policy("retention_ms", 3_600_000))
	id := failed(t, o, openWorker(t, o, "w", "mail"), "mail")
	o.CallAt(o.Replica(1).URL, o.Key, "GET", "/v1/tasks/"+id, nil).Want(t, 200)
	o.Advance(61 * time.Minute)
	reached, goOn := b.next(harness.Commit)
	defer goOn()
	retry := later(t, func() (harness.Reply, error) {
		return harness.Do(t.Context(), o.Replica(1).URL, o.Key, "POST", "/v1/tasks/"+id+":retry", nil, harness.Key("k"))
	})
	within(t, reached, "the retry to commit")
	if n := o.Pass("retain_tasks"); n != 0 {
		t.Fatal("a task that is being retried was removed")
	}
	goOn()
	retry().Want(t, 200)
	if n := o.Pass("retain_tasks"); n != 0 {
		t.Fatal("a retried task was removed")
	}
	wantState(t, o, id, "queued")
}

func TestOneHeldRowDoesNotKeepRetentionFromOtherTasks(t *testing.T) {
	for _, held := range []string{"pulse_tasks WHERE id = UNHEX(?)", "pulse_attempts WHERE task_id = UNHEX(?)"} {
		t.Run(held, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			o.CreateQueue("mail", policy("retention_ms", 3_600_000))
			w := openWorker(t, o, "w", "mail")
			ids := []string{failed(t, o, w, "mail"), failed(t, o, w, "mail"), failed(t, o, w, "mail")}
			o.Advance(61 * time.Minute)
			release := holdRows(t, o, held, ids[1])
			if n := o.Pass("retain_tasks"); n != 2 {
				t.Fatalf("%d tasks removed beside a held one, want 2", n)
			}
			wantState(t, o, ids[1], "failed")
			release()
			if n := o.Pass("retain_tasks"); n != 1 {
				t.Fatalf("%d tasks removed, want the one that was held", n)
			}
		})
	}
}

func TestALateResultAndRetentionAtOnceBreakNothing(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy("retention_ms", 3_600_000))
	w := openWorker(t, o, "w", "mail")
	for range 8 {
		submit(t, o, "mail")
		running := w.run()
		wantItem(t, w.succeed(running, `1`), 200, "")
		o.Advance(61 * time.Minute)
		race(t, 6, func(i int) (_ struct{}, err error) {
			if i >= 4 {
				_, err = pass(t, o, "retain_tasks", i%2)
				return
			}
			got, err := w.on(i%2).sendItem(finishPath, running.item("outcome", "succeeded", "result", 2+i))
			if err == nil && got.Problem.Code != "result_conflict" && got.Problem.Code != "not_found" {
				err = fmt.Errorf("%d %s %s", got.Status, got.Problem.Code, got.Problem.Detail)
			}
			return struct{}{}, err
		})
		o.Pass("retain_tasks")
		for _, table := range []string{"pulse_tasks", "pulse_attempts", "pulse_attempt_receipts", "pulse_attempt_evidence"} {
			if n := o.Count(table); n != 0 {
				t.Fatalf("%d rows are left in %s", n, table)
			}
		}
	}
}

func TestRetentionSpansBatches(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("retention_ms", 3_600_000))
	w := openWorker(t, o, "w", "mail")
	submitMany(t, o, "mail", 250)
	for {
		offers := w.claim(100)
		if len(offers) == 0 {
			break
		}
		var start, finish []map[string]any
		for _, a := range offers {
			start, finish = append(start, a.item()), append(finish, a.item("outcome", "succeeded", "result", 1))
		}
		w.items(startPath, start...)
		w.items(finishPath, finish...)
	}
	o.Advance(61 * time.Minute)
	if n := o.Pass("retain_tasks"); n != 250 || o.Count("pulse_tasks")+o.Count("pulse_attempts")+o.Count("pulse_attempt_receipts") != 0 {
		t.Fatalf("%d tasks removed, want 250", n)
	}
}
