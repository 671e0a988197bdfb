package integration_test

import (
	"slices"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestReleaseAttemptsGivesAnOfferBackWithoutUsingAnAttempt(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail", "max_attempts", 1)
	w := openWorker(t, o, "w", "mail")
	offered := w.claimOne()
	wantItem(t, w.release(offered, "no_handler"), 200, "")
	if got := wantState(t, o, id, "queued"); got.AttemptsUsed != 0 || got.Generation != 1 || got.Waiting.Kind != "ready" || got.Failure.Code != "" {
		t.Fatalf("%+v", got)
	}
	wantAttempt(t, o, offered.AttemptID, "released", "no_handler")
	wantItem(t, w.release(offered, "no_handler"), 200, "") // a repeat
	again := w.run()
	if again.Generation != 2 || again.AttemptNumber != 1 {
		t.Fatalf("%+v", again)
	}
	wantItem(t, w.release(offered, "no_handler"), 200, "") // a late repeat gives nothing of the next offer back
	wantItem(t, w.succeed(again, `1`), 200, "")
}

func TestUnstartedOffersWaitFromTheSecondInARowOn(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("backoff_initial_ms", 1000, "backoff_max_ms", 3000))
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	wantWait := func(bound time.Duration) {
		t.Helper()
		got := wantState(t, o, id, "queued")
		if bound == 0 {
			if got.Waiting.Kind != "ready" {
				t.Fatalf("waits: %+v", got.Waiting)
			}
			return
		}
		if wait := got.Waiting.Until.Sub(got.UpdatedAt); got.Waiting.Kind != "scheduled" || wait > bound || wait < bound*4/5 {
			t.Fatalf("waits %s (%+v), want %s less at most a fifth", wait, got.Waiting, bound)
		}
		ready(o, bound)
	}
	w.release(w.claimOne(), "no_handler")
	wantWait(0)
	w.release(w.claimOne(), "no_handler")
	wantWait(time.Second)
	w.release(w.claimOne(), "shutdown") // neither counts nor waits
	wantWait(0)
	w.release(w.claimOne(), "no_handler")
	wantWait(2 * time.Second)
	w.release(w.claimOne(), "no_handler")
	wantWait(3 * time.Second)
	w.release(w.claimOne(), "no_handler")
	wantWait(3 * time.Second)
	// A start ends the row of unstarted offers.
	receiptOf(t, w.fail(w.run(), true))
	ready(o, time.Minute)
	w.release(w.claimOne(), "no_handler")
	wantWait(0)
	if got := getTask(t, o, id); got.AttemptsUsed != 1 || got.Failure.Code != "boom" {
		t.Fatalf("%+v", got)
	}
}

func TestReleaseAttemptsRefusesItemByItem(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	for range 7 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(7)
	good, running, done, expired, cancelled, last, lost := offers[0], offers[1], offers[2], offers[3], offers[4], offers[5], offers[6]
	for _, a := range []offer{running, done, lost} {
		wantItem(t, w.start(a), 200, "")
	}
	wantItem(t, w.succeed(done, `1`), 200, "")
	o.Call("POST", "/v1/tasks/"+cancelled.TaskID+":cancel", nil, harness.Key("c")).Want(t, 200)
	for _, a := range []offer{good, running, last} {
		change(t, o, "UPDATE pulse_attempts SET lease_until = NOW(6) + INTERVAL 1 DAY WHERE id = UNHEX(?)", a.AttemptID)
	}
	o.StayFresh(6 * time.Second)
	if n := o.Pass("recover_leases"); n != 2 {
		t.Fatalf("%d attempts ended, want 2", n)
	}
	got := w.items(releasePath, good.item(), running.item(), done.item(), expired.item(), cancelled.item(), lost.item(),
		map[string]any{"attempt_id": last.AttemptID, "token": good.Token},
		map[string]any{"attempt_id": newInstance(), "token": good.Token},
		map[string]any{"attempt_id": last.AttemptID},
		last.item("reason", "two words"), good.item("reason", "again"))
	for i, want := range []struct {
		status int
		code   string
	}{
		{200, ""}, {409, "state_conflict"}, {409, "state_conflict"}, {409, "stale_attempt"}, {409, "stale_attempt"}, {409, "state_conflict"},
		{409, "stale_attempt"}, {404, "not_found"}, {400, "invalid_request"}, {400, "invalid_request"}, {200, ""},
	} {
		if got[i].Status != want.status || got[i].Problem.Code != want.code {
			t.Errorf("item %d: %d %s (%s), want %d %s", i, got[i].Status, got[i].Problem.Code, got[i].Problem.Detail, want.status, want.code)
		}
	}
	wantState(t, o, good.TaskID, "queued")
	wantState(t, o, running.TaskID, "running")
	wantState(t, o, last.TaskID, "offered")
	wantForeign(t, w, releasePath, map[string]any{"items": []any{last.item()}})
	w.call(releasePath, map[string]any{"items": []any{last.item()}, "claim_seq": 1}).WantProblem(t, 400, "invalid_request")
	w.call(releasePath, nil).WantProblem(t, 400, "invalid_request")
	w.call(releasePath, map[string]any{"claim_seq": 0}).WantProblem(t, 400, "invalid_request")
	w.call(releasePath, map[string]any{"items": slices.Repeat([]any{last.item()}, 1001)}).WantProblem(t, 400, "invalid_request")
	wantState(t, o, last.TaskID, "offered")
}

func TestReleasingAClaimIsOpenToItsOwnWorkerOnly(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	offered := w.claimOne()
	wantForeign(t, w, releasePath, map[string]any{"claim_seq": w.seq})
	other := openWorker(t, o, "other", "mail")
	var got struct {
		Items []itemResult `json:"items"`
	}
	// The same number of another worker is another claim.
	if other.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200).JSON(t, &got); len(got.Items) != 0 {
		t.Fatalf("%d offers of a stranger released", len(got.Items))
	}
	wantItem(t, w.start(offered), 200, "")
}

func TestStartAndReleaseOfOneOfferAtOnceHaveOneWinner(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	won := map[string]int{}
	for range 15 {
		id := submit(t, o, "mail")
		offered := w.claimOne()
		got := race(t, 3, func(i int) (itemResult, error) {
			if i == 0 {
				return w.on(0).sendItem(startPath, offered.item())
			}
			return w.on(i%2).sendItem(releasePath, offered.item("reason", "shutdown"))
		})
		start, releases := got[0], got[1:]
		for _, r := range releases {
			switch {
			case start.Status == 200 && r.Problem.Code == "state_conflict":
			case start.Problem.Code == "stale_attempt" && r.Status == 200:
			default:
				t.Fatalf("start %d %s, release %d %s", start.Status, start.Problem.Code, r.Status, r.Problem.Code)
			}
		}
		if start.Status == 200 {
			won["start"]++
			wantItem(t, w.succeed(offered, `1`), 200, "")
			continue
		}
		won["release"]++
		if got := countEvents(t, o, offered.AttemptID); got["attempt.ended"] != 1 {
			t.Fatalf("events %v", got)
		}
		wantState(t, o, id, "queued")
		o.Call("POST", "/v1/tasks/"+id+":cancel", nil, harness.Key(id)).Want(t, 200)
	}
	t.Log(won)
}
