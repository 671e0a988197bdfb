package integration_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// receipt is the acceptance of a task.
type receipt struct {
	TaskID     string    `json:"task_id"`
	QueueID    string    `json:"queue_id"`
	Type       string    `json:"type"`
	AcceptedAt time.Time `json:"accepted_at"`
	RunAt      time.Time `json:"run_at"`
}

// ledger counts the rows of everything that a request may write.
func ledger(t testing.TB, o *harness.Orbit) string {
	t.Helper()
	var counts strings.Builder
	for _, table := range []string{"orbit_credentials", "orbit_idempotency_keys", "orbit_replies", "orbit_events", "orbit_event_spool", "orbit_event_log",
		"orbit_audit_events", "pulse_queues", "pulse_execution_gates", "pulse_worker_sessions", "pulse_worker_instances", "pulse_tasks", "pulse_ready",
		"pulse_scheduled", "pulse_blocked", "pulse_deadlines", "pulse_attempts", "pulse_attempt_receipts", "pulse_attempt_evidence"} {
		fmt.Fprintf(&counts, "%s %d\n", table, o.Count(table))
	}
	return counts.String()
}

// wantLedger fails t if anything was written since.
func wantLedger(t testing.TB, o *harness.Orbit, since string) {
	t.Helper()
	if now := ledger(t, o); now != since {
		t.Fatalf("something was written; before:\n%snow:\n%s", since, now)
	}
}

// wantOneTask fails t unless one task was accepted since the queue was made, with one of everything that belongs to it.
func wantOneTask(t testing.TB, o *harness.Orbit) {
	t.Helper()
	for _, rows := range []string{"pulse_tasks", "pulse_ready", "orbit_idempotency_keys WHERE operation = 'submitTask'", "orbit_events WHERE type = 'task.accepted'",
		"orbit_replies r JOIN orbit_idempotency_keys k ON k.reply_id = r.id WHERE k.operation = 'submitTask'"} {
		if n := o.Count(rows); n != 1 {
			t.Errorf("%d rows of %s, want 1", n, rows)
		}
	}
}

func replayed(r harness.Reply) bool { return r.Header.Get("Idempotency-Replayed") == "true" }

// wantSameReplies fails t unless all replies are one 201, byte for byte, of which all but one say that they are repeats.
func wantSameReplies(t testing.TB, replies []harness.Reply) {
	t.Helper()
	firsts := 0
	for i, r := range replies {
		if r.Status != 201 || string(r.Body) != string(replies[0].Body) || r.Header.Get("Location") != replies[0].Header.Get("Location") {
			t.Errorf("reply %d is %d %s %s, reply 0 is %s %s", i, r.Status, r.Header.Get("Location"), r.Body, replies[0].Header.Get("Location"), replies[0].Body)
		}
		if !replayed(r) {
			firsts++
		}
	}
	if firsts != 1 {
		t.Errorf("%d of %d replies are not repeats, want 1", firsts, len(replies))
	}
}

func TestFiftySubmitsOfOneKeyOverTwoReplicasAreOneTask(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	bodies := []string{`{"queue":"q","type":"t","payload":{"a":1.50,"b":"x"}}`, `{ "payload": {"b":"\u0078", "a":15e-1}, "type":"t", "queue":"q" }`}
	wantSameReplies(t, race(t, 50, func(i int) (harness.Reply, error) {
		return harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks", bodies[i/2%2], harness.Key("k"))
	}))
	wantOneTask(t, o)
}

