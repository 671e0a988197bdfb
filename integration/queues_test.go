package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

var mergePatch = harness.Header{Name: "Content-Type", Value: "application/merge-patch+json"}

func ifMatch(tag string) harness.Header { return harness.Header{Name: "If-Match", Value: tag} }

// list is a page of anything with an id.
type list struct {
	Items []struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		State string `json:"state"`
	} `json:"items"`
	NextCursor string `json:"next_cursor"`
}

func TestAQueueIsCreatedOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	first := o.Call("POST", "/v1/queues", `{"name":"mail"}`, harness.Key("k")).Want(t, 201)
	again := o.Call("POST", "/v1/queues", "{ \"name\" : \"ma\\u0069l\" }", harness.Key(`"k"`)).Want(t, 201)
	if string(again.Body) != string(first.Body) || again.Header.Get("Idempotency-Replayed") != "true" || again.Header.Get("Location") != first.Header.Get("Location") || again.Header.Get("ETag") != `"1"` {
		t.Fatalf("the repeat answered %v %s, the first try %v %s", again.Header, again.Body, first.Header, first.Body)
	}
	o.Call("POST", "/v1/queues", `{"name":"other"}`, harness.Key("k")).WantProblem(t, 422, "idempotency_conflict")
	o.Call("POST", "/v1/queues", `{"name":"mail"}`, harness.Key("k2")).WantProblem(t, 409, "state_conflict")
	o.Call("POST", "/v1/queues", `{"name":"mail"}`).WantProblem(t, 400, "idempotency_missing")
	for _, bad := range []string{`{"name":"a b"}`, `{"name":""}`, `{"name":"` + strings.Repeat("a", 129) + `"}`, `{"name":"` + strings.Repeat("0", 32) + `"}`,
		`{"name":"b","lease_ms":999}`, `{"name":"b","backoff_max_ms":5}`, `{"name":"b","colour":1}`, `{"name":"b","unknown_outcome":"guess"}`} {
		o.Call("POST", "/v1/queues", bad, harness.Key("bad")).WantProblem(t, 400, "invalid_request")
	}
	if n := o.Count("pulse_queues"); n != 1 {
		t.Fatalf("there are %d queues, want 1", n)
	}
	if n := o.Count("orbit_audit_events WHERE action = 'createQueue'"); n != 1 {
		t.Fatalf("%d creations were audited, want 1", n)
	}
}

func TestAQueueChangesOnlyFromWhatWasSeen(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	path := "/v1/queues/" + o.CreateQueue("q", nil)
	o.Call("PATCH", path, `{"lease_ms":5000}`, mergePatch).WantProblem(t, 428, "precondition_required")
	for _, bad := range []string{`W/"1"`, `*`, `"1","2"`, `1`, `""`} {
		o.Call("PATCH", path, `{"lease_ms":5000}`, mergePatch, ifMatch(bad)).WantProblem(t, 400, "invalid_request")
	}
	o.Call("PATCH", path, `{"lease_ms":null}`, mergePatch, ifMatch(`"1"`)).WantProblem(t, 400, "invalid_request")
	o.Call("PATCH", path, `{"backoff_initial_ms":86400000}`, mergePatch, ifMatch(`"1"`)).WantProblem(t, 400, "invalid_request")
	changed := o.Call("PATCH", path, `{"lease_ms":5000,"max_attempts":5}`, mergePatch, ifMatch(`"1"`)).Want(t, 200)
	if changed.Header.Get("ETag") != `"2"` || !strings.Contains(string(changed.Body), `"lease_ms":5000`) {
		t.Fatalf("changed: %v %s", changed.Header, changed.Body)
	}
	o.Call("PATCH", path, `{"lease_ms":5000}`, mergePatch, ifMatch(`"1"`)).WantProblem(t, 412, "revision_mismatch")
	if n := o.Count(`orbit_events WHERE type = 'queue.updated' AND data = '{"changed":{"lease_ms":{"from":30000,"to":5000}}}'`); n != 1 {
		t.Fatalf("%d events tell of the change, want 1", n)
	}

	var wg sync.WaitGroup
	statuses := make([]int, 8)
	for i := range statuses {
		wg.Go(func() {
			r, err := harness.Do(context.Background(), o.URL(), o.Key, "PATCH", path, fmt.Sprintf(`{"lease_ms":%d}`, 6000+i), mergePatch, ifMatch(`"2"`))
			if err == nil {
				statuses[i] = r.Status
			}
		})
	}
	wg.Wait()
	won := 0
	for _, s := range statuses {
		if s == 200 {
			won++
		} else if s != 412 {
			t.Errorf("a rival got %d, want 412", s)
		}
	}
	if won != 1 {
		t.Fatalf("%d of 8 changes from one revision won, want 1", won)
	}
}

