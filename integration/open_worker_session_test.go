package integration_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"
)

// session is an open worker session, as far as tests look at it.
type session struct {
	SessionID           string    `json:"session_id"`
	InstanceID          string    `json:"instance_id"`
	Epoch               int64     `json:"epoch"`
	OpenedAt            time.Time `json:"opened_at"`
	HeartbeatIntervalMs int64     `json:"heartbeat_interval_ms"`
}

// openSession opens by hand, with a body that a test may have changed.
func openSession(o *harness.Orbit, key string, body map[string]any) harness.Reply {
	return o.CallAt(o.URL(), key, "POST", "/v1/worker-sessions", body)
}

func newInstance() string { return orbit.NewID(time.Now()).String() }

func opening(name, instance string, queues ...string) map[string]any {
	return map[string]any{"worker_name": name, "instance_id": instance, "queues": queues, "types": []string{"a.b"}, "slots": 4, "host": "h", "version": "v"}
}

func TestOpenWorkerSessionGivesAnEpochThatARepeatGetsAgain(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("mail", nil)
	instance := newInstance()
	first := openSession(o, o.Key, opening("w", instance, "mail", id)).Want(t, 200)
	var got session
	first.JSON(t, &got)
	if got.Epoch != 1 || got.InstanceID != instance || got.HeartbeatIntervalMs != 10_000 || got.OpenedAt.IsZero() {
		t.Fatalf("%+v", got)
	}
	o.Advance(time.Minute)
	if again := openSession(o, o.Key, opening("w", instance, "mail")).Want(t, 200); string(again.Body) != string(first.Body) {
		t.Fatalf("a repeat got %s, want %s", again.Body, first.Body)
	}
	if got := countEvents(t, o, got.SessionID); got["worker.opened"] != 1 {
		t.Fatalf("events %v", got)
	}
}

func TestReopenedIdentityFencesTheOldIncarnationAtOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	for range 3 {
		submit(t, o, "mail")
	}
	old := openWorker(t, o, "w", "mail")
	offers := old.claim(2)
	wantItem(t, old.start(offers[0]), 200, "")
	next := openWorker(t, o, "w", "mail")
	if next.epoch != old.epoch+1 {
		t.Fatalf("epoch %d after %d", next.epoch, old.epoch)
	}
	for path, body := range map[string]map[string]any{
		"/v1/claims":             {"claim_seq": 9, "max": 1},
		"/v1/attempts:start":     {"items": []any{offers[1].item()}},
		"/v1/attempts:heartbeat": {"items": []any{offers[0].item()}},
		"/v1/attempts:release":   {"items": []any{offers[1].item()}},
	} {
		old.call(path, body).WantProblem(t, 409, "session_superseded")
	}
	old.call("/v1/attempts:release", map[string]any{"claim_seq": old.seq}).WantProblem(t, 409, "session_superseded")
	late := old.succeed(offers[0], `"late"`)
	wantItem(t, late, 409, "session_superseded")
	if kept := listEvidence(t, o, offers[0].AttemptID); len(kept) != 1 || kept[0].ID != late.EvidenceID || kept[0].Reason != "session_superseded" {
		t.Fatalf("evidence %+v, want %s", kept, late.EvidenceID)
	}
	wantItem(t, old.succeed(offers[1], `1`), 409, "stale_attempt")
	// Nothing has been taken from the old one yet but its rights: recovery does that.
	wantState(t, o, offers[0].TaskID, "running")
	wantState(t, o, offers[1].TaskID, "offered")
	if got := next.claim(10); len(got) != 1 {
		t.Fatalf("the new incarnation got %d offers, want the one that was left", len(got))
	}
}

func TestASweepEndsWhatAnOldIncarnationLeftByThePolicyOfItsQueue(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("again", policy())
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	tasks := map[string]string{"again": submit(t, o, "again"), "money": submit(t, o, "money")}
	idle := submit(t, o, "again", "priority", 9)
	last := submit(t, o, "again", "max_attempts", 1, "priority", 8)
	old := openWorker(t, o, "w", "again", "money")
	for _, offered := range old.claim(10) {
		if offered.TaskID != idle {
			wantItem(t, old.start(offered), 200, "")
		}
	}
	openWorker(t, o, "w", "again", "money")
	if n := o.Pass("sweep_instances"); n != 4 {
		t.Fatalf("%d attempts swept, want 4", n)
	}
	if got := wantState(t, o, tasks["again"], "queued"); got.Waiting.Kind != "scheduled" || got.AttemptsUsed != 1 || got.Failure.Code != "session_superseded" {
		t.Fatalf("lost under retry: %+v", got)
	}
	if got := wantState(t, o, tasks["money"], "review"); got.AttemptsUsed != 1 || got.Failure.Code != "session_superseded" {
		t.Fatalf("lost under review: %+v", got)
	}
	if got := wantState(t, o, last, "failed"); got.AttemptsUsed != 1 || got.Failure.Code != "session_superseded" {
		t.Fatalf("lost with the last of its budget: %+v", got)
	}
	if got := wantState(t, o, idle, "queued"); got.Waiting.Kind != "ready" || got.AttemptsUsed != 0 || got.Failure.Code != "" {
		t.Fatalf("never started: %+v", got)
	}
	if n := o.Pass("sweep_instances"); n != 0 || o.Count("pulse_worker_instances WHERE sweep_due_at IS NOT NULL") != 0 {
		t.Fatalf("a second sweep moved %d, and some sweep is still due", n)
	}
}