func TestARepeatedSubmitIsAnsweredByteForByte(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	queue := o.CreateQueue("q", nil)
	first := o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","payload":1}`, harness.Key("k")).Want(t, 201)
	var r receipt
	first.JSON(t, &r)
	if replayed(first) || first.Header.Get("Location") != "/v1/tasks/"+r.TaskID || r.QueueID != queue || r.Type != "t" || r.AcceptedAt.IsZero() || !r.RunAt.Equal(r.AcceptedAt) {
		t.Fatalf("the first try answered %v %s", first.Header, first.Body)
	}
	// What is done to the task and its queue afterwards does not change what was answered.
	o.Call("POST", "/v1/tasks/"+r.TaskID+":cancel", nil, harness.Key("c")).Want(t, 200)
	o.Call("PATCH", "/v1/queues/"+queue, `{"max_attempts":1}`, mergePatch, ifMatch(`"1"`)).Want(t, 200)
	since := ledger(t, o)
	for _, key := range []string{"k", `"k"`} {
		again := o.CallAt(o.Replica(1).URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t","payload":1}`, harness.Key(key)).Want(t, 201)
		if !replayed(again) || string(again.Body) != string(first.Body) || again.Header.Get("Location") != first.Header.Get("Location") {
			t.Fatalf("the repeat answered %v %s, the first try %v %s", again.Header, again.Body, first.Header, first.Body)
		}
	}
	wantLedger(t, o, since)
}

func TestContentUnderAKeyIsComparedByMeaning(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	const first = `{"queue":"q","type":"t","payload":{"n":0.10,"s":"é/","list":[1,2],"big":3889108265204450030}}`
	o.Call("POST", "/v1/tasks", first, harness.Key("k")).Want(t, 201)
	since := ledger(t, o)
	for _, same := range []string{
		first,
		`{"payload":{"big":3889108265204450030,"list":[1,2],"s":"é/","n":0.10},"type":"t","queue":"q"}`,
		"{\n\t\"queue\" : \"q\", \"type\" : \"t\", \"payload\" : { \"n\" : 0.10, \"s\" : \"é/\", \"list\" : [ 1, 2 ], \"big\" : 3889108265204450030 } }\n",
		`{"queue":"q","type":"t","payload":{"n":0.10,"s":"\u00e9\/","list":[1,2],"big":3889108265204450030}}`,
		`{"queue":"q","type":"t","payload":{"n":1e-1,"s":"é/","list":[1.0,20e-1],"big":3889108265204450030.000}}`,
	} {
		if r := o.Call("POST", "/v1/tasks", same, harness.Key("k")).Want(t, 201); !replayed(r) {
			t.Errorf("%s was taken anew", same)
		}
	}
	for _, other := range []string{
		`{"queue":"q","type":"t2","payload":{"n":0.10,"s":"é/","list":[1,2],"big":3889108265204450030}}`,
		`{"queue_id":"` + queue + `","type":"t","payload":{"n":0.10,"s":"é/","list":[1,2],"big":3889108265204450030}}`,
		`{"queue":"q","type":"t","payload":{"n":0.10,"s":"é/","list":[2,1],"big":3889108265204450030}}`,
		`{"queue":"q","type":"t","payload":{"n":"0.10","s":"é/","list":[1,2],"big":3889108265204450030}}`,
		`{"queue":"q","type":"t","payload":{"n":0.10,"s":"é/","list":[1,2],"big":3889108265204450031}}`,
		`{"queue":"q","type":"t","payload":{"n":0.10,"s":"e\u0301/","list":[1,2],"big":3889108265204450030}}`,
		`{"queue":"q","type":"t","payload":{"n":0.10,"s":"é/","list":[1,2],"big":3889108265204450030,"x":null}}`,
		`{"queue":"q","type":"t","payload":{"n":0.10,"s":"é/","list":[1,2],"big":3889108265204450030},"priority":5}`,
		`{"queue":"q","type":"t"}`,
	} {
		o.Call("POST", "/v1/tasks", other, harness.Key("k")).WantProblem(t, 422, "idempotency_conflict")
	}
	wantLedger(t, o, since)
}

func TestAKeyBelongsToItsActor(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	ns, stranger := o.Tenant("other")
	o.CallAt(o.URL(), stranger, "POST", "/v1/queues", `{"name":"q"}`, harness.Key("q")).Want(t, 201)
	another := o.Credential(o.Namespace, []string{"tasks:submit"}, []string{"*"})
	ids := map[string]bool{}
	for _, key := range []string{o.Key, another, stranger, o.Credential(ns, []string{"*"}, []string{"*"})} {
		r := o.CallAt(o.URL(), key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).Want(t, 201)
		var got receipt
		if r.JSON(t, &got); replayed(r) || ids[got.TaskID] {
			t.Fatalf("an actor got the reply of another: %s", r.Body)
		}
		ids[got.TaskID] = true
	}

	// Another credential of the same actor is the same caller, as far as it may see the queue.
	var me struct {
		ActorID string `json:"actor_id"`
	}
	o.Call("GET", "/v1/credential", nil).Want(t, 200).JSON(t, &me)
	sibling := func(queues string) string {
		var issued struct {
			Key string `json:"key"`
		}
		o.Call("POST", "/v1/credentials", `{"name":"sibling","actor_id":"`+me.ActorID+`","actions":["tasks:submit"],"queues":`+queues+`}`, harness.Key("sibling"+queues)).
			Want(t, 201).JSON(t, &issued)
		return issued.Key
	}
	if r := o.CallAt(o.URL(), sibling(`["*"]`), "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).Want(t, 201); !replayed(r) {
		t.Errorf("another credential of the actor made another task: %s", r.Body)
	}
	o.CallAt(o.URL(), sibling(`["z*"]`), "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).WantProblem(t, 404, "not_found")
}

func TestARolledBackFirstTryLeavesNothing(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	wired, w := addWired(t, o, harness.Options{})
	o.CreateQueue("q", nil)
	const body = `{"queue":"q","type":"t","payload":1}`
	since := ledger(t, o)
	commit := w.stop(harness.Commit)
	first := send(t, wired.URL, o.Key, "POST", "/v1/tasks", body, harness.Key("k"))
	within(t, commit.reached, "the first try to be before its commit")
	wantLedger(t, o, since)

	var waiting []func() harness.Reply
	for range 5 {
		waiting = append(waiting, send(t, o.URL(), o.Key, "POST", "/v1/tasks", body, harness.Key("k")))
	}
	awaitLockWaits(t, o, 5)
	commit.cut()
	if p := first().WantProblem(t, 503, "outcome_unknown"); p.Detail == "" {
		t.Error("the caller is not told what to do")
	}
	var replies []harness.Reply
	for _, wait := range waiting {
		replies = append(replies, wait())
	}
	wantSameReplies(t, replies)
	again := o.CallAt(wired.URL, o.Key, "POST", "/v1/tasks", body, harness.Key("k"))
	if !replayed(again) || string(again.Body) != string(replies[0].Body) {
		t.Errorf("the caller's repeat got %d %s, want the receipt of who won: %s", again.Status, again.Body, replies[0].Body)
	}
	wantOneTask(t, o)
}

// A first try that was refused after it had reserved its key, because of the database's clock, leaves the key free.
func TestARefusedFirstTryLeavesNothing(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	since := ledger(t, o)
	o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","deadline_at":"2001-01-01T00:00:00Z"}`, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	o.Call("POST", "/v1/tasks", `{"queue":"later","type":"t"}`, harness.Key("k")).WantProblem(t, 404, "not_found")
	wantLedger(t, o, since)
	o.CreateQueue("later", nil)
	if r := o.Call("POST", "/v1/tasks", `{"queue":"later","type":"t"}`, harness.Key("k")).Want(t, 201); replayed(r) {
		t.Errorf("the request was taken for a repeat of a refused one: %s", r.Body)
	}
	wantOneTask(t, o)
}

func TestAnUnansweredCommitIsSettledByTheKey(t *testing.T) {
	const body = `{"queue":"q","type":"t","payload":1}`
	for name, c := range map[string]struct {
		end  func(*stoppedStatement)
		done bool
	}{"that was carried out": {(*stoppedStatement).lose, true}, "that never arrived": {(*stoppedStatement).cut, false}} {
		t.Run(name, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			wired, w := addWired(t, o, harness.Options{})
			o.CreateQueue("q", nil)
			commit := w.stop(harness.Commit)
			c.end(commit)
			first := o.CallAt(wired.URL, o.Key, "POST", "/v1/tasks", body, harness.Key("k"))
			first.WantProblem(t, 503, "outcome_unknown")
			if first.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if again := o.CallAt(wired.URL, o.Key, "POST", "/v1/tasks", body, harness.Key("k")).Want(t, 201); replayed(again) != c.done {
				t.Errorf("the repeat is a replay: %t, want %t", replayed(again), c.done)
			}
			wantOneTask(t, o)
		})
	}
}

func TestAKeyInUseIsInProgress(t *testing.T) {
	o := harness.Start(t, harness.Options{LaneWait: time.Second})
	wired, w := addWired(t, o, harness.Options{})
	o.CreateQueue("q", nil)
	const body = `{"queue":"q","type":"t","payload":1}`
	commit := w.stop(harness.Commit)
	first := send(t, wired.URL, o.Key, "POST", "/v1/tasks", body, harness.Key("k"))
	within(t, commit.reached, "the first try to be before its commit")

	second := o.Call("POST", "/v1/tasks", body, harness.Key("k"))
	second.WantProblem(t, 409, "idempotency_in_progress")
	if second.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q, want 1", second.Header.Get("Retry-After"))
	}
	batch := submitBatch(t, o, o.URL(), `{"queue":"q","type":"t","payload":1,"idempotency_key":"k"}`, `{"queue":"q","type":"t","idempotency_key":"neighbour"}`)
	if batch[0].Status != 409 || batch[0].Problem.Code != "idempotency_in_progress" || batch[0].Problem.RetryAfterMs < 1 || batch[1].Status != 201 {
		t.Errorf("a batch with the key answered %+v", batch)
	}
	wantKey(t, o, "submitTask", "k", "in_progress")
	voiding := o.Call("POST", "/v1/idempotency-keys:void", `{"operation":"submitTask","key":"k"}`)
	voiding.WantProblem(t, 409, "idempotency_in_progress")
	if voiding.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}

	commit.goOn()
	accepted := first().Want(t, 201)
	if again := o.Call("POST", "/v1/tasks", body, harness.Key("k")).Want(t, 201); !replayed(again) || string(again.Body) != string(accepted.Body) {
		t.Errorf("a repeat got %s, want %s", again.Body, accepted.Body)
	}
	if key := wantKey(t, o, "submitTask", "k", "done"); string(key.Reply.Body) != string(accepted.Body) {
		t.Errorf("the look-up gives %s, want %s", key.Reply.Body, accepted.Body)
	}
}