func TestAnUngrantedQueueIsNotThere(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	mail, jobs := o.CreateQueue("mail", nil), o.CreateQueue("jobs", nil)
	_, stranger := o.Tenant("other")
	few := o.Credential(o.Namespace, []string{"*"}, []string{"ma*"})
	task := submit(t, o, "jobs")
	w := openWorker(t, o, "w", "jobs")
	attempt := w.claimOne().AttemptID
	for _, key := range []string{few, stranger} {
		for _, path := range []string{"/v1/queues/" + jobs, "/v1/queues/" + jobs + "/depth", "/v1/tasks?queue_id=" + jobs, "/v1/tasks/" + task, "/v1/tasks/" + task + "/attempts",
			"/v1/attempts/" + attempt, "/v1/attempts/" + attempt + "/evidence", "/v1/attempts/" + attempt + "/evidence/" + attempt} {
			o.CallAt(o.URL(), key, "GET", path, nil).WantProblem(t, 404, "not_found")
		}
		o.CallAt(o.URL(), key, "PATCH", "/v1/queues/"+jobs, `{}`, mergePatch, ifMatch(`"1"`)).WantProblem(t, 404, "not_found")
		o.CallAt(o.URL(), key, "POST", "/v1/queues/"+jobs+":pause", `{"reason":"x"}`, harness.Key("p")).WantProblem(t, 404, "not_found")
		o.CallAt(o.URL(), key, "POST", "/v1/queues/"+jobs+":resume", nil, harness.Key("r")).WantProblem(t, 404, "not_found")
		for _, path := range []string{"/v1/tasks", "/v1/tasks?state=offered", "/v1/queues?name=jobs"} {
			var got list
			if o.CallAt(o.URL(), key, "GET", path, nil).Want(t, 200).JSON(t, &got); len(got.Items) != 0 || got.NextCursor != "" {
				t.Errorf("%s shows %+v", path, got)
			}
		}
	}
	var got list
	if o.CallAt(o.URL(), few, "GET", "/v1/queues", nil).Want(t, 200).JSON(t, &got); len(got.Items) != 1 || got.Items[0].ID != mail {
		t.Errorf("a credential for ma* lists %+v", got)
	}
	o.CallAt(o.URL(), few, "POST", "/v1/queues", `{"name":"jobs2"}`, harness.Key("c")).WantProblem(t, 403, "forbidden")
	reader := o.Credential(o.Namespace, []string{"tasks:read"}, []string{"*"})
	o.CallAt(o.URL(), reader, "GET", "/v1/queues/"+jobs, nil).WantProblem(t, 403, "forbidden")
	o.CallAt(o.URL(), reader, "POST", "/v1/queues", `{"name":"jobs2"}`, harness.Key("c")).WantProblem(t, 403, "forbidden")
}

func TestAPausedQueueStartsNothingUntilItIsResumed(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("q", nil)
	path := "/v1/queues/" + id
	task := submit(t, o, "q")
	w := openWorker(t, o, "w", "q")
	offered := w.claimOne()
	first := o.Call("POST", path+":pause", `{"reason":"first"}`, harness.Key("a")).Want(t, 200)
	again := o.Call("POST", path+":pause", `{"reason":"first"}`, harness.Key("a")).Want(t, 200)
	if string(first.Body) != string(again.Body) || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("a repeat answered %s, the first %s", again.Body, first.Body)
	}
	if other := o.Call("POST", path+":pause", `{"reason":"second"}`, harness.Key("b")).Want(t, 200); string(other.Body) != string(first.Body) {
		t.Fatalf("another pause answered %s, want the gate as it is: %s", other.Body, first.Body)
	}
	wantItem(t, w.start(offered), 409, "start_refused")
	if got := wantState(t, o, task, "queued"); got.Waiting.Kind != "blocked" {
		t.Fatalf("the task waits as %+v", got.Waiting)
	}
	second := submit(t, o, "q")
	if offers := w.claim(10); len(offers) != 0 {
		t.Fatalf("a paused queue gave %d offers", len(offers))
	}
	var queue struct {
		Paused   bool `json:"paused"`
		Revision int  `json:"revision"`
	}
	if o.Call("GET", path, nil).Want(t, 200).JSON(t, &queue); !queue.Paused || queue.Revision != 1 {
		t.Fatalf("the queue is shown as %+v", queue)
	}
	depth := `{"ready":{"count":1,"capped":false},"scheduled":{"count":0,"capped":false},"blocked":{"count":1,"capped":false},"offered":{"count":0,"capped":false},"running":{"count":0,"capped":false},"review":{"count":0,"capped":false},"oldest_ready_age_ms":`
	if got := o.Call("GET", path+"/depth", nil).Want(t, 200); !strings.HasPrefix(string(got.Body), depth) {
		t.Fatalf("depth %s, want %s…", got.Body, depth)
	}
	o.Call("POST", path+":resume", nil, harness.Key("c")).Want(t, 200)
	o.Pass("unblock_gates")
	if offers := w.claim(10); len(offers) != 2 {
		t.Fatalf("%d offers after the queue was resumed, want those of %s and %s", len(offers), task, second)
	}
	for event, want := range map[string]int{"gate.closed": 1, "gate.opened": 1} {
		if n := o.Count("orbit_events WHERE type = ? AND aggregate_kind = 'gate'", event); n != want {
			t.Errorf("%d events %s, want %d", n, event, want)
		}
	}
}

func TestDepthStopsCountingAtItsBound(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	path := "/v1/queues/" + o.CreateQueue("q", nil) + "/depth"
	if got := o.Call("GET", path, nil).Want(t, 200); strings.Contains(string(got.Body), "oldest_ready_age_ms") {
		t.Fatalf("an empty queue has a depth of %s", got.Body)
	}
	for range 10 {
		submitMany(t, o, "q", 1000, "delay_ms", 3_600_000)
	}
	if got := o.Call("GET", path, nil).Want(t, 200); !strings.Contains(string(got.Body), `"scheduled":{"count":10000,"capped":false}`) {
		t.Fatalf("10,000 tasks are counted as %s", got.Body)
	}
	submitMany(t, o, "q", 1, "delay_ms", 3_600_000)
	if got := o.Call("GET", path, nil).Want(t, 200); !strings.Contains(string(got.Body), `"scheduled":{"count":10000,"capped":true}`) {
		t.Fatalf("10,001 tasks are counted as %s", got.Body)
	}
}
