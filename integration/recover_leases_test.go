package integration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestRecoverLeasesGivesBackOffersThatRanOut(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("offer_timeout_ms", 2000))
	id := submit(t, o, "mail", "max_attempts", 1)
	w := openWorker(t, o, "w", "mail")
	for n := 1; n <= 3; n++ {
		offered := w.claimOne()
		o.StayFresh(1500 * time.Millisecond)
		if n := o.Pass("recover_leases"); n != 0 {
			t.Fatal("an offer was taken back before its time")
		}
		o.StayFresh(2 * time.Second)
		if n := o.Pass("recover_leases"); n != 1 {
			t.Fatalf("%d offers taken back, want 1", n)
		}
		wantAttempt(t, o, offered.AttemptID, "expired", "offer_expired")
		got := wantState(t, o, id, "queued")
		if got.AttemptsUsed != 0 || got.Failure.Code != "" || (got.Waiting.Kind == "scheduled") != (n > 1) {
			t.Fatalf("after %d unstarted offers: %+v", n, got)
		}
		ready(o, time.Minute)
	}
}

func TestRecoverLeasesLosesAttemptsByThePolicyOfTheirQueue(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("again", policy())
	o.CreateQueue("money", policy("unknown_outcome", "review"))
	again := submit(t, o, "again", "max_attempts", 2)
	money := submit(t, o, "money")
	w := openWorker(t, o, "w", "again", "money")
	first := w.run()
	w.run()
	o.StayFresh(6 * time.Second)
	if n := o.Pass("recover_leases"); n != 2 {
		t.Fatalf("%d leases lost, want 2", n)
	}
	wantAttempt(t, o, first.AttemptID, "lost", "lease_lost")
	if got := wantState(t, o, again, "queued"); got.Waiting.Kind != "scheduled" || got.AttemptsUsed != 1 || got.Failure.Code != "lease_lost" {
		t.Fatalf("%+v", got)
	}
	if got := wantState(t, o, money, "review"); got.AttemptsUsed != 1 || got.Failure.Code != "lease_lost" {
		t.Fatalf("%+v", got)
	}
	if got := countEvents(t, o, money); got["task.parked"] != 1 {
		t.Fatalf("events %v", got)
	}
	ready(o, time.Minute)
	w.run()
	o.StayFresh(6 * time.Second)
	o.Pass("recover_leases")
	if got := wantState(t, o, again, "failed"); got.AttemptsUsed != 2 || got.Failure.Code != "lease_lost" {
		t.Fatalf("with its budget spent: %+v", got)
	}
}

func TestRecoveryLeavesALeaseThatWasRenewedAfterItLooked(t *testing.T) {
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{Between: harness.Around(b.around)})
	o.AddReplica(harness.Options{})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail").on(1)
	running := w.run()
	o.StayFresh(6 * time.Second)
	reached, goOn := b.next(harness.Begin) // it has its list of what is due
	defer goOn()
	recovery := later(t, func() (int, error) { return pass(t, o, "recover_leases", 0) })
	within(t, reached, "recovery to begin")
	wantItem(t, w.heartbeat(running), 200, "")
	goOn()
	if n := recovery(); n != 0 {
		t.Fatal("a renewed lease was lost")
	}
	wantItem(t, w.succeed(running, `1`), 200, "")
}

// The list was read from one server and the transaction begins on another, with another clock: what the row of this replica says there decides.
func TestRecoveryJudgesByTheServerItsTransactionIsOn(t *testing.T) {
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{Between: harness.Around(b.around)})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	running := w.run()
	o.StayFresh(6 * time.Second)
	reached, goOn := b.next(harness.Begin)
	defer goOn()
	recovery := later(t, func() (int, error) { return pass(t, o, "recover_leases", 0) })
	within(t, reached, "recovery to begin")
	exec(t, o.DB, "UPDATE orbit_replicas SET server_uuid = REPEAT('0', 36)")
	goOn()
	if n := recovery(); n != 0 {
		t.Fatal("a lease was lost by a clock that this replica has not watched")
	}
	wantItem(t, w.succeed(running, `1`), 200, "")
}

