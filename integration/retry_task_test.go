package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// failed submits a task, has it fail for good, and answers its id.
func failed(t testing.TB, o *harness.Orbit, w *worker, queue string, more ...any) string {
	t.Helper()
	id := submit(t, o, queue, more...)
	wantItem(t, w.fail(w.run(), false), 200, "")
	wantState(t, o, id, "failed")
	return id
}

func TestRetryTaskQueuesAFailedTaskWithANewBudget(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	id := failed(t, o, w, "mail", "max_attempts", 1)
	before := getTask(t, o, id)
	first := act(o, id, "retry", map[string]any{"reason": "mended", "max_attempts": 2}, harness.Key("k"), ifMatch(before.Etag)).Want(t, 200)
	var shown task
	if first.JSON(t, &shown); shown.State != "queued" || shown.Waiting.Kind != "ready" || shown.AttemptsUsed != 0 || shown.MaxAttempts != 2 || !shown.ExpiresAt.IsZero() || shown.Etag == before.Etag {
		t.Fatalf("%s", first.Body)
	}
	running := w.run()
	if running.TaskID != id || running.AttemptNumber != 1 || running.Generation != 2 {
		t.Fatalf("%+v", running)
	}
	wantItem(t, w.succeed(running, `1`), 200, "")
	again := act(o, id, "retry", map[string]any{"reason": "mended", "max_attempts": 2}, harness.Key("k"), ifMatch(before.Etag)).Want(t, 200)
	if string(again.Body) != string(first.Body) || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("a repeat got %s, want %s", again.Body, first.Body)
	}
	wantState(t, o, id, "succeeded")
	if n := audited(t, o, "retryTask", id); n != 1 {
		t.Fatalf("%d entries in the audit", n)
	}
	if got := countEvents(t, o, id); got["task.requeued"] != 1 || got["task.failed"] != 1 {
		t.Fatalf("events %v", got)
	}
}

func TestRetryTaskMayWaitAndKeepsADeadlineToCome(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	deadline := time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
	past, kept := failed(t, o, w, "mail", "deadline_at", deadline), failed(t, o, w, "mail", "deadline_at", deadline.Add(24*time.Hour))
	o.Advance(2 * time.Hour)
	runAt := deadline.Add(3 * time.Hour)
	for id, want := range map[string]time.Time{past: {}, kept: deadline.Add(24 * time.Hour)} {
		act(o, id, "retry", map[string]any{"run_at": runAt}, harness.Key(id)).Want(t, 200)
		if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "scheduled" || !got.Waiting.Until.Equal(runAt) || !got.DeadlineAt.Equal(want) {
			t.Fatalf("%+v, want a deadline at %s", got, want)
		}
	}
	o.Advance(25 * time.Hour)
	o.Pass("expire_deadlines")
	wantState(t, o, past, "queued")
	wantState(t, o, kept, "failed")
	act(o, kept, "retry", map[string]any{"run_at": "1980-01-01T00:00:00Z"}, harness.Key("past")).Want(t, 200)
	if got := wantState(t, o, kept, "queued"); got.Waiting.Kind != "ready" {
		t.Fatalf("a run_at in the past waits: %+v", got)
	}
}

func TestRetryTaskRefuses(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	w := openWorker(t, o, "w", "mail")
	deadline := time.Now().UTC().Add(time.Hour)
	id := failed(t, o, w, "mail", "deadline_at", deadline)
	succeeded := submit(t, o, "mail")
	wantItem(t, w.succeed(w.run(), `1`), 200, "")
	cancelled, open := submit(t, o, "mail"), submit(t, o, "mail")
	act(o, cancelled, "cancel", nil, harness.Key("c")).Want(t, 200)
	for i, other := range []string{succeeded, cancelled, open, inReview(t, o, "money")} {
		p := act(o, other, "retry", nil, harness.Key(fmt.Sprint("s", i))).WantProblem(t, 409, "state_conflict")
		if state := getTask(t, o, other).State; !strings.HasSuffix(p.Detail, "this one is "+state) {
			t.Errorf("a task that is %s: %s", state, p.Detail)
		}
	}
	act(o, id, "retry", nil).WantProblem(t, 400, "idempotency_missing")
	act(o, id, "retry", nil, harness.Key("k"), ifMatch(`"1-1-1"`)).WantProblem(t, 412, "revision_mismatch")
	for _, bad := range []map[string]any{{"max_attempts": 0}, {"max_attempts": 101}, {"run_at": "soon"}, {"run_at": "1969-12-31T23:59:59Z"}, {"delay_ms": 1},
		{"run_at": deadline}, {"run_at": deadline.Add(time.Second)}} {
		act(o, id, "retry", bad, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	}
	act(o, newInstance(), "retry", nil, harness.Key("k")).WantProblem(t, 404, "not_found")
	_, tenant := o.Tenant("other-tenant")
	o.CallAt(o.URL(), tenant, "POST", "/v1/tasks/"+id+":retry", nil, harness.Key("k")).WantProblem(t, 404, "not_found")
	reader := o.Credential(o.Namespace, []string{"tasks:read", "tasks:execute"}, []string{"*"})
	o.CallAt(o.URL(), reader, "POST", "/v1/tasks/"+id+":retry", nil, harness.Key("k")).WantProblem(t, 403, "forbidden")
	wantState(t, o, id, "failed")
	act(o, id, "retry", map[string]any{"run_at": deadline.Add(-time.Second)}, harness.Key("k")).Want(t, 200)
}

func TestRetriesAtOnceHaveOneWinner(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	for range 5 {
		id := failed(t, o, w, "mail")
		got := race(t, 8, func(i int) (harness.Reply, error) {
			// Each key twice, on two replicas.
			return harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks/"+id+":retry", nil, harness.Key(fmt.Sprint(id, i/2)))
		})
		won := 0
		for i := 0; i < len(got); i += 2 {
			if got[i].Status != got[i+1].Status {
				t.Fatalf("one key got %d and %d", got[i].Status, got[i+1].Status)
			}
			if got[i].Status == 200 {
				if won++; string(got[i].Body) != string(got[i+1].Body) {
					t.Fatalf("one key got %s and %s", got[i].Body, got[i+1].Body)
				}
				continue
			}
			got[i].WantProblem(t, 409, "state_conflict")
		}
		if won != 1 {
			t.Fatalf("%d keys won", won)
		}
		wantItem(t, w.succeed(w.run(), `1`), 200, "")
		if len(w.claim(1)) != 0 {
			t.Fatal("the task was queued twice")
		}
	}
}
