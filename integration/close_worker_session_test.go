package integration_test

import (
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

const closePath = "/v1/worker-sessions:close"

func TestCloseWorkerSessionFencesAtOnceAndTheSweepEndsWhatIsLeft(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	for range 3 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(2)
	wantItem(t, w.start(offers[0]), 200, "")
	first := w.call(closePath, nil).Want(t, 200)
	var got struct {
		InstanceID string `json:"instance_id"`
		Epoch      int64  `json:"epoch"`
		State      string `json:"state"`
	}
	if first.JSON(t, &got); got.InstanceID != w.instance || got.Epoch != w.epoch || got.State != "closed" {
		t.Fatalf("%+v", got)
	}
	if again := w.call(closePath, nil).Want(t, 200); string(again.Body) != string(first.Body) {
		t.Fatalf("a repeat got %s, want %s", again.Body, first.Body)
	}
	for path, body := range map[string]map[string]any{
		"/v1/claims":             {"claim_seq": 9, "max": 1},
		"/v1/attempts:start":     {"items": []any{offers[1].item()}},
		"/v1/attempts:heartbeat": {"items": []any{}},
		"/v1/attempts:release":   {"claim_seq": w.seq},
	} {
		w.call(path, body).WantProblem(t, 409, "session_superseded")
	}
	late := w.succeed(offers[0], `"late"`)
	wantItem(t, late, 409, "session_superseded")
	if late.EvidenceID == "" {
		t.Fatal("a result after the close was not kept")
	}
	if n := o.Pass("sweep_instances"); n != 2 {
		t.Fatalf("%d attempts swept, want 2", n)
	}
	wantAttempt(t, o, offers[0].AttemptID, "lost", "session_superseded")
	wantAttempt(t, o, offers[1].AttemptID, "released", "session_superseded")
	if got := wantState(t, o, offers[1].TaskID, "queued"); got.Waiting.Kind != "ready" || got.AttemptsUsed != 0 {
		t.Fatalf("never started: %+v", got)
	}
	w.call(closePath, nil).Want(t, 200) // still, after the sweep
}

func TestAClosedIdentityIsOpenedByANewIncarnation(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	w.call(closePath, nil).Want(t, 200)
	next := openWorker(t, o, "w", "mail")
	if next.epoch != w.epoch+1 {
		t.Fatalf("epoch %d after %d", next.epoch, w.epoch)
	}
	w.call(closePath, nil).WantProblem(t, 409, "session_superseded")
	next.run()
	if n := o.Pass("sweep_instances"); n != 0 {
		t.Fatalf("the sweep of the closed incarnation ended %d attempts of the new one", n)
	}
}

func TestCloseWorkerSessionRefuses(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	w := openWorker(t, o, "w", "mail")
	wantForeign(t, w, closePath, nil)
	for _, epoch := range []int64{w.epoch + 1} {
		other := *w
		other.epoch = epoch
		other.call(closePath, nil).WantProblem(t, 409, "session_superseded")
	}
	zero := *w
	zero.epoch = 0
	zero.call(closePath, nil).WantProblem(t, 400, "invalid_request")
	w.call(closePath, map[string]any{"reason": "x"}).WantProblem(t, 400, "invalid_request")
	w.claim(1) // it is open still
}

func TestClosesAtOnceAreOneClose(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	w.claimOne()
	replies := race(t, 10, func(i int) (harness.Reply, error) { return w.on(i%2).send(closePath, nil) })
	for _, r := range replies {
		if string(r.Want(t, 200).Body) != string(replies[0].Body) {
			t.Fatalf("%s and %s", r.Body, replies[0].Body)
		}
	}
	swept := race(t, 2, func(i int) (int, error) { return pass(t, o, "sweep_instances", i) })
	if swept[0]+swept[1] > 1 || swept[0]+swept[1]+o.Pass("sweep_instances") != 1 {
		t.Fatalf("swept %v", swept)
	}
}