func TestADelayedDuplicateOfAnOldOpeningFencesNobody(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	old := openWorker(t, o, "w", "mail")
	next := openWorker(t, o, "w", "mail")
	openSession(o, o.Key, old.opening("w", "mail")).WantProblem(t, 409, "session_superseded")
	running := next.run()
	openSession(o, o.Key, old.opening("w", "mail")).WantProblem(t, 409, "session_superseded")
	openSession(o, o.Key, next.opening("w", "mail")).Want(t, 200) // a duplicate of the current one
	wantItem(t, next.succeed(running, `1`), 200, "")
}

func TestOpenWorkerSessionRefuses(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("mail", nil)
	used := openWorker(t, o, "taken", "mail")
	closed := openWorker(t, o, "closed", "mail")
	closed.call("/v1/worker-sessions:close", nil).Want(t, 200)
	other, tenant := o.Tenant("other-tenant")
	for name, c := range map[string]struct {
		key    string
		change map[string]any
		status int
		code   string
	}{
		"name of another actor":        {o.Credential(o.Namespace, []string{"*"}, []string{"*"}), map[string]any{"worker_name": "taken"}, 409, "state_conflict"},
		"instance of another name":     {o.Key, map[string]any{"instance_id": used.instance}, 409, "state_conflict"},
		"instance that was closed":     {o.Key, map[string]any{"worker_name": "closed", "instance_id": closed.instance}, 409, "state_conflict"},
		"queue of another tenant":      {tenant, map[string]any{"queues": []string{id}}, 404, "not_found"},
		"queue that does not exist":    {o.Key, map[string]any{"queues": []string{"mail", "nope"}}, 404, "not_found"},
		"queue that was not granted":   {o.Credential(o.Namespace, []string{"*"}, []string{"sms"}), nil, 404, "not_found"},
		"no right to execute":          {o.Credential(o.Namespace, []string{"tasks:read"}, []string{"*"}), nil, 403, "forbidden"},
		"no queues":                    {o.Key, map[string]any{"queues": []string{}}, 400, "invalid_request"},
		"no slots":                     {o.Key, map[string]any{"slots": 0}, 400, "invalid_request"},
		"an instance id that is none":  {o.Key, map[string]any{"instance_id": "ABC"}, 400, "invalid_request"},
		"a name with a space":          {o.Key, map[string]any{"worker_name": "a b"}, 400, "invalid_request"},
		"a field that does not exist":  {o.Key, map[string]any{"epoch": 1}, 400, "invalid_request"},
		"a host name beyond its limit": {o.Key, map[string]any{"host": fmt.Sprintf("%0256d", 0)}, 400, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			body := opening("new", newInstance(), "mail")
			for k, v := range c.change {
				body[k] = v
			}
			openSession(o, c.key, body).WantProblem(t, c.status, c.code)
		})
	}
	if n := o.Count("pulse_worker_sessions WHERE worker_name = 'new'"); n != 0 {
		t.Fatalf("%d sessions of refused openings", n)
	}
	if n := o.Count("pulse_worker_sessions WHERE worker_name = 'taken' AND epoch > 1"); n != 0 {
		t.Fatal("a refused opening fenced somebody")
	}
	// The same name is free in another tenant.
	o.CallAt(o.URL(), tenant, "POST", "/v1/queues", map[string]any{"name": "mail"}, harness.Key("q")).Want(t, 201)
	openSession(o, tenant, opening("taken", used.instance, "mail")).Want(t, 200)
	if n := o.Count("pulse_worker_sessions WHERE namespace_id = ?", other.ID); n != 1 {
		t.Fatalf("%d sessions of the other tenant, want 1", n)
	}
}

func TestOpeningsOfOneNameAtOnceGetAnEpochEachAndTheLastStays(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", nil)
	for round := range 3 {
		name := fmt.Sprintf("w%d", round)
		sessions := race(t, 12, func(i int) (session, error) {
			r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/worker-sessions", opening(name, newInstance(), "mail"))
			return parse[session](r, err, 200)
		})
		epochs := map[int64]session{}
		for _, s := range sessions {
			epochs[s.Epoch] = s
		}
		for epoch := int64(1); epoch <= 12; epoch++ {
			if _, ok := epochs[epoch]; !ok {
				t.Fatalf("nobody got epoch %d: %+v", epoch, sessions)
			}
		}
		last := worker{t: t, o: o, url: o.URL(), key: o.Key}
		for epoch := int64(1); epoch <= 12; epoch++ {
			last.instance, last.epoch = epochs[epoch].InstanceID, epoch
			r := last.call("/v1/attempts:heartbeat", map[string]any{"items": []any{}})
			if epoch < 12 {
				r.WantProblem(t, 409, "session_superseded")
			} else {
				r.Want(t, 200)
			}
		}
	}
}

