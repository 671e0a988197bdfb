package integration_test

import (
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// queueDepth is how much a queue holds.
type queueDepth struct {
	Ready, Scheduled, Blocked, Offered, Running, Review struct {
		Count  int  `json:"count"`
		Capped bool `json:"capped"`
	}
	OldestReadyAgeMs *int64 `json:"oldest_ready_age_ms"`
}

func TestDepthFollowsATaskThroughItsStates(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("q", map[string]any{"unknown_outcome": "review", "lease_ms": 5000})
	o.CreateQueue("other", nil)
	submit(t, o, "other")
	depth := func() (d queueDepth, counts [6]int) {
		t.Helper()
		o.Call("GET", "/v1/queues/"+id+"/depth", nil).Want(t, 200).JSON(t, &d)
		if d.Ready.Capped || d.Scheduled.Capped || d.Blocked.Capped || d.Offered.Capped || d.Running.Capped || d.Review.Capped {
			t.Errorf("a count is capped: %+v", d)
		}
		return d, [6]int{d.Ready.Count, d.Scheduled.Count, d.Blocked.Count, d.Offered.Count, d.Running.Count, d.Review.Count}
	}
	want := func(ready, scheduled, blocked, offered, running, review int) queueDepth {
		t.Helper()
		d, counts := depth()
		if counts != [6]int{ready, scheduled, blocked, offered, running, review} {
			t.Fatalf("depth %v, want %v", counts, [6]int{ready, scheduled, blocked, offered, running, review})
		}
		return d
	}
	if d := want(0, 0, 0, 0, 0, 0); d.OldestReadyAgeMs != nil {
		t.Errorf("nothing is ready, since %d ms", *d.OldestReadyAgeMs)
	}
	submit(t, o, "q", "delay_ms", 600_000, "priority", 1)
	submit(t, o, "q", "run_at", "2001-01-01T00:00:00Z", "priority", 9)
	want(1, 1, 0, 0, 0, 0)
	o.Advance(5 * time.Minute)
	submit(t, o, "q", "priority", 2)
	// The oldest is of the lowest priority; what it asked for in the past is not waiting time.
	if d := want(2, 1, 0, 0, 0, 0); d.OldestReadyAgeMs == nil || *d.OldestReadyAgeMs < 300_000 || *d.OldestReadyAgeMs > 360_000 {
		t.Errorf("the oldest ready task waits since %v ms, want 5 minutes", d.OldestReadyAgeMs)
	}
	o.Advance(5 * time.Minute)
	o.Pass("promote_scheduled")
	want(3, 0, 0, 0, 0, 0)
	w := openWorker(t, o, "w", "q")
	first, second := w.claimOne(), w.claimOne()
	want(1, 0, 0, 2, 0, 0)
	wantItem(t, w.start(first), 200, "")
	want(1, 0, 0, 1, 1, 0)
	o.Call("POST", "/v1/queues/"+id+":pause", `{"reason":"x"}`, harness.Key("p")).Want(t, 200)
	wantItem(t, w.start(second), 409, "start_refused")
	want(1, 0, 1, 0, 1, 0)
	o.Call("POST", "/v1/queues/"+id+":resume", nil, harness.Key("r")).Want(t, 200)
	o.Pass("unblock_gates")
	o.StayFresh(6 * time.Second)
	o.Pass("recover_leases")
	want(2, 0, 0, 0, 0, 1)
	if third := w.run(); third.TaskID != second.TaskID {
		t.Fatal("the tasks were not claimed in their order")
	} else {
		wantItem(t, w.succeed(third, `1`), 200, "")
	}
	want(1, 0, 0, 0, 0, 1)
}
