package integration_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// act sends an operator's act on a task.
func act(o *harness.Orbit, id, verb string, body any, headers ...harness.Header) harness.Reply {
	return o.Call("POST", "/v1/tasks/"+id+":"+verb, body, headers...)
}

// audited counts the audit's entries of an action on a target.
func audited(t testing.TB, o *harness.Orbit, action, targetID string) int {
	t.Helper()
	var page struct {
		Items []rawJSON `json:"items"`
	}
	o.Call("GET", "/v1/audit-events?action="+action+"&target_id="+targetID, nil).Want(t, 200).JSON(t, &page)
	return len(page.Items)
}

func TestCancelTaskEndsWhatIsNotRunning(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	offered := func() (string, offer) {
		id := submit(t, o, "mail")
		return id, w.claimOne()
	}
	isReady := submit(t, o, "mail", "deadline_at", time.Now().Add(time.Hour))
	act(o, isReady, "cancel", map[string]any{"reason": "r"}, harness.Key("a")).Want(t, 200)
	isScheduled := submit(t, o, "mail", "delay_ms", 60_000)
	isOffered, its := offered()
	isBlocked, toBlock := offered()
	o.Call("POST", "/v1/queues/"+queue+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
	wantItem(t, w.start(toBlock), 409, "start_refused")
	for i, id := range []string{isScheduled, isOffered, isBlocked} {
		var shown task
		r := act(o, id, "cancel", map[string]any{"reason": "no longer needed"}, harness.Key(fmt.Sprint("c", i))).Want(t, 200)
		if r.JSON(t, &shown); shown.State != "cancelled" || shown.Failure.Code != "cancelled" || shown.Failure.Message != "no longer needed" || shown.AttemptsUsed != 0 {
			t.Fatalf("%s", r.Body)
		}
		if tag := r.Header.Get("ETag"); tag != shown.Etag || tag != getTask(t, o, id).Etag {
			t.Fatalf("tag %s, shown %s", tag, shown.Etag)
		}
		if got := countEvents(t, o, id); got["task.cancelled"] != 1 {
			t.Fatalf("events %v", got)
		}
		if n := audited(t, o, "cancelTask", id); n != 1 {
			t.Fatalf("%d entries in the audit", n)
		}
	}
	wantAttempt(t, o, its.AttemptID, "cancelled", "cancelled")
	wantItem(t, w.start(its), 409, "stale_attempt")
	if got := wantState(t, o, isReady, "cancelled"); got.Failure.Message != "r" {
		t.Fatalf("%+v", got)
	}
}

func TestCancelTaskAsksARunningOneToStop(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	running := w.run()
	before := getTask(t, o, id)
	var shown task
	act(o, id, "cancel", map[string]any{"reason": "r"}, harness.Key("a"), ifMatch(before.Etag)).Want(t, 200).JSON(t, &shown)
	if shown.State != "running" || !shown.CancelRequested || shown.Etag == before.Etag {
		t.Fatalf("%+v", shown)
	}
	var again task
	if act(o, id, "cancel", map[string]any{"reason": "r"}, harness.Key("b")).Want(t, 200).JSON(t, &again); again.State != "running" || again.Etag != shown.Etag {
		t.Fatalf("asked twice: %+v", again)
	}
	if beat := w.heartbeat(running); !beat.Attempt.CancelRequested {
		t.Fatalf("%+v", beat)
	}
	if got := countEvents(t, o, running.AttemptID); got["attempt.cancel_requested"] != 1 {
		t.Fatalf("events %v", got)
	}
	wantItem(t, w.finish(running, "outcome", "cancelled"), 200, "")
	wantState(t, o, id, "cancelled")
}

func TestALostAttemptThatWasAskedToStopIsCancelledOrReviewedByPolicy(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("again", policy())
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	w := openWorker(t, o, "w", "again", "money")
	want := map[string]string{submit(t, o, "again"): "cancelled", submit(t, o, "money"): "review"}
	w.run()
	w.run()
	for id := range want {
		act(o, id, "cancel", nil, harness.Key(id)).Want(t, 200)
	}
	o.StayFresh(6 * time.Second)
	if n := o.Pass("recover_leases"); n != 2 {
		t.Fatalf("%d lost, want 2", n)
	}
	for id, state := range want {
		wantState(t, o, id, state)
	}
}

func TestCancelTaskRepeats(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail")
	first := act(o, id, "cancel", map[string]any{"reason": "r"}, harness.Key("a")).Want(t, 200)
	again := act(o, id, "cancel", map[string]any{"reason": "r"}, harness.Key("a")).Want(t, 200)
	if string(again.Body) != string(first.Body) || again.Header.Get("ETag") != first.Header.Get("ETag") || again.Header.Get("Idempotency-Replayed") != "true" || first.Header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%s (%v), want %s", again.Body, again.Header, first.Body)
	}
	act(o, id, "cancel", map[string]any{"reason": "other"}, harness.Key("a")).WantProblem(t, 422, "idempotency_conflict")
	var shown task
	if act(o, id, "cancel", nil, harness.Key("b")).Want(t, 200).JSON(t, &shown); shown.State != "cancelled" || shown.Failure.Message != "r" {
		t.Fatalf("%+v", shown)
	}
	if got := countEvents(t, o, id); got["task.cancelled"] != 1 {
		t.Fatalf("events %v", got)
	}
	// The key is the task's: on another task it is another request.
	other := submit(t, o, "mail")
	if act(o, other, "cancel", map[string]any{"reason": "r"}, harness.Key("a")).Want(t, 200).JSON(t, &shown); shown.ID != other {
		t.Fatalf("%+v", shown)
	}
}

