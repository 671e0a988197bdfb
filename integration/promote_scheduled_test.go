package integration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestPromoteScheduledMakesTasksReadyWhenTheyAreDue(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	later := submit(t, o, "mail", "delay_ms", 120_000)
	at := soon(t, o)
	atTime := submit(t, o, "mail", "run_at", at)
	delayed := submit(t, o, "mail", "delay_ms", 30_000)
	now := submit(t, o, "mail", "delay_ms", 0)
	if got := wantState(t, o, atTime, "queued"); got.Waiting.Kind != "scheduled" || !got.Waiting.Until.Equal(at) {
		t.Fatalf("%+v", got)
	}
	wantPromoted := func(want int) {
		t.Helper()
		if n := o.Pass("promote_scheduled"); n != want {
			t.Fatalf("%d tasks became ready, want %d", n, want)
		}
	}
	wantPromoted(0)
	tag := getTask(t, o, delayed).Etag
	o.Advance(31 * time.Second)
	wantPromoted(1)
	if got := wantState(t, o, delayed, "queued"); got.Waiting.Kind != "ready" || got.Etag != tag {
		t.Fatalf("%+v, the tag was %s", got, tag)
	}
	o.Advance(30 * time.Second)
	wantPromoted(1)
	w := openWorker(t, o, "w", "mail")
	if got := taskIDs(w.claim(10)); !slices.Equal(got, []string{now, delayed, atTime}) {
		t.Fatalf("claimed %v, want the order in which they were due", got)
	}
	wantState(t, o, later, "queued")
	wantPromoted(0)
}

func TestOneHeldTaskDoesNotKeepOthersFromBecomingReady(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	held := submit(t, o, "mail", "delay_ms", 1000)
	other := submit(t, o, "mail", "delay_ms", 2000)
	release := holdRows(t, o, "pulse_scheduled WHERE task_id = UNHEX(?)", held)
	o.Advance(3 * time.Second)
	if n := o.Pass("promote_scheduled"); n != 1 {
		t.Fatalf("%d tasks became ready beside a held one, want 1", n)
	}
	if got := getTask(t, o, other); got.Waiting.Kind != "ready" {
		t.Fatalf("%+v", got)
	}
	release()
	if n := o.Pass("promote_scheduled"); n != 1 {
		t.Fatalf("%d tasks became ready, want the one that was held", n)
	}
}

func TestPromotionsAndCancelsAtOnceMoveEachTaskOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	ids := make([]string, 40)
	for i := range ids {
		ids[i] = submit(t, o, "mail", "delay_ms", 1000+i%2)
	}
	o.Advance(2 * time.Second)
	moved := race(t, len(ids)/2+4, func(i int) (int, error) {
		if i < len(ids)/2 {
			r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks/"+ids[i]+":cancel", nil, harness.Key(fmt.Sprint("c", i)))
			_, err = parse[task](r, err, 200)
			return 0, err
		}
		return pass(t, o, "promote_scheduled", i%2)
	})
	sum := o.Pass("promote_scheduled")
	for _, n := range moved {
		sum += n
	}
	if sum > len(ids) {
		t.Fatalf("%d promotions of %d tasks", sum, len(ids))
	}
	w := openWorker(t, o, "w", "mail")
	got := taskIDs(w.claim(100))
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(ids[len(ids)/2:]))) {
		t.Fatalf("%d offers, want those %d that nobody cancelled", len(got), len(ids)/2)
	}
	for _, id := range ids[:len(ids)/2] {
		wantState(t, o, id, "cancelled")
	}
}

func TestPromotionSpansTenantsAndBatches(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	_, tenant := o.Tenant("other-tenant")
	for _, key := range []string{o.Key, tenant} {
		o.CallAt(o.URL(), key, "POST", "/v1/queues", map[string]any{"name": "mail"}, harness.Key("q")).Want(t, 201)
		var items []any
		for i := range 130 {
			items = append(items, map[string]any{"queue": "mail", "type": "t", "delay_ms": 1000, "idempotency_key": fmt.Sprint("k", i)})
		}
		o.CallAt(o.URL(), key, "POST", "/v1/tasks:batch", map[string]any{"items": items}).Want(t, 200)
	}
	o.Advance(2 * time.Second)
	if n := o.Pass("promote_scheduled"); n != 260 || o.Count("pulse_ready") != 260 || o.Count("pulse_scheduled") != 0 {
		t.Fatalf("%d became ready, want 260", n)
	}
}
