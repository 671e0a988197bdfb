package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// keyedCall is an operation under an Idempotency-Key, on things that are made for it.
type keyedCall struct {
	operation, path, body string
	headers               []harness.Header
	status                int
}

// keyedCalls are all of them, ready to be made once.
func keyedCalls(t *testing.T, o *harness.Orbit) []keyedCall {
	t.Helper()
	queue := o.CreateQueue("q", map[string]any{"lease_ms": 1000})
	paused := o.CreateQueue("paused", nil)
	o.Call("POST", "/v1/queues/"+paused+":pause", `{"reason":"x"}`, harness.Key("before")).Want(t, 200)
	c := createCredential(t, o, `{"name":"n","actions":["*"],"queues":["*"]}`)
	w := openWorker(t, o, "w", "q")
	submit(t, o, "q")
	review := w.run()
	o.StayFresh(2 * time.Second)
	o.Pass("recover_leases")
	tag := o.Call("GET", "/v1/tasks/"+review.TaskID, nil).Want(t, 200).Header.Get("ETag")
	submit(t, o, "q")
	failed := w.run()
	wantItem(t, w.fail(failed, false), 200, "")
	queued := submit(t, o, "q")
	schedules := map[string]string{}
	for _, name := range []string{"pause", "resume", "archive", "trigger", "backfill"} {
		schedules[name] = "/v1/schedules/" + createSchedule(t, o, everyMinute(name)).ID
	}
	o.Call("POST", schedules["resume"]+":pause", `{"reason":"x"}`, harness.Key("before")).Want(t, 200)
	return []keyedCall{
		{"createSchedule", "/v1/schedules", `{"name":"new","timetable":{"cron":"@daily"},"task":{"queue":"q","type":"t"}}`, nil, 201},
		{"pauseSchedule", schedules["pause"] + ":pause", `{"reason":"x"}`, nil, 200},
		{"resumeSchedule", schedules["resume"] + ":resume", `{}`, nil, 200},
		{"archiveSchedule", schedules["archive"] + ":archive", `{"reason":"x"}`, nil, 200},
		{"triggerSchedule", schedules["trigger"] + ":trigger", `{}`, nil, 200},
		{"backfillSchedule", schedules["backfill"] + ":backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:10:00Z","reason":"x"}`, nil, 200},
		{"createQueue", "/v1/queues", `{"name":"new"}`, nil, 201},
		{"pauseQueue", "/v1/queues/" + queue + ":pause", `{"reason":"x"}`, nil, 200},
		{"resumeQueue", "/v1/queues/" + paused + ":resume", `{}`, nil, 200},
		{"createCredential", "/v1/credentials", `{"name":"new","actions":["*"],"queues":["*"]}`, nil, 201},
		{"rotateCredential", "/v1/credentials/" + c.Credential.ID + ":rotate", `{}`, nil, 200},
		{"revokeCredential", "/v1/credentials/" + c.Credential.ID + ":revoke", `{"reason":"x"}`, nil, 200},
		{"cancelTask", "/v1/tasks/" + queued + ":cancel", `{}`, nil, 200},
		{"retryTask", "/v1/tasks/" + failed.TaskID + ":retry", `{}`, nil, 200},
		{"resolveTask", "/v1/tasks/" + review.TaskID + ":resolve", `{"resolution":"fail","reason":"x"}`, []harness.Header{ifMatch(tag)}, 200},
	}
}

// Whatever became of a commit that was not answered, a repeat under the key settles it: the act is done once, and audited once.
func TestEveryKeyedOperationIsSettledByItsKey(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*stoppedStatement)
		done bool
	}{"that was carried out": {(*stoppedStatement).lose, true}, "that never arrived": {(*stoppedStatement).cut, false}} {
		t.Run("a commit "+name, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			calls := keyedCalls(t, o)
			wired, w := addWired(t, o, harness.Options{})
			for _, call := range calls {
				acts := func() int { return o.Count("orbit_audit_events WHERE action = ? AND outcome = 'done'", call.operation) }
				before := acts()
				headers := append([]harness.Header{harness.Key("settled")}, call.headers...)
				commit := w.stop(harness.Commit)
				first := send(t, wired.URL, o.Key, "POST", call.path, call.body, headers...)
				within(t, commit.reached, call.operation+" to be before its commit")
				waiting := send(t, o.URL(), o.Key, "POST", call.path, call.body, headers...)
				awaitLockWaits(t, o, 1)
				wantKey(t, o, call.operation, "settled", "in_progress", call.path)
				c.end(commit)
				lost := first()
				if lost.WantProblem(t, 503, "outcome_unknown"); lost.Header.Get("Retry-After") == "" {
					t.Errorf("%s: no Retry-After", call.operation)
				}
				second := waiting().Want(t, call.status)
				if replayed(second) != c.done {
					t.Errorf("%s: the waiting try is a repeat: %t, want %t", call.operation, replayed(second), c.done)
				}
				repeat := o.CallAt(wired.URL, o.Key, "POST", call.path, call.body, headers...).Want(t, call.status)
				if c.done && string(repeat.Body) != string(second.Body) || !replayed(repeat) || repeat.Header.Get("ETag") != second.Header.Get("ETag") {
					t.Errorf("%s: repeats are answered\n%v %s\n%v %s", call.operation, second.Header, second.Body, repeat.Header, repeat.Body)
				}
				if strings.Contains(string(repeat.Body), `"key":"orb_`) {
					t.Errorf("%s: a repeat shows a key", call.operation)
				}
				if n := acts() - before; n != 1 {
					t.Errorf("%s was done %d times", call.operation, n)
				}
				wantKey(t, o, call.operation, "settled", "done", call.path)
			}
		})
	}
}

// An operation that is refused leaves its key free; one under a key that has other content is not done.
func TestEveryKeyedOperationKeepsToItsKey(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	calls := keyedCalls(t, o)
	for _, call := range calls {
		since := ledger(t, o)
		o.Call("POST", call.path, call.body, call.headers...).WantProblem(t, 400, "idempotency_missing")
		o.Call("POST", call.path, `{"unknown":1}`, append([]harness.Header{harness.Key("k")}, call.headers...)...).WantProblem(t, 400, "invalid_request")
		wantLedger(t, o, since)
		o.Call("POST", call.path, call.body, append([]harness.Header{harness.Key("k")}, call.headers...)...).Want(t, call.status)
		since = ledger(t, o)
		other := strings.NewReplacer(`{}`, `{"reason":"other"}`, `"x"`, `"other"`, `"new"`, `"other"`).Replace(call.body)
		if call.operation == "rotateCredential" {
			other = `{"overlap_ms":5}`
		}
		o.Call("POST", call.path, other, append([]harness.Header{harness.Key("k")}, call.headers...)...).WantProblem(t, 422, "idempotency_conflict")
		wantLedger(t, o, since)
	}
}
