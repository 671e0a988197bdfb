package integration_test

import (
	"fmt"
	"testing"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"

	"time"
)

// worker speaks the protocol by hand, message by message.
type worker struct {
	t        testing.TB
	o        *harness.Orbit
	url, key string
	instance string
	epoch    int64
	seq      int64
}

// offer is what a claim gives, as far as tests look at it.
type offer struct {
	AttemptID      string    `json:"attempt_id"`
	TaskID         string    `json:"task_id"`
	Token          string    `json:"token"`
	Type           string    `json:"type"`
	QueueID        string    `json:"queue_id"`
	Generation     int64     `json:"generation"`
	AttemptNumber  int       `json:"attempt_number"`
	LeaseMs        int64     `json:"lease_ms"`
	OfferExpiresAt time.Time `json:"offer_expires_at"`
	StartedAt      time.Time `json:"started_at"`
	LeaseUntil     time.Time `json:"lease_until"`
	Priority       int       `json:"priority"`
	RunAt          time.Time `json:"run_at"`
	DeadlineAt     time.Time `json:"deadline_at"`
	Traceparent    string    `json:"traceparent"`
	Payload        rawJSON
}

// rawJSON keeps the bytes as they came.
type rawJSON string

func (r *rawJSON) UnmarshalJSON(b []byte) error { *r = rawJSON(b); return nil }
func (r rawJSON) MarshalJSON() ([]byte, error)  { return []byte(r), nil }

// itemResult is one result of a worker call.
type itemResult struct {
	Status     int             `json:"status"`
	Problem    harness.Problem `json:"problem"`
	Receipt    rawJSON         `json:"receipt"`
	Replayed   bool            `json:"replayed"`
	EvidenceID string          `json:"evidence_id"`
	Attempt    struct {
		State           string    `json:"state"`
		StartedAt       time.Time `json:"started_at"`
		LeaseUntil      time.Time `json:"lease_until"`
		LeaseMs         int64     `json:"lease_ms"`
		CancelRequested bool      `json:"cancel_requested"`
	} `json:"attempt"`
}

func openWorker(t testing.TB, o *harness.Orbit, name string, queues ...string) *worker {
	t.Helper()
	w := &worker{t: t, o: o, url: o.URL(), key: o.Key, instance: orbit.NewID(time.Now()).String()}
	w.open(name, queues...)
	return w
}

func (w *worker) open(name string, queues ...string) {
	w.t.Helper()
	var session struct {
		Epoch int64 `json:"epoch"`
	}
	w.o.CallAt(w.url, w.key, "POST", "/v1/worker-sessions", w.opening(name, queues...)).Want(w.t, 200).JSON(w.t, &session)
	w.epoch = session.Epoch
}

func (w *worker) opening(name string, queues ...string) map[string]any {
	return map[string]any{"worker_name": name, "instance_id": w.instance, "queues": queues, "types": []string{}, "slots": 10}
}

// on is the same incarnation, speaking to another replica.
func (w *worker) on(replica int) *worker {
	other := *w
	other.url = w.o.Replica(replica).URL
	return &other
}

