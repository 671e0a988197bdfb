package integration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

const heartbeatPath = "/v1/attempts:heartbeat"

func (w *worker) beatWith(o offer, progress string) itemResult {
	w.t.Helper()
	return w.items(heartbeatPath, o.item("progress", rawJSON(progress)))[0]
}

func TestHeartbeatAttemptsRenewsFromNowAndKeepsProgress(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("lease_ms", 7000))
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	running := w.claimOne()
	began := w.start(running)
	tag := getTask(t, o, id).Etag
	o.Advance(5 * time.Second)
	first := w.beatWith(running, `{"done":0.10}`)
	wantItem(t, first, 200, "")
	if gain := first.Attempt.LeaseUntil.Sub(began.Attempt.LeaseUntil); gain < 5*time.Second || first.Attempt.CancelRequested {
		t.Fatalf("renewed by %s: %+v", gain, first.Attempt)
	}
	second := w.heartbeat(running)
	if wantItem(t, second, 200, ""); second.Attempt.LeaseUntil.Before(first.Attempt.LeaseUntil) {
		t.Fatalf("%s after %s", second.Attempt.LeaseUntil, first.Attempt.LeaseUntil)
	}
	got := getAttempt(t, o, running.AttemptID)
	if got.Progress != `{"done":0.10}` || !got.LeaseUntil.Equal(second.Attempt.LeaseUntil) {
		t.Fatalf("%+v", got)
	}
	if now := getTask(t, o, id).Etag; now != tag {
		t.Fatalf("a heartbeat changed the tag from %s to %s", tag, now)
	}
	if got := countEvents(t, o, running.AttemptID); got["attempt.offered"] != 1 || got["attempt.started"] != 1 || len(got) != 2 {
		t.Fatalf("events %v", got)
	}
	w.call(heartbeatPath, map[string]any{"items": []any{}}).Want(t, 200)
}

func TestHeartbeatAttemptsTellsWhatShouldStop(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	for range 5 {
		submit(t, o, "mail")
	}
	overdue := submit(t, o, "mail", "deadline_at", time.Now().Add(time.Minute))
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(6)
	asked, finished, offered, lost, alive, late := offers[0], offers[1], offers[2], offers[3], offers[4], offers[5]
	for _, a := range []offer{asked, finished, lost, alive, late} {
		wantItem(t, w.start(a), 200, "")
	}
	wantItem(t, w.succeed(finished, `1`), 200, "")
	o.Call("POST", "/v1/tasks/"+asked.TaskID+":cancel", nil, harness.Key("c")).Want(t, 200)
	o.StayFresh(6 * time.Second)
	for _, a := range []offer{asked, offered, alive, late} {
		change(t, o, "UPDATE pulse_attempts SET lease_until = NOW(6) + INTERVAL 1 DAY WHERE id = UNHEX(?)", a.AttemptID)
	}
	if n := o.Pass("recover_leases"); n != 1 {
		t.Fatalf("%d leases lost, want 1", n)
	}
	o.Advance(time.Minute)
	if n := o.Pass("expire_deadlines"); n != 1 || getTask(t, o, overdue).State != "failed" {
		t.Fatalf("%d deadlines, want 1", n)
	}
	got := w.items(heartbeatPath, asked.item(), finished.item(), offered.item(), lost.item(), alive.item(), late.item(),
		map[string]any{"attempt_id": newInstance(), "token": "t"},
		map[string]any{"attempt_id": alive.AttemptID, "token": asked.Token},
		alive.item("progress", rawJSON(`"`+strings.Repeat("x", 64<<10)+`"`)),
		alive.item("progress", rawJSON(`"`+strings.Repeat("x", 64<<10-2)+`"`)),
		alive.item("more", 1))
	for i, want := range []struct {
		status int
		code   string
	}{
		{200, ""}, {409, "stale_attempt"}, {409, "stale_attempt"}, {409, "lease_lost"}, {200, ""}, {409, "lease_lost"},
		{404, "not_found"}, {409, "stale_attempt"}, {413, "payload_too_large"}, {200, ""}, {400, "invalid_request"},
	} {
		if got[i].Status != want.status || got[i].Problem.Code != want.code {
			t.Errorf("item %d: %d %s (%s), want %d %s", i, got[i].Status, got[i].Problem.Code, got[i].Problem.Detail, want.status, want.code)
		}
	}
	if !got[0].Attempt.CancelRequested || got[4].Attempt.CancelRequested {
		t.Fatalf("%+v and %+v", got[0].Attempt, got[4].Attempt)
	}
	if p := getAttempt(t, o, alive.AttemptID).Progress; len(p) != 64<<10 {
		t.Fatalf("progress of %d bytes was kept", len(p))
	}
	wantForeign(t, w, heartbeatPath, map[string]any{"items": []any{alive.item()}})
}

