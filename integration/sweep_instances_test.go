package integration_test

import (
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// reopened opens a worker that takes and starts n tasks, and then a newer incarnation of it.
func reopened(t testing.TB, o *harness.Orbit, n int) (old *worker, offers []offer) {
	t.Helper()
	for range n {
		submit(t, o, "mail")
	}
	old = openWorker(t, o, "w", "mail")
	for len(offers) < n {
		offers = append(offers, old.claim(100)...)
	}
	var items []map[string]any
	for _, a := range offers {
		items = append(items, a.item())
	}
	for _, i := range old.items(startPath, items...) {
		wantItem(t, i, 200, "")
	}
	openWorker(t, o, "w", "mail")
	return old, offers
}

func TestASweepOfManyAttemptsGoesOnUntilNothingIsLeft(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	old, offers := reopened(t, o, 130)
	total := 0
	for passes := 1; ; passes++ {
		n := o.Pass("sweep_instances")
		if total += n; n == 0 {
			break
		}
		if passes > 5 {
			t.Fatalf("%d swept in %d passes", total, passes)
		}
	}
	if total != len(offers) || o.Count("pulse_attempts WHERE live_instance_id = UNHEX(?)", old.instance) != 0 || o.Count("pulse_worker_instances WHERE sweep_due_at IS NOT NULL") != 0 {
		t.Fatalf("%d of %d swept", total, len(offers))
	}
}

func TestASweepThatMetAHeldAttemptIsDueUntilItIsEnded(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	_, offers := reopened(t, o, 3)
	release := holdRows(t, o, "pulse_attempts WHERE id = UNHEX(?)", offers[1].AttemptID)
	if n := o.Pass("sweep_instances"); n != 2 {
		t.Fatalf("%d swept beside a held one, want 2", n)
	}
	if n := o.Pass("sweep_instances"); n != 0 || o.Count("pulse_worker_instances WHERE sweep_due_at IS NOT NULL") != 1 {
		t.Fatalf("%d swept, and the sweep is over although an attempt is live", n)
	}
	release()
	if n := o.Pass("sweep_instances"); n != 1 {
		t.Fatalf("%d swept, want the one that was held", n)
	}
	o.Pass("sweep_instances")
	if o.Count("pulse_worker_instances WHERE sweep_due_at IS NOT NULL") != 0 {
		t.Fatal("the sweep is still due")
	}
}

func TestSweepsAtOnceAndLateResultsEndEachAttemptOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy("unknown_outcome", "review"))
	old, offers := reopened(t, o, 24)
	late := make([]itemResult, len(offers))
	race(t, len(offers)+4, func(i int) (_ struct{}, err error) {
		if i < len(offers) {
			late[i], err = old.on(i%2).sendItem(finishPath, offers[i].item("outcome", "succeeded", "result", i))
			return
		}
		_, err = pass(t, o, "sweep_instances", i%2)
		return
	})
	o.Pass("sweep_instances")
	for i, l := range late {
		// The fence is known before the sweep has come, and after it the lease is lost: never is the result taken.
		if l.Status != 409 || l.Problem.Code != "session_superseded" && l.Problem.Code != "lease_lost" || l.EvidenceID == "" {
			t.Fatalf("a late result got %d %s", l.Status, l.Problem.Code)
		}
		wantState(t, o, offers[i].TaskID, "review")
		if n := countEvents(t, o, offers[i].AttemptID)["attempt.ended"]; n != 1 {
			t.Fatalf("the attempt ended %d times", n)
		}
	}
}