// The service was away for longer than all leases; when it returns its workers are given their time to come back.
func TestNothingIsLostWhenTheServiceReturnsAfterAnOutage(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("lease_ms", 20_000, "offer_timeout_ms", 20_000))
	for range 4 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(4)
	for _, a := range offers[:3] {
		wantItem(t, w.start(a), 200, "")
	}
	o.StayFresh(time.Minute)
	for _, a := range offers[:3] {
		wantItem(t, w.heartbeat(a), 200, "") // the last before the outage
	}
	o.Advance(time.Hour)
	for range 19 { // it is back, but not for as long as a lease
		if n := o.Pass("recover_leases"); n != 0 {
			t.Fatalf("%d attempts ended after the outage", n)
		}
		o.StayFresh(time.Second)
	}
	wantItem(t, w.heartbeat(offers[0]), 200, "")
	wantItem(t, w.succeed(offers[1], `1`), 200, "")
	wantItem(t, w.start(offers[3]), 200, "")
	// Whoever does not come back is lost in the end, and nobody else.
	o.StayFresh(3 * time.Second)
	if n := o.Pass("recover_leases"); n != 1 {
		t.Fatalf("%d attempts ended, want 1", n)
	}
	wantAttempt(t, o, offers[2].AttemptID, "lost", "lease_lost")
	wantAttempt(t, o, offers[0].AttemptID, "running", "")
	wantAttempt(t, o, offers[3].AttemptID, "running", "")
}

func TestAReplicaJudgesOnlyLeasesItCouldHaveSeenRenewed(t *testing.T) {
	start := func(t *testing.T, replicas int) (*harness.Orbit, offer) {
		o := harness.Start(t, harness.Options{Replicas: replicas})
		o.CreateQueue("mail", policy("lease_ms", 10_000))
		submit(t, o, "mail")
		running := openWorker(t, o, "w", "mail").run()
		return o, running
	}
	wantLost := func(t *testing.T, o *harness.Orbit, want int, replica ...int) {
		t.Helper()
		if n := o.Pass("recover_leases", replica...); n != want {
			t.Fatalf("%d leases lost, want %d", n, want)
		}
	}
	t.Run("alive for less than the lease", func(t *testing.T) {
		o, _ := start(t, 1)
		o.Advance(time.Hour)
		o.StayFresh(9 * time.Second)
		wantLost(t, o, 0)
		o.StayFresh(2 * time.Second)
		wantLost(t, o, 1)
	})
	t.Run("never alive", func(t *testing.T) {
		o, _ := start(t, 1)
		o.Advance(time.Hour)
		wantLost(t, o, 0)
	})
	t.Run("silent at the moment", func(t *testing.T) {
		o, _ := start(t, 1)
		o.StayFresh(time.Minute)
		o.Advance(6 * time.Second)
		wantLost(t, o, 0)
	})
	t.Run("a gap between two renewals", func(t *testing.T) {
		o, _ := start(t, 1)
		o.StayFresh(9 * time.Second)
		o.Advance(6 * time.Second)
		o.StayFresh(9 * time.Second)
		wantLost(t, o, 0)
		o.StayFresh(2 * time.Second)
		wantLost(t, o, 1)
	})
	t.Run("another server since", func(t *testing.T) {
		o, _ := start(t, 1)
		o.StayFresh(time.Minute)
		change(t, o, "UPDATE orbit_replicas SET server_uuid = UUID()")
		wantLost(t, o, 0)
		o.StayFresh(9 * time.Second)
		wantLost(t, o, 0)
		o.StayFresh(2 * time.Second)
		wantLost(t, o, 1)
	})
	t.Run("the clock of the server went back", func(t *testing.T) {
		o, _ := start(t, 1)
		o.StayFresh(time.Minute)
		o.Advance(-30 * time.Second)
		o.StayFresh(9 * time.Second)
		wantLost(t, o, 0)
	})
	t.Run("one of two replicas", func(t *testing.T) {
		o, _ := start(t, 2)
		o.Pass("renew_replica", 1)
		o.StayFresh(15*time.Second, 0) // the other one falls silent
		o.Pass("renew_replica", 1)
		wantLost(t, o, 0, 1)
		wantLost(t, o, 1, 0)
	})
	t.Run("forgotten meanwhile", func(t *testing.T) {
		o, _ := start(t, 2)
		o.StayFresh(time.Minute, 0)
		o.Advance(11 * time.Minute)
		o.Pass("renew_replica", 1)
		if n := o.Pass("forget_replicas", 1); n != 1 {
			t.Fatalf("%d replicas forgotten, want 1", n)
		}
		wantLost(t, o, 0, 0)
		o.StayFresh(11*time.Second, 0)
		wantLost(t, o, 1, 0)
	})
	t.Run("a shorter lease beside a longer one", func(t *testing.T) {
		o, long := start(t, 1)
		o.CreateQueue("short", policy("lease_ms", 3000))
		submit(t, o, "short")
		openWorker(t, o, "w2", "short").run()
		o.Advance(time.Hour)
		o.StayFresh(4 * time.Second)
		wantLost(t, o, 1)
		wantAttempt(t, o, long.AttemptID, "running", "")
	})
}