func TestCancelTaskRefuses(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	w := openWorker(t, o, "w", "mail")
	succeeded, failed := submit(t, o, "mail"), submit(t, o, "mail")
	wantItem(t, w.succeed(w.run(), `1`), 200, "")
	wantItem(t, w.fail(w.run(), false), 200, "")
	review := inReview(t, o, "money")
	for i, id := range []string{succeeded, failed, review} {
		act(o, id, "cancel", nil, harness.Key(fmt.Sprint("s", i))).WantProblem(t, 409, "state_conflict")
	}
	open := submit(t, o, "mail")
	act(o, open, "cancel", nil).WantProblem(t, 400, "idempotency_missing")
	act(o, open, "cancel", map[string]any{"reason": ""}, harness.Key("x")).WantProblem(t, 400, "invalid_request")
	act(o, open, "cancel", map[string]any{"why": "x"}, harness.Key("x")).WantProblem(t, 400, "invalid_request")
	act(o, open, "cancel", nil, harness.Key("x"), ifMatch(`"1-1-1"`)).WantProblem(t, 412, "revision_mismatch")
	act(o, open, "cancel", nil, harness.Key("x"), ifMatch("1")).WantProblem(t, 400, "invalid_request")
	act(o, newInstance(), "cancel", nil, harness.Key("x")).WantProblem(t, 404, "not_found")
	_, tenant := o.Tenant("other-tenant")
	for key, want := range map[string]string{tenant: "not_found", o.Credential(o.Namespace, []string{"*"}, []string{"sms"}): "not_found",
		o.Credential(o.Namespace, []string{"tasks:read", "tasks:submit", "tasks:execute"}, []string{"*"}): "forbidden"} {
		o.CallAt(o.URL(), key, "POST", "/v1/tasks/"+open+":cancel", nil, harness.Key("x")).WantProblem(t, map[string]int{"not_found": 404, "forbidden": 403}[want], want)
	}
	wantState(t, o, open, "queued")
	if n := audited(t, o, "cancelTask", open); n != 0 {
		t.Fatalf("%d refusals in the audit of acts", n)
	}
	// A refusal keeps no key: the same key does the act once it is possible.
	act(o, open, "cancel", nil, harness.Key("x"), ifMatch(getTask(t, o, open).Etag)).Want(t, 200)
}