func TestALeasePastItsEndIsRenewedUntilRecoveryTakesIt(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	running := w.run()
	o.Advance(time.Hour)
	wantItem(t, w.heartbeat(running), 200, "")
	o.StayFresh(4 * time.Second)
	wantItem(t, w.heartbeat(running), 200, "")
	o.StayFresh(4 * time.Second)
	if n := o.Pass("recover_leases"); n != 0 {
		t.Fatal("a renewed lease was lost")
	}
	o.StayFresh(2 * time.Second)
	if n := o.Pass("recover_leases"); n != 1 {
		t.Fatal("a lease past its end was not lost")
	}
	wantItem(t, w.heartbeat(running), 409, "lease_lost")
}

func TestOneHeldAttemptInAHeartbeatHarmsOnlyItself(t *testing.T) {
	r := &recorder{}
	o := harness.Start(t, harness.Options{Between: harness.Around(r.around)})
	o.CreateQueue("mail", policy())
	for range 3 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(3)
	for _, i := range w.items(startPath, offers[0].item(), offers[1].item(), offers[2].item()) {
		wantItem(t, i, 200, "")
	}
	before := getAttempt(t, o, offers[2].AttemptID).LeaseUntil
	o.Advance(time.Second)
	release := holdRows(t, o, "pulse_attempts WHERE id = UNHEX(?)", offers[1].AttemptID)
	r.take()
	got := w.items(heartbeatPath, offers[0].item(), offers[1].item("progress", 1), offers[2].item("progress", 2))
	wantItem(t, got[0], 200, "")
	wantItem(t, got[1], 503, "unavailable") // it comes again by itself at the next tick, and nobody waits for it
	wantItem(t, got[2], 200, "")
	if asked := r.take(); slices.Contains(asked, "AwaitAttempts") || !slices.Contains(asked, "LockAttempts") {
		t.Fatalf("the call waited for the held row: %v", asked)
	}
	if got := getAttempt(t, o, offers[2].AttemptID); !got.LeaseUntil.After(before) || got.Progress != "2" {
		t.Fatalf("the neighbour's lease went from %s to %s", before, got.LeaseUntil)
	}
	release()
	got = w.items(heartbeatPath, offers[0].item(), offers[1].item("progress", 1), offers[1].item("progress", 3))
	for _, i := range got {
		wantItem(t, i, 200, "")
	}
	if got := getAttempt(t, o, offers[1].AttemptID); got.Progress != "3" {
		t.Fatalf("progress %s, want that of the last of two in one call", got.Progress)
	}
}

func TestHeartbeatsAndRecoveryAtOnceKeepOrLoseEachLease(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	won := map[string]int{}
	for range 10 {
		submit(t, o, "mail")
		running := w.run()
		o.StayFresh(6 * time.Second)
		var beat itemResult
		moved := 0
		race(t, 2, func(i int) (_ struct{}, err error) {
			if i == 0 {
				beat, err = w.on(1).sendItem(heartbeatPath, running.item())
				return
			}
			moved, err = pass(t, o, "recover_leases", 0)
			return
		})
		got := getAttempt(t, o, running.AttemptID)
		switch {
		case beat.Status == 200 && moved == 0 && got.State == "running":
			won["heartbeat"]++
			wantItem(t, w.succeed(running, `1`), 200, "")
		case beat.Problem.Code == "lease_lost" && moved == 1 && got.State == "lost":
			won["recovery"]++
		default:
			t.Fatalf("heartbeat %d %s, %d lost, attempt %s", beat.Status, beat.Problem.Code, moved, got.State)
		}
	}
	t.Log(won)
}