func TestPassesOfManyReplicasAtOnceEndEachAttemptOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	for range 60 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(60)
	var items []map[string]any
	for _, a := range offers[:30] {
		items = append(items, a.item())
	}
	w.items(startPath, items...)
	for step := 0; step < 7; step++ {
		o.StayFresh(0, 0)
		o.StayFresh(time.Second, 1)
	}
	o.Pass("renew_replica", 0)
	moved := race(t, 6, func(i int) (int, error) { return pass(t, o, "recover_leases", i%2) })
	sum := o.Pass("recover_leases")
	for _, n := range moved {
		sum += n
	}
	if sum != 60 {
		t.Fatalf("%d moved (%v at once), want 60", sum, moved)
	}
	for _, a := range offers {
		if n := countEvents(t, o, a.AttemptID)["attempt.ended"]; n != 1 {
			t.Fatalf("an attempt ended %d times", n)
		}
	}
}

func TestOneHeldRowDoesNotKeepRecoveryFromTheOthers(t *testing.T) {
	for held, rows := range map[string]string{"the attempt": "pulse_attempts WHERE id = UNHEX(?)", "its task": "pulse_tasks WHERE id = (SELECT task_id FROM pulse_attempts WHERE id = UNHEX(?))"} {
		t.Run(held, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			o.CreateQueue("mail", policy())
			for range 3 {
				submit(t, o, "mail")
			}
			w := openWorker(t, o, "w", "mail")
			offers := []offer{w.run(), w.run(), w.run()}
			release := holdRows(t, o, rows, offers[0].AttemptID)
			o.StayFresh(6 * time.Second)
			if n := o.Pass("recover_leases"); n != 2 {
				t.Fatalf("%d leases lost beside a held one, want 2", n)
			}
			wantAttempt(t, o, offers[0].AttemptID, "running", "")
			release()
			if n := o.Pass("recover_leases"); n != 1 {
				t.Fatalf("%d leases lost, want the one that was held", n)
			}
		})
	}
}

func TestRecoveryStaysInsideEachTenant(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	_, tenant := o.Tenant("other-tenant")
	var lost []string
	for _, key := range []string{o.Key, tenant} {
		o.CallAt(o.URL(), key, "POST", "/v1/queues", map[string]any{"name": "mail", "unknown_outcome": "review", "lease_ms": 5000}, harness.Key("q")).Want(t, 201)
		o.CallAt(o.URL(), key, "POST", "/v1/tasks", map[string]any{"queue": "mail", "type": "t"}, harness.Key("k")).Want(t, 201)
		w := &worker{t: t, o: o, url: o.URL(), key: key, instance: newInstance()}
		w.open("w", "mail")
		lost = append(lost, w.run().TaskID)
	}
	o.StayFresh(6 * time.Second)
	if n := o.Pass("recover_leases"); n != 2 {
		t.Fatalf("%d leases lost, want 2", n)
	}
	wantState(t, o, lost[0], "review")
	o.CallAt(o.URL(), tenant, "GET", "/v1/tasks/"+lost[0], nil).WantProblem(t, 404, "not_found")
	var other task
	o.CallAt(o.URL(), tenant, "GET", "/v1/tasks/"+lost[1], nil).Want(t, 200).JSON(t, &other)
	if other.State != "review" || slices.Contains(lost[:1], other.ID) {
		t.Fatalf("%+v", other)
	}
}
