package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestAVoidKeyNeverDoesAnything(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	queue := o.CreateQueue("q", nil)
	id := submit(t, o, "q")
	cancelPath := "/v1/tasks/" + id + ":cancel"
	voidKey := func(body string) harness.Reply { return o.Call("POST", "/v1/idempotency-keys:void", body) }
	for _, body := range []string{
		`{"operation":"submitTask","key":"k"}`, `{"operation":"submitTask","key":"k","path":"/v1/tasks"}`,
		`{"operation":"cancelTask","key":"k","path":"` + cancelPath + `"}`, `{"operation":"createQueue","key":"k"}`,
	} {
		for range 2 {
			if r := voidKey(body).Want(t, 200); string(r.Body) != `{"state":"void"}` {
				t.Errorf("%s answered %s", body, r.Body)
			}
		}
	}
	since := ledger(t, o)
	wantKey(t, o, "submitTask", "k", "void")
	wantKey(t, o, "cancelTask", "k", "void", cancelPath)
	o.CallAt(o.Replica(1).URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).WantProblem(t, 410, "idempotency_void")
	o.Call("POST", cancelPath, nil, harness.Key("k")).WantProblem(t, 410, "idempotency_void")
	o.Call("POST", "/v1/queues", `{"name":"q2"}`, harness.Key("k")).WantProblem(t, 410, "idempotency_void")
	batch := submitBatch(t, o, o.URL(), `{"queue":"q","type":"t","idempotency_key":"k"}`)
	if batch[0].Status != 410 || batch[0].Problem.Code != "idempotency_void" {
		t.Errorf("an item under a void key answered %+v", batch[0])
	}
	wantLedger(t, o, since)
	wantState(t, o, id, "queued")

	// It is this actor's key of this operation and path that is void, and no other.
	o.Call("POST", "/v1/queues/"+queue+":pause", `{"reason":"x"}`, harness.Key("k")).Want(t, 200)
	o.CallAt(o.URL(), o.Credential(o.Namespace, []string{"*"}, []string{"*"}), "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).Want(t, 201)

	// It goes with the tombstones, 90 days after a reply would have gone.
	o.Advance(97 * 24 * time.Hour)
	o.Pass("retire_keys")
	wantKey(t, o, "submitTask", "k", "void")
	o.Advance(2 * 24 * time.Hour)
	o.Pass("retire_keys")
	wantKey(t, o, "submitTask", "k", "unknown")
}

func TestAUsedKeyCannotBeMadeVoid(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	accepted := o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).Want(t, 201)
	o.Call("POST", "/v1/idempotency-keys:void", `{"operation":"submitTask","key":"k"}`).WantProblem(t, 409, "state_conflict")
	if again := o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).Want(t, 201); string(again.Body) != string(accepted.Body) {
		t.Errorf("the receipt became %s, was %s", again.Body, accepted.Body)
	}
}

func TestOfAVoidAndAFirstTryOneWins(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	for round := range 20 {
		key := fmt.Sprint("k", round)
		replies := race(t, 4, func(i int) (harness.Reply, error) {
			if i%2 == 0 {
				return harness.Do(t.Context(), o.Replica(i/2).URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(key))
			}
			return harness.Do(t.Context(), o.Replica(i/2).URL, o.Key, "POST", "/v1/idempotency-keys:void", `{"operation":"submitTask","key":"`+key+`"}`)
		})
		tries, voids := [2]harness.Reply{replies[0], replies[2]}, [2]harness.Reply{replies[1], replies[3]}
		accepted := tries[0].Status == 201
		for i := range 2 {
			if accepted {
				tries[i].Want(t, 201)
				voids[i].WantProblem(t, 409, "state_conflict")
			} else {
				tries[i].WantProblem(t, 410, "idempotency_void")
				voids[i].Want(t, 200)
			}
		}
		if n := o.Count("orbit_idempotency_keys WHERE idempotency_key = ? AND state = ?", key, map[bool]string{true: "done", false: "void"}[accepted]); n != 1 {
			t.Errorf("round %d: %d keys are kept of what was answered", round, n)
		}
	}
	if tasks, keys := o.Count("pulse_tasks"), o.Count("orbit_idempotency_keys WHERE operation = 'submitTask' AND state = 'done'"); tasks != keys {
		t.Errorf("%d tasks under %d keys", tasks, keys)
	}
}

func TestAVoidWaitsForARunningFirstTry(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(*stoppedStatement)
		voided bool
	}{"that commits": {(*stoppedStatement).goOn, false}, "that is rolled back": {(*stoppedStatement).cut, true}} {
		t.Run(name, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			wired, w := addWired(t, o, harness.Options{})
			o.CreateQueue("q", nil)
			commit := w.stop(harness.Commit)
			first := send(t, wired.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"))
			within(t, commit.reached, "the first try to be before its commit")
			voiding := send(t, o.URL(), o.Key, "POST", "/v1/idempotency-keys:void", `{"operation":"submitTask","key":"k"}`)
			awaitLockWaits(t, o, 1)
			c.end(commit)
			if c.voided {
				first().WantProblem(t, 503, "outcome_unknown")
				voiding().Want(t, 200)
				o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).WantProblem(t, 410, "idempotency_void")
			} else {
				first().Want(t, 201)
				voiding().WantProblem(t, 409, "state_conflict")
			}
		})
	}
}

func TestAVoidThatNamesNoRequestIsRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	reader := o.Credential(o.Namespace, []string{"tasks:read"}, []string{"*"})
	since := ledger(t, o)
	for _, c := range []struct{ body, pointer string }{
		{`{"operation":"claimTasks","key":"k"}`, "/operation"},
		{`{"operation":"cancelTask","key":"k"}`, "/path"},
		{`{"operation":"cancelTask","key":"k","path":"/v1/tasks/x:cancel"}`, "/path"},
		{`{"operation":"submitTask","key":"k","path":"/v1/tasks:batch"}`, "/path"},
		{`{"operation":"submitTask","key":""}`, "/key"},
		{`{"operation":"submitTask","key":"` + strings.Repeat("k", 129) + `"}`, "/key"},
		{`{"operation":"submitTask","key":"ü"}`, "/key"},
		{`{"operation":"submitTask"}`, "/key"},
		{`{"key":"k"}`, "/operation"},
		{`{"operation":"submitTask","key":"k","reason":"x"}`, "/reason"},
	} {
		p := o.Call("POST", "/v1/idempotency-keys:void", c.body).WantProblem(t, 400, "invalid_request")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != c.pointer {
			t.Errorf("%s: refused with %+v, want %s", c.body, p.Errors, c.pointer)
		}
	}
	o.CallAt(o.URL(), reader, "POST", "/v1/idempotency-keys:void", `{"operation":"submitTask","key":"k"}`).WantProblem(t, 403, "forbidden")
	wantLedger(t, o, since)
}