func TestCancelAndClaimAtOnceNeverBoth(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	const tasks, rounds = 6, 25
	won := map[string]int{}
	for round := range rounds {
		ids := make([]string, tasks)
		for i := range ids {
			ids[i] = submit(t, o, "mail", "priority", 1+i%9)
		}
		cancelled := make([]task, tasks)
		offers := make([][]offer, 3)
		race(t, tasks+len(offers), func(i int) (struct{}, error) {
			if i < tasks {
				r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks/"+ids[i]+":cancel", nil, harness.Key(fmt.Sprint(round, "-", i)))
				var perr error
				cancelled[i], perr = parse[task](r, err, http.StatusOK)
				return struct{}{}, perr
			}
			r, err := w.on(i%2).send(claimPath, map[string]any{"claim_seq": round*len(offers) + i - tasks + 1, "max": tasks})
			got, err := parse[claimed](r, err, http.StatusOK)
			offers[i-tasks] = got.Offers
			return struct{}{}, err
		})
		offered := map[string]offer{}
		for _, some := range offers {
			for _, one := range some {
				if _, twice := offered[one.TaskID]; twice {
					t.Fatalf("task %s was offered twice", one.TaskID)
				}
				offered[one.TaskID] = one
			}
		}
		for i, id := range ids {
			if cancelled[i].State != "cancelled" {
				t.Fatalf("a cancel of a task that never ran showed %s", cancelled[i].State)
			}
			wantState(t, o, id, "cancelled")
			one, was := offered[id]
			if !was {
				won["cancel"]++
				continue
			}
			// The claim went first, and the cancel ended its offer.
			won["claim"]++
			wantItem(t, w.start(one), 409, "stale_attempt")
		}
	}
	t.Log(won)
}

func TestCancelAndFinishAtOnceAgree(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	won := map[string]int{}
	for round := range 15 {
		id := submit(t, o, "mail")
		running := w.run()
		var finish itemResult
		var reply harness.Reply
		race(t, 2, func(i int) (_ struct{}, err error) {
			if i == 0 {
				finish, err = w.on(0).sendItem(finishPath, running.item("outcome", "failed"))
				return
			}
			reply, err = harness.Do(t.Context(), o.Replica(1).URL, o.Key, "POST", "/v1/tasks/"+id+":cancel", nil, harness.Key(fmt.Sprint("c", round)))
			return
		})
		wantItem(t, finish, 200, "")
		var shown task
		reply.Want(t, 200).JSON(t, &shown)
		said := receiptOf(t, finish)
		// A failure to be retried under a request to stop is cancelled, and a queued task is cancelled at once.
		switch {
		case said.TaskState == "cancelled" && shown.State == "running" && shown.CancelRequested:
			won["cancel"]++
		case said.TaskState == "queued" && shown.State == "cancelled":
			won["finish"]++
		default:
			t.Fatalf("the receipt says %s, the cancel %s", said.TaskState, shown.State)
		}
		wantState(t, o, id, "cancelled")
	}
	t.Log(won)
}

func TestCancelAndReleaseAtOnceAreBothDone(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	for round := range 25 {
		id := submit(t, o, "mail")
		a := w.claimOne()
		race(t, 2, func(caller int) (struct{}, error) {
			if caller == 0 {
				r, err := harness.Do(t.Context(), o.Replica(0).URL, o.Key, "POST", "/v1/tasks/"+id+":cancel", nil, harness.Key(fmt.Sprint("cancel-", round)))
				if err == nil && r.Status != 200 {
					err = fmt.Errorf("cancel answered %d %s", r.Status, r.Body)
				}
				return struct{}{}, err
			}
			_, err := w.on(1).sendItem("/v1/attempts:release", a.item("reason", "shutdown"))
			return struct{}{}, err
		})
		wantState(t, o, id, "cancelled")
	}
}