// A waiting second try gets the reply of the first as soon as that commits.
func TestASecondTryWaitsForTheFirst(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	wired, w := addWired(t, o, harness.Options{})
	o.CreateQueue("q", nil)
	const body = `{"queue":"q","type":"t","payload":1}`
	commit := w.stop(harness.Commit)
	first := send(t, wired.URL, o.Key, "POST", "/v1/tasks", body, harness.Key("k"))
	within(t, commit.reached, "the first try to be before its commit")
	same := send(t, o.URL(), o.Key, "POST", "/v1/tasks", body, harness.Key("k"))
	other := send(t, o.URL(), o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"other"}`, harness.Key("k"))
	awaitLockWaits(t, o, 2)
	commit.goOn()
	wantSameReplies(t, []harness.Reply{first(), same()})
	other().WantProblem(t, 422, "idempotency_conflict")
	wantOneTask(t, o)
}

func TestAKeyOutlivesItsReply(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	const body = `{"queue":"q","type":"t","payload":1}`
	submit := func() harness.Reply { return o.Call("POST", "/v1/tasks", body, harness.Key("k")) }
	submit().Want(t, 201)
	o.Advance(8*24*time.Hour - time.Minute)
	if o.Pass("retire_keys"); !replayed(submit().Want(t, 201)) {
		t.Fatal("the reply is gone before its time")
	}
	o.Advance(time.Minute)
	submit().WantProblem(t, 410, "idempotency_expired")
	wantKey(t, o, "submitTask", "k", "expired")
	if n := o.Pass("retire_keys"); n == 0 {
		t.Fatal("no key was retired")
	}
	submit().WantProblem(t, 410, "idempotency_expired")
	if key := wantKey(t, o, "submitTask", "k", "expired"); key.ResourceKind != "task" || key.ResourceID == "" {
		t.Errorf("an expired key tells %+v, want its task", key)
	}
	o.Call("POST", "/v1/idempotency-keys:void", `{"operation":"submitTask","key":"k"}`).WantProblem(t, 409, "state_conflict")
	if n := o.Count("orbit_replies"); n != 0 {
		t.Errorf("%d replies are kept past their life", n)
	}
	batch := submitBatch(t, o, o.URL(), `{"queue":"q","type":"t","payload":1,"idempotency_key":"k"}`, `{"queue":"q","type":"t","idempotency_key":"k2"}`)
	if batch[0].Status != 410 || batch[0].Problem.Code != "idempotency_expired" || batch[1].Status != 201 {
		t.Errorf("a batch with the key answered %+v", batch)
	}
	if n := o.Count("pulse_tasks"); n != 2 {
		t.Errorf("%d tasks, want that of k and that of k2", n)
	}
	o.Advance(90 * 24 * time.Hour)
	o.Pass("retire_keys")
	wantKey(t, o, "submitTask", "k", "unknown")
}

func TestASubmitIsRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	reader := o.Credential(o.Namespace, []string{"tasks:read", "tasks:execute"}, []string{"*"})
	since := ledger(t, o)
	for _, c := range []struct{ body, pointer, code string }{
		{`{"type":"t"}`, "/queue", "one_of"},
		{`{"queue":"q","queue_id":"` + queue + `","type":"t"}`, "/queue", "one_of"},
		{`{"queue":"q"}`, "/type", "required"},
		{`{"queue":"q","type":""}`, "/type", "pattern"},
		{`{"queue":"q","type":"a b"}`, "/type", "pattern"},
		{`{"queue":"q","type":"` + strings.Repeat("t", 129) + `"}`, "/type", "pattern"},
		{`{"queue":"q","type":7}`, "/type", "type"},
		{`{"queue":"ä","type":"t"}`, "/queue", "pattern"},
		{`{"queue_id":"q","type":"t"}`, "/queue_id", "pattern"},
		{`{"queue":"q","type":"t","priority":0}`, "/priority", "out_of_range"},
		{`{"queue":"q","type":"t","priority":10}`, "/priority", "out_of_range"},
		{`{"queue":"q","type":"t","priority":1.5}`, "/priority", "type"},
		{`{"queue":"q","type":"t","max_attempts":0}`, "/max_attempts", "out_of_range"},
		{`{"queue":"q","type":"t","max_attempts":101}`, "/max_attempts", "out_of_range"},
		{`{"queue":"q","type":"t","payload_version":-1}`, "/payload_version", "out_of_range"},
		{`{"queue":"q","type":"t","payload_version":4294967296}`, "/payload_version", "out_of_range"},
		{`{"queue":"q","type":"t","delay_ms":-1}`, "/delay_ms", "out_of_range"},
		{`{"queue":"q","type":"t","delay_ms":315360000001}`, "/delay_ms", "out_of_range"},
		{`{"queue":"q","type":"t","delay_ms":1,"run_at":"2100-01-01T00:00:00Z"}`, "/delay_ms", "one_of"},
		{`{"queue":"q","type":"t","run_at":"2100-01-01"}`, "/run_at", "date_time"},
		{`{"queue":"q","type":"t","run_at":"1969-12-31T23:59:59Z"}`, "/run_at", "out_of_range"},
		{`{"queue":"q","type":"t","run_at":"9999-12-31T23:59:59-01:00"}`, "/run_at", "out_of_range"},
		{`{"queue":"q","type":"t","deadline_at":"2001-01-01T00:00:00Z"}`, "/deadline_at", "not_after_start"},
		{`{"queue":"q","type":"t","run_at":"2100-01-01T00:00:00Z","deadline_at":"2100-01-01T00:00:00.0000009Z"}`, "/deadline_at", "not_after_start"},
		{`{"queue":"q","type":"t","delay_ms":60000,"deadline_at":"` + time.Now().Add(30*time.Second).UTC().Format(time.RFC3339) + `"}`, "/deadline_at", "not_after_start"},
		{`[]`, "", "type"},
		{`null`, "", "type"},
	} {
		p := o.Call("POST", "/v1/tasks", c.body, harness.Key("k")).WantProblem(t, 400, "invalid_request")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != c.pointer || p.Errors[0].Code != c.code || p.Errors[0].Detail == "" {
			t.Errorf("%s: refused with %+v, want %s at %q", c.body, p.Errors, c.code, c.pointer)
		}
		// The same in a batch, where it harms nobody.
		item := strings.Replace(c.body, "{", `{"idempotency_key":"k",`, 1)
		if got := submitBatch(t, o, o.URL(), item); got[0].Status != 400 || len(got[0].Problem.Errors) != 1 || got[0].Problem.Errors[0].Pointer != c.pointer || got[0].Problem.Errors[0].Code != c.code {
			t.Errorf("%s: refused in a batch with %+v, want %s at %q", item, got[0].Problem, c.code, c.pointer)
		}
	}
	o.Call("POST", "/v1/tasks", "", harness.Key("k")).WantProblem(t, 400, "invalid_request")
	o.Call("POST", "/v1/tasks", `{"queue":"none","type":"t"}`, harness.Key("k")).WantProblem(t, 404, "not_found")
	o.Call("POST", "/v1/tasks", `{"queue_id":"`+strings.Repeat("0", 32)+`","type":"t"}`, harness.Key("k")).WantProblem(t, 404, "not_found")
	o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`).WantProblem(t, 400, "idempotency_missing")
	o.CallAt(o.URL(), reader, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).WantProblem(t, 403, "forbidden")
	wantLedger(t, o, since)
}

