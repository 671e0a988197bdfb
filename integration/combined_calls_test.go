package integration_test

import (
	"fmt"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// Concurrent calls share transactions; what is wrong with one of them is its own affair.

func TestAHeldKeyDelaysOnlyItsOwnDuplicates(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	wired, w := addWired(t, o, harness.Options{})
	held := w.stop(harness.Commit)
	first := send(t, wired.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("held"))
	within(t, held.reached, "the first try to hold its key")
	duplicate := send(t, o.URL(), o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("held"))
	// On the replica where the duplicate waits, all others are answered while it does.
	race(t, 20, func(caller int) (struct{}, error) {
		for k := range 10 {
			r, err := harness.Do(t.Context(), o.URL(), o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(fmt.Sprint("free-", caller, "-", k)))
			if _, err := parse[receipt](r, err, 201); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	held.goOn()
	a, b := first().Want(t, 201), duplicate().Want(t, 201)
	if string(a.Body) != string(b.Body) || b.Header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("the duplicate got %s, the first try %s", b.Body, a.Body)
	}
	if n := o.Count("pulse_tasks"); n != 201 {
		t.Fatalf("%d tasks, want 201", n)
	}
}

func TestOneHeldSessionStallsOnlyItsOwnCalls(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	submitMany(t, o, "q", 9)
	workers := make([]*worker, 9)
	offers := make([]offer, 9)
	for i := range workers {
		workers[i] = openWorker(t, o, fmt.Sprint("w", i), "q")
		offers[i] = workers[i].claimOne()
	}
	tx, err := o.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SELECT id FROM pulse_worker_sessions WHERE worker_name = 'w0' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	body := func(i int) string {
		return fmt.Sprintf(`{"instance_id":%q,"epoch":%d,"items":[{"attempt_id":%q,"token":%q}]}`, workers[i].instance, workers[i].epoch, offers[i].AttemptID, offers[i].Token)
	}
	stalled := send(t, o.URL(), o.Key, "POST", startPath, body(0))
	race(t, 8, func(caller int) (struct{}, error) {
		r, err := harness.Do(t.Context(), o.URL(), o.Key, "POST", startPath, body(caller+1))
		got, err := parse[struct{ Items []itemResult }](r, err, 200)
		if err == nil && got.Items[0].Status != 200 {
			err = fmt.Errorf("started with %d %s", got.Items[0].Status, got.Items[0].Problem.Code)
		}
		return struct{}{}, err
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	var got struct{ Items []itemResult }
	stalled().Want(t, 200).JSON(t, &got)
	wantItem(t, got.Items[0], 200, "")
}

func TestASupersededWorkerIsRefusedAmongOthersInOneBatch(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	submitMany(t, o, "q", 16)
	old := openWorker(t, o, "same", "q")
	stale := old.claimOne()
	openWorker(t, o, "same", "q")
	current := openWorker(t, o, "current", "q")
	offers := current.claim(15)
	race(t, 16, func(caller int) (struct{}, error) {
		w, a, want := old, stale, 409
		if caller < 15 {
			w, a, want = current, offers[caller], 200
		}
		r, err := harness.Do(t.Context(), o.URL(), o.Key, "POST", startPath, map[string]any{"instance_id": w.instance, "epoch": w.epoch, "items": []any{a.item()}})
		if err == nil && r.Status != want {
			err = fmt.Errorf("caller %d: %d %s", caller, r.Status, r.Body)
		}
		return struct{}{}, err
	})
	if n := o.Count("pulse_attempts WHERE state = 'running'"); n != 15 {
		t.Fatalf("%d attempts run, want 15", n)
	}
}
