package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// inReview submits a task to a queue whose policy is review, has its attempt lost, and answers its id.
func inReview(t testing.TB, o *harness.Orbit, queue string, more ...any) string {
	t.Helper()
	id, _, _ := reviewed(t, o, queue, more...)
	return id
}

// reviewed is inReview with the attempt that was lost and its worker, fenced since.
func reviewed(t testing.TB, o *harness.Orbit, queue string, more ...any) (string, *worker, offer) {
	t.Helper()
	id := submit(t, o, queue, more...)
	name := "gone-" + id
	w := openWorker(t, o, name, queue)
	running := w.run()
	openWorker(t, o, name, queue)
	if n := o.Pass("sweep_instances"); n != 1 {
		t.Fatalf("%d attempts swept, want 1", n)
	}
	wantState(t, o, id, "review")
	return id, w, running
}

func decision(resolution string, more ...any) map[string]any {
	m := map[string]any{"resolution": resolution, "reason": "looked it up"}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

func TestResolveTaskEndsAReviewByADecision(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	for resolution, want := range map[string]struct{ state, code, message string }{
		"fail":   {"failed", "session_superseded", "the worker was lost while it ran the attempt"},
		"cancel": {"cancelled", "cancelled", "looked it up"},
	} {
		t.Run(resolution, func(t *testing.T) {
			id := inReview(t, o, "money")
			r := act(o, id, "resolve", decision(resolution), harness.Key("k"), ifMatch(getTask(t, o, id).Etag)).Want(t, 200)
			var shown task
			if r.JSON(t, &shown); shown.State != want.state || shown.Failure.Code != want.code || shown.Failure.Message != want.message || shown.ExpiresAt.IsZero() {
				t.Fatalf("%s", r.Body)
			}
			if got := countEvents(t, o, id); got["task.resolved"] != 1 || got["task.parked"] != 1 {
				t.Fatalf("events %v", got)
			}
			if n := audited(t, o, "resolveTask", id); n != 1 {
				t.Fatalf("%d entries in the audit", n)
			}
			again := act(o, id, "resolve", decision(resolution), harness.Key("k"), ifMatch(`"9-9-9"`)).Want(t, 200)
			if string(again.Body) != string(r.Body) || again.Header.Get("Idempotency-Replayed") != "true" {
				t.Fatalf("a repeat got %s, want %s", again.Body, r.Body)
			}
		})
	}
}

func TestAReviewResolvedByRetryRunsAgainWithANewBudget(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	id := inReview(t, o, "money", "max_attempts", 1)
	act(o, id, "resolve", decision("retry"), harness.Key("k"), ifMatch(getTask(t, o, id).Etag)).Want(t, 200)
	if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "ready" || got.AttemptsUsed != 0 || got.MaxAttempts != 1 {
		t.Fatalf("%+v", got)
	}
	w := openWorker(t, o, "next", "money")
	running := w.run()
	if running.Generation != 2 || running.AttemptNumber != 1 {
		t.Fatalf("%+v", running)
	}
	wantItem(t, w.succeed(running, `1`), 200, "")
}

func TestAReviewResolvedByEvidenceSucceedsWithItsResult(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	id, w, lost := reviewed(t, o, "money")
	good := w.succeed(lost, `{"paid":0.1000}`)
	bad := w.fail(lost, false)
	_, otherWorker, otherLost := reviewed(t, o, "money")
	foreign := otherWorker.succeed(otherLost, `1`)
	tag := ifMatch(getTask(t, o, id).Etag)
	resolve := func(key string, body map[string]any) harness.Reply {
		return act(o, id, "resolve", body, harness.Key(key), tag)
	}
	resolve("k", decision("accept_evidence")).WantProblem(t, 400, "invalid_request")
	resolve("k", decision("fail", "evidence_id", good.EvidenceID)).WantProblem(t, 400, "invalid_request")
	resolve("k", decision("accept_evidence", "evidence_id", newInstance())).WantProblem(t, 404, "not_found")
	resolve("k", decision("accept_evidence", "evidence_id", foreign.EvidenceID)).WantProblem(t, 404, "not_found")
	resolve("k", decision("accept_evidence", "evidence_id", bad.EvidenceID)).WantProblem(t, 409, "state_conflict")
	resolve("k", decision("accept_evidence", "evidence_id", good.EvidenceID)).Want(t, 200)
	if got := wantState(t, o, id, "succeeded"); got.Result != `{"paid":0.1000}` || got.Failure.Code != "" {
		t.Fatalf("%+v", got)
	}
	// What was a repeat before the decision is one still.
	if again := w.succeed(lost, `{"paid":0.1000}`); again.EvidenceID != good.EvidenceID {
		t.Fatalf("%+v, want evidence %s", again, good.EvidenceID)
	}
}

func TestADeadlineDoesNotEndAReview(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	deadline := time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
	past, kept := inReview(t, o, "money", "deadline_at", deadline), inReview(t, o, "money", "deadline_at", deadline.Add(24*time.Hour))
	o.Advance(2 * time.Hour)
	o.Pass("expire_deadlines")
	if got := wantState(t, o, past, "review"); !got.DeadlineAt.Equal(deadline) {
		t.Fatalf("deadline %s, want it shown as %s", got.DeadlineAt, deadline)
	}
	for id, want := range map[string]time.Time{past: {}, kept: deadline.Add(24 * time.Hour)} {
		act(o, id, "resolve", decision("retry"), harness.Key(id), ifMatch(getTask(t, o, id).Etag)).Want(t, 200)
		if got := wantState(t, o, id, "queued"); !got.DeadlineAt.Equal(want) {
			t.Fatalf("deadline %s after the retry, want %s", got.DeadlineAt, want)
		}
	}
	o.Advance(25 * time.Hour)
	o.Pass("expire_deadlines")
	wantState(t, o, past, "queued")
	wantState(t, o, kept, "failed")
}

func TestResolveTaskRefuses(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	id := inReview(t, o, "money")
	tag := ifMatch(getTask(t, o, id).Etag)
	act(o, id, "resolve", decision("fail"), harness.Key("k")).WantProblem(t, 428, "precondition_required")
	act(o, id, "resolve", decision("fail"), tag).WantProblem(t, 400, "idempotency_missing")
	act(o, id, "resolve", decision("fail"), harness.Key("k"), ifMatch(`"1-0-0"`)).WantProblem(t, 412, "revision_mismatch")
	act(o, id, "resolve", map[string]any{"resolution": "fail"}, harness.Key("k"), tag).WantProblem(t, 400, "invalid_request")
	act(o, id, "resolve", decision("forget"), harness.Key("k"), tag).WantProblem(t, 400, "invalid_request")
	act(o, newInstance(), "resolve", decision("fail"), harness.Key("k"), tag).WantProblem(t, 404, "not_found")
	_, tenant := o.Tenant("other-tenant")
	o.CallAt(o.URL(), tenant, "POST", "/v1/tasks/"+id+":resolve", decision("fail"), harness.Key("k"), tag).WantProblem(t, 404, "not_found")
	reader := o.Credential(o.Namespace, []string{"tasks:read", "tasks:execute"}, []string{"*"})
	o.CallAt(o.URL(), reader, "POST", "/v1/tasks/"+id+":resolve", decision("fail"), harness.Key("k"), tag).WantProblem(t, 403, "forbidden")
	open := submit(t, o, "money")
	act(o, open, "resolve", decision("fail"), harness.Key("k"), ifMatch(getTask(t, o, open).Etag)).WantProblem(t, 409, "state_conflict")
	wantState(t, o, id, "review")
	act(o, id, "resolve", decision("fail"), harness.Key("k"), tag).Want(t, 200)
	act(o, id, "resolve", decision("fail"), harness.Key("other"), ifMatch(getTask(t, o, id).Etag)).WantProblem(t, 409, "state_conflict")
}

func TestDecisionsAtOnceHaveOneWinner(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	states := map[string]string{"fail": "failed", "cancel": "cancelled", "retry": "queued"}
	for range 4 {
		id := inReview(t, o, "money")
		tag := ifMatch(getTask(t, o, id).Etag)
		resolutions := []string{"fail", "cancel", "retry", "fail", "cancel", "retry"}
		got := race(t, len(resolutions), func(i int) (harness.Reply, error) {
			return harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks/"+id+":resolve", decision(resolutions[i]), harness.Key(fmt.Sprint(id, i)), tag)
		})
		winner := ""
		for i, r := range got {
			if r.Status == 200 && winner == "" {
				winner = resolutions[i]
				continue
			}
			r.WantProblem(t, 412, "revision_mismatch")
		}
		wantState(t, o, id, states[winner])
		if got := countEvents(t, o, id); got["task.resolved"] != 1 {
			t.Fatalf("events %v", got)
		}
		if winner == "retry" {
			act(o, id, "cancel", nil, harness.Key(id)).Want(t, 200)
		}
	}
}