func TestTimesOfASubmitAreKeptToTheMicrosecond(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", map[string]any{"max_attempts": 7})
	for i, c := range []struct {
		given   string
		runAt   string // empty: at acceptance
		waiting string
	}{
		{``, "", "ready"},
		{`,"delay_ms":0`, "", "ready"},
		{`,"run_at":"2020-02-29T12:00:00.123456Z"`, "2020-02-29T12:00:00.123456Z", "ready"},
		{`,"run_at":"2100-01-01T00:59:59.9999999+01:00"`, "2099-12-31T23:59:59.999999Z", "scheduled"},
	} {
		var r receipt
		o.Call("POST", "/v1/tasks", `{"queue_id":"`+queue+`","type":"t"`+c.given+`}`, harness.Key(fmt.Sprint("k", i))).Want(t, 201).JSON(t, &r)
		want := r.AcceptedAt
		if c.runAt != "" {
			want, _ = time.Parse(time.RFC3339Nano, c.runAt)
		}
		got := wantState(t, o, r.TaskID, "queued")
		if !r.RunAt.Equal(want) || got.Waiting.Kind != c.waiting || got.MaxAttempts != 7 || got.Payload != "null" {
			t.Errorf("%s: run_at %s, want %s; shown as %+v", c.given, r.RunAt, want, got)
		}
	}
	var r receipt
	o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","delay_ms":90000,"deadline_at":"2100-01-01T00:00:00Z","max_attempts":2,"priority":9,"payload_version":4294967295}`, harness.Key("d")).Want(t, 201).JSON(t, &r)
	if d := r.RunAt.Sub(r.AcceptedAt); d != 90*time.Second {
		t.Errorf("a delay of 90 s became %s", d)
	}
	shown := string(o.Call("GET", "/v1/tasks/"+r.TaskID, nil).Want(t, 200).Body)
	for _, member := range []string{`"deadline_at":"2100-01-01T00:00:00.000000Z"`, `"max_attempts":2`, `"priority":9`, `"payload_version":4294967295`} {
		if !strings.Contains(shown, member) {
			t.Errorf("no %s in %s", member, shown)
		}
	}
}