func TestOneOpeningSentManyTimesAtOnceIsOne(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", nil)
	for round := range 3 {
		body := opening(fmt.Sprintf("w%d", round), newInstance(), "mail")
		sessions := race(t, 12, func(i int) (session, error) {
			r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/worker-sessions", body)
			return parse[session](r, err, 200)
		})
		for _, s := range sessions {
			if s != sessions[0] || s.Epoch != 1 {
				t.Fatalf("%+v and %+v", sessions[0], s)
			}
		}
	}
	if n := o.Count("pulse_worker_instances"); n != 3 {
		t.Fatalf("%d instances, want 3", n)
	}
}

func TestOnceAReopeningHasReturnedTheOldIncarnationGetsNothing(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	for round := range 5 {
		name := fmt.Sprintf("w%d", round)
		for range 8 {
			submit(t, o, "mail")
		}
		old := openWorker(t, o, name, "mail")
		var reopened atomic.Bool
		var seq atomic.Int64
		answers := race(t, 9, func(i int) (string, error) {
			if i == 8 {
				r, err := harness.Do(t.Context(), o.Replica(1).URL, o.Key, "POST", "/v1/worker-sessions", opening(name, newInstance(), "mail"))
				reopened.Store(true)
				_, err = parse[session](r, err, 200)
				return "", err
			}
			for {
				after := reopened.Load()
				r, err := old.on(i%2).send("/v1/claims", map[string]any{"claim_seq": seq.Add(1), "max": 1})
				if err != nil || r.Status == 409 {
					return "", err
				}
				if r.Status != 200 || after {
					return fmt.Sprintf("a claim (begun after the reopening: %t) got %d %s", after, r.Status, r.Body), nil
				}
			}
		})
		for _, a := range answers {
			if a != "" {
				t.Fatal(a)
			}
		}
		// The sweep gives back all that the old one held: nothing of it can have come later.
		o.Pass("sweep_instances")
		if n := o.Count("pulse_attempts WHERE live_instance_id = UNHEX(?)", old.instance); n != 0 {
			t.Fatalf("%d live attempts of a swept incarnation", n)
		}
	}
}

func TestAReopeningWaitsForTheCallsThatAreUnderWay(t *testing.T) {
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{})
	o.AddReplica(harness.Options{Between: harness.Around(b.around)})
	o.CreateQueue("mail", policy())
	openWorker(t, o, "w", "mail").on(1).call(heartbeatPath, map[string]any{"items": []any{}}).Want(t, 200) // the credential is known there from now on
	for path, want := range map[string]string{claimPath: "released", startPath: "lost", finishPath: "succeeded", heartbeatPath: "lost", releasePath: "released"} {
		t.Run(path, func(t *testing.T) {
			id := submit(t, o, "mail")
			old := openWorker(t, o, "w", "mail")
			body := map[string]any{"claim_seq": 1, "max": 1}
			if path != claimPath {
				offered := old.claimOne()
				body = map[string]any{"items": []any{offered.item()}}
				if path == finishPath || path == heartbeatPath {
					wantItem(t, old.start(offered), 200, "")
				}
				if path == finishPath {
					body = map[string]any{"items": []any{offered.item("outcome", "succeeded")}}
				}
			}
			reached, goOn := b.next(harness.Commit)
			defer goOn()
			call := later(t, func() (harness.Reply, error) { return old.on(1).send(path, body) })
			within(t, reached, "the call to commit")
			opened := later(t, func() (harness.Reply, error) {
				return harness.Do(t.Context(), o.URL(), o.Key, "POST", "/v1/worker-sessions", opening("w", newInstance(), "mail"))
			})
			awaitLockWait(t, o, "pulse_worker_sessions")
			goOn()
			call().Want(t, 200) // it came first
			opened().Want(t, 200)
			o.Pass("sweep_instances")
			var attempts struct {
				Items []attempt `json:"items"`
			}
			if o.Call("GET", "/v1/tasks/"+id+"/attempts", nil).Want(t, 200).JSON(t, &attempts); len(attempts.Items) != 1 || attempts.Items[0].State != want {
				t.Fatalf("attempts %+v, want one that is %s", attempts.Items, want)
			}
			if want != "succeeded" {
				act(o, id, "cancel", nil, harness.Key(id)).Want(t, 200)
			}
		})
	}
}