func (w *worker) call(path string, body map[string]any) harness.Reply {
	w.t.Helper()
	r, err := w.send(path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// send is call for goroutines of a test.
func (w *worker) send(path string, body map[string]any) (harness.Reply, error) {
	sent := map[string]any{"instance_id": w.instance, "epoch": w.epoch}
	for k, v := range body {
		sent[k] = v
	}
	return harness.Do(w.t.Context(), w.url, w.key, "POST", path, sent)
}

// sendItem sends one item, for goroutines of a test.
func (w *worker) sendItem(path string, item map[string]any) (itemResult, error) {
	r, err := w.send(path, map[string]any{"items": []any{item}})
	got, err := parse[struct {
		Items []itemResult `json:"items"`
	}](r, err, 200)
	if err != nil {
		return itemResult{}, err
	}
	return got.Items[0], nil
}

func (w *worker) claim(max int) []offer {
	w.t.Helper()
	w.seq++
	var got struct {
		Offers []offer `json:"offers"`
	}
	w.call("/v1/claims", map[string]any{"claim_seq": w.seq, "max": max}).Want(w.t, 200).JSON(w.t, &got)
	return got.Offers
}

// claimOne claims exactly one offer.
func (w *worker) claimOne() offer {
	w.t.Helper()
	offers := w.claim(1)
	if len(offers) != 1 {
		w.t.Fatalf("%d offers, want 1", len(offers))
	}
	return offers[0]
}

func (w *worker) items(path string, items ...map[string]any) []itemResult {
	w.t.Helper()
	var got struct {
		Items []itemResult `json:"items"`
	}
	w.call(path, map[string]any{"items": items}).Want(w.t, 200).JSON(w.t, &got)
	if len(got.Items) != len(items) {
		w.t.Fatalf("%d results for %d items", len(got.Items), len(items))
	}
	return got.Items
}

func (o offer) item(more ...any) map[string]any {
	m := map[string]any{"attempt_id": o.AttemptID, "token": o.Token}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

func (w *worker) start(o offer) itemResult {
	w.t.Helper()
	return w.items("/v1/attempts:start", o.item())[0]
}

func (w *worker) heartbeat(o offer) itemResult {
	w.t.Helper()
	return w.items("/v1/attempts:heartbeat", o.item())[0]
}

func (w *worker) release(o offer, reason string) itemResult {
	w.t.Helper()
	return w.items("/v1/attempts:release", o.item("reason", reason))[0]
}

func (w *worker) succeed(o offer, result string) itemResult {
	w.t.Helper()
	return w.items("/v1/attempts:finish", o.item("outcome", "succeeded", "result", rawJSON(result)))[0]
}

func (w *worker) fail(o offer, retry bool) itemResult {
	w.t.Helper()
	return w.items("/v1/attempts:finish", o.item("outcome", "failed", "error", map[string]any{"code": "boom", "message": "it broke"}, "retry", retry))[0]
}

// run claims one offer and starts it.
func (w *worker) run() offer {
	w.t.Helper()
	o := w.claimOne()
	wantItem(w.t, w.start(o), 200, "")
	return o
}

func wantItem(t testing.TB, got itemResult, status int, code string) {
	t.Helper()
	if got.Status != status || got.Problem.Code != code {
		t.Fatalf("item answered %d %s (%s), want %d %s", got.Status, got.Problem.Code, got.Problem.Detail, status, code)
	}
}

// task is a task as it is shown, as far as tests look at it.
type task struct {
	ID       string `json:"id"`
	QueueID  string `json:"queue_id"`
	Type     string `json:"type"`
	Priority int    `json:"priority"`
	State    string `json:"state"`
	Etag     string `json:"etag"`
	Waiting  struct {
		Kind    string    `json:"kind"`
		Until   time.Time `json:"until"`
		Blocker struct {
			ID string `json:"id"`
		} `json:"blocker"`
	} `json:"waiting"`
	RunAt           time.Time `json:"run_at"`
	DeadlineAt      time.Time `json:"deadline_at"`
	UpdatedAt       time.Time `json:"updated_at"`
	ExpiresAt       time.Time `json:"expires_at"`
	MaxAttempts     int       `json:"max_attempts"`
	AttemptsUsed    int       `json:"attempts_used"`
	Generation      int64     `json:"generation"`
	CancelRequested bool      `json:"cancel_requested"`
	AttemptID       string    `json:"attempt_id"`
	Payload         rawJSON   `json:"payload"`
	Result          rawJSON   `json:"result"`
	Failure         struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"failure"`
}

func getTask(t testing.TB, o *harness.Orbit, id string) task {
	t.Helper()
	var got task
	o.Call("GET", "/v1/tasks/"+id, nil).Want(t, 200).JSON(t, &got)
	return got
}

func wantState(t testing.TB, o *harness.Orbit, id, state string) task {
	t.Helper()
	got := getTask(t, o, id)
	if got.State != state {
		t.Fatalf("task is %s, want %s: %+v", got.State, state, got)
	}
	return got
}

var submitted int

// submit submits a task to a queue with a key of its own, and answers its id.
func submit(t testing.TB, o *harness.Orbit, queue string, more ...any) string {
	t.Helper()
	submitted++
	body := map[string]any{"queue": queue, "type": "test.kind", "payload": map[string]any{"n": 1}}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	var receipt struct {
		TaskID string `json:"task_id"`
	}
	o.Call("POST", "/v1/tasks", body, harness.Key(fmt.Sprintf("submit-%d", submitted))).Want(t, 201).JSON(t, &receipt)
	return receipt.TaskID
}

// attempt is an attempt as it is shown, as far as tests look at it.
type attempt struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Generation int64     `json:"generation"`
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at"`
	LeaseUntil time.Time `json:"lease_until"`
	Failure    struct {
		Code string `json:"code"`
	} `json:"failure"`
	Progress rawJSON `json:"progress"`
	Receipt  rawJSON `json:"receipt"`
	Result   rawJSON `json:"result"`
}

func getAttempt(t testing.TB, o *harness.Orbit, id string) attempt {
	t.Helper()
	var got attempt
	o.Call("GET", "/v1/attempts/"+id, nil).Want(t, 200).JSON(t, &got)
	return got
}

func wantAttempt(t testing.TB, o *harness.Orbit, id, state, code string) attempt {
	t.Helper()
	got := getAttempt(t, o, id)
	if got.State != state || got.Failure.Code != code {
		t.Fatalf("attempt is %s (%s), want %s (%s)", got.State, got.Failure.Code, state, code)
	}
	return got
}

// evidence is a result that was not taken.
type evidence struct {
	ID      string  `json:"id"`
	Reason  string  `json:"reason"`
	Outcome string  `json:"outcome"`
	Result  rawJSON `json:"result"`
}

func listEvidence(t testing.TB, o *harness.Orbit, attemptID string) []evidence {
	t.Helper()
	var got struct {
		Items []evidence `json:"items"`
	}
	o.Call("GET", "/v1/attempts/"+attemptID+"/evidence", nil).Want(t, 200).JSON(t, &got)
	return got.Items
}

// policy is a queue's whose lost attempts are retried, with every wait at its shortest.
func policy(more ...any) map[string]any {
	p := map[string]any{"unknown_outcome": "retry", "lease_ms": 5000, "offer_timeout_ms": 5000, "backoff_initial_ms": 1000, "backoff_max_ms": 60000}
	for i := 0; i < len(more); i += 2 {
		p[more[i].(string)] = more[i+1]
	}
	return p
}

// wantForeign checks that a worker's call is open to its own actor only: other actors, other tenants and unknown instances find nothing, and
// a credential without the right is told so.
func wantForeign(t testing.TB, w *worker, path string, body map[string]any) {
	t.Helper()
	_, tenant := w.o.Tenant("other-tenant")
	for _, key := range []string{tenant, w.o.Credential(w.o.Namespace, []string{"*"}, []string{"*"})} {
		other := *w
		other.key = key
		other.call(path, body).WantProblem(t, 404, "not_found")
	}
	unknown := *w
	unknown.instance = orbit.NewID(time.Now()).String()
	unknown.call(path, body).WantProblem(t, 404, "not_found")
	reader := *w
	reader.key = w.o.Credential(w.o.Namespace, []string{"tasks:read"}, []string{"*"})
	reader.call(path, body).WantProblem(t, 403, "forbidden")
}