func TestTheTraceContextOfASubmitReachesTheWorker(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	const parent, state = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=value"
	o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"), harness.Header{Name: "traceparent", Value: parent}, harness.Header{Name: "tracestate", Value: state}).Want(t, 201)
	var got struct {
		Offers []struct {
			Traceparent string `json:"traceparent"`
			Tracestate  string `json:"tracestate"`
		} `json:"offers"`
	}
	openWorker(t, o, "w", "q").call("/v1/claims", map[string]any{"claim_seq": 1, "max": 1}).Want(t, 200).JSON(t, &got)
	if len(got.Offers) != 1 || !strings.HasPrefix(got.Offers[0].Traceparent, parent[:36]) || got.Offers[0].Tracestate != state {
		t.Fatalf("offered with %+v, want the trace of %s", got, parent)
	}
}

// However many repeats wait for one first try, they keep nobody else from being served.
func TestWaitingRepeatsStarveNobody(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	wired, w := addWired(t, o, harness.Options{})
	o.CreateQueue("q", nil)
	queue := o.CreateQueue("q2", nil) // that of the first try is shared with it until its commit
	other := submit(t, o, "q", "delay_ms", 3_600_000)
	submit(t, o, "q")
	worker := openWorker(t, o, "w", "q")
	running := worker.run()
	commit := w.stop(harness.Commit)
	first := send(t, wired.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"))
	within(t, commit.reached, "the first try to be before its commit")

	const repeats = 60
	var over atomic.Int32
	var waiting []func() harness.Reply
	for range repeats {
		waiting = append(waiting, later(t, func() (harness.Reply, error) {
			r, err := harness.Do(t.Context(), o.URL(), o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"))
			over.Add(1)
			return r, err
		}))
	}
	awaitLockWaits(t, o, 8)
	for i := range 10 {
		o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(fmt.Sprint("stranger-", i))).Want(t, 201)
	}
	wantItem(t, worker.heartbeat(running), 200, "")
	o.Call("POST", "/v1/tasks/"+other+":cancel", nil, harness.Key("c")).Want(t, 200)
	o.Call("PATCH", "/v1/queues/"+queue, `{"max_attempts":3}`, mergePatch, ifMatch(`"1"`)).Want(t, 200)
	wantKey(t, o, "submitTask", "stranger-1", "done")
	if n := over.Load(); n != 0 {
		t.Errorf("others were served only after %d repeats had given up", n)
	}
	commit.goOn()
	accepted := first().Want(t, 201)
	for _, wait := range waiting {
		if r := wait(); r.Status == 201 && string(r.Body) != string(accepted.Body) {
			t.Errorf("a repeat got %s, want %s", r.Body, accepted.Body)
		} else if r.Status != 201 {
			r.WantProblem(t, 409, "idempotency_in_progress")
		}
	}
}

// Of many first tries of one key with different contents one wins, and the others are told of it.
func TestOfManyContentsUnderOneKeyOneWins(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	won := 0
	for i, r := range race(t, 20, func(i int) (harness.Reply, error) {
		return harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks", fmt.Sprintf(`{"queue":"q","type":"t","payload":%d}`, i), harness.Key("k"))
	}) {
		if r.Status != 201 {
			r.WantProblem(t, 422, "idempotency_conflict")
			continue
		}
		won++
		var got receipt
		if r.JSON(t, &got); string(getTask(t, o, got.TaskID).Payload) != fmt.Sprint(i) {
			t.Errorf("caller %d was accepted with the content of another", i)
		}
	}
	if won != 1 {
		t.Errorf("%d of 20 contents won, want 1", won)
	}
	wantOneTask(t, o)
}
