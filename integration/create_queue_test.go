package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestOfManyCreationsOfOneQueueOneWins(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	create := func(n int, key func(i int) string, name string) []harness.Reply {
		return race(t, n, func(i int) (harness.Reply, error) {
			return harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/queues", `{"name":"`+name+`"}`, harness.Key(key(i)))
		})
	}
	wantSameReplies(t, create(12, func(int) string { return "same" }, "repeated"))
	won := 0
	for _, r := range create(12, func(i int) string { return fmt.Sprint("own", i) }, "wanted") {
		if r.Status == 201 {
			won++
		} else {
			r.WantProblem(t, 409, "state_conflict")
		}
	}
	if won != 1 {
		t.Errorf("%d of 12 made one queue, want 1", won)
	}
	if queues, keys, events := o.Count("pulse_queues"), o.Count("orbit_idempotency_keys"), o.Count("orbit_events WHERE type = 'queue.created'"); queues != 2 || keys != 2 || events != 2 {
		t.Errorf("%d queues, %d keys, %d events; want 2 of each", queues, keys, events)
	}
}

// Names mean identity: no case, accent, width or trailing character is folded.
func TestQueueNamesAreTakenToTheLetter(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	ids := map[string]string{}
	for _, name := range []string{"mail", "Mail", "MAIL", "mail.", "mail-", "mail_", "mail/", "mail:", "0", "00"} {
		ids[name] = o.CreateQueue(name, nil)
	}
	for name, id := range ids {
		var got receipt
		o.Call("POST", "/v1/tasks", `{"queue":"`+name+`","type":"t"}`, harness.Key("k"+name)).Want(t, 201).JSON(t, &got)
		if got.QueueID != id {
			t.Errorf("a task for %q went to another queue", name)
		}
		var page list
		if o.Call("GET", "/v1/queues?name="+name, nil).Want(t, 200).JSON(t, &page); len(page.Items) != 1 || page.Items[0].ID != id {
			t.Errorf("%q is found as %+v", name, page.Items)
		}
	}
}

// A queue's policy holds for what is submitted, claimed and started from then on.
func TestAChangedPolicyHoldsFromThenOn(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("q", map[string]any{"max_attempts": 2, "lease_ms": 5000})
	before := submit(t, o, "q", "priority", 1)
	w := openWorker(t, o, "w", "q")
	running := w.run()
	started := getAttempt(t, o, running.AttemptID)
	o.Call("PATCH", "/v1/queues/"+id, `{"max_attempts":7,"lease_ms":60000}`, mergePatch, ifMatch(`"1"`)).Want(t, 200)
	after := submit(t, o, "q")
	if a, b := getTask(t, o, before), getTask(t, o, after); a.MaxAttempts != 2 || b.MaxAttempts != 7 {
		t.Errorf("budgets are %d and %d, want 2 and 7", a.MaxAttempts, b.MaxAttempts)
	}
	if lease := started.LeaseUntil.Sub(started.StartedAt); lease != 5*time.Second {
		t.Errorf("the running attempt has a lease of %s, want 5 s", lease)
	}
	if offered := w.claimOne(); offered.LeaseMs != 60000 {
		t.Errorf("a new offer has a lease of %d ms, want 60,000", offered.LeaseMs)
	}
}
