package integration_test

import (
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestLookAheadSeesWhatIsDueInEachList(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	queue := o.CreateQueue("mail", policy("offer_timeout_ms", 60_000, "lease_ms", 60_000))
	w := openWorker(t, o, "w", "mail")
	wantDue := func(want int, what string) {
		t.Helper()
		for i := range 2 {
			if n := o.Pass("look_ahead", i); n != want {
				t.Fatalf("%s: replica %d sees %d lists with something due, want %d", what, i, n, want)
			}
		}
	}
	wantDue(0, "nothing")
	first := submit(t, o, "mail", "delay_ms", 5000)
	wantDue(0, "scheduled")
	o.Advance(10 * time.Second)
	wantDue(1, "scheduled and due")
	o.Pass("promote_scheduled")
	wantDue(0, "promoted")

	offers := w.claim(1)
	wantOffer(t, offers, first)
	wantDue(0, "offered")
	o.StayFresh(2 * time.Minute)
	wantDue(1, "an offer that ran out")
	o.Pass("recover_leases")
	wantDue(0, "recovered")

	submit(t, o, "mail", "deadline_at", time.Now().Add(o.Offset()+time.Minute))
	wantDue(0, "a deadline")
	o.Advance(2 * time.Minute)
	wantDue(1, "a deadline that is past")
	o.Pass("expire_deadlines")
	wantDue(0, "failed by its deadline")

	openWorker(t, o, "w", "mail")
	wantDue(1, "a superseded instance")
	o.Pass("sweep_instances")
	wantDue(0, "swept")

	other := openWorker(t, o, "other", "mail")
	offer := other.claimOne()
	o.Call("POST", "/v1/queues/"+queue+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
	wantItem(t, other.start(offer), 409, "start_refused")
	wantDue(1, "a blocked task")
	resume(t, o, queue, "r")
	o.Pass("unblock_gates")
	wantDue(0, "unblocked")
}
