package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// queueGate is the gate of a queue.
type queueGate struct {
	State          string `json:"state"`
	Reason         string `json:"reason"`
	ControlVersion int64  `json:"control_version"`
}

func TestManyPausesAreOne(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	id := o.CreateQueue("q", nil)
	move := func(verb, body string) map[queueGate]int {
		seen := map[queueGate]int{}
		for _, g := range race(t, 10, func(i int) (queueGate, error) {
			r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/queues/"+id+":"+verb, body, harness.Key(fmt.Sprint(verb, i/2)))
			return parse[queueGate](r, err, 200)
		}) {
			seen[g]++
		}
		return seen
	}
	if seen := move("pause", `{"reason":"storm"}`); seen[queueGate{"closed", "storm", 1}] != 10 {
		t.Errorf("ten pauses answered %v", seen)
	}
	if seen := move("resume", `{"reason":"calm"}`); seen[queueGate{"open", "calm", 2}] != 10 {
		t.Errorf("ten resumes answered %v", seen)
	}
	for action, want := range map[string]int{"pauseQueue": 1, "resumeQueue": 1} {
		if n := o.Count("orbit_audit_events WHERE action = ?", action); n != want {
			t.Errorf("%d acts %s were audited, want %d", n, action, want)
		}
	}
}

// Pauses and resumes at one moment take turns; every version has one event, and the last one is what is shown.
func TestPausesAndResumesTakeTurns(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	id := o.CreateQueue("q", nil)
	gates := race(t, 16, func(i int) (queueGate, error) {
		verb := []string{"pause", "resume"}[i%2]
		r, err := harness.Do(t.Context(), o.Replica(i/2%2).URL, o.Key, "POST", "/v1/queues/"+id+":"+verb, `{"reason":"x"}`, harness.Key(fmt.Sprint(i)))
		return parse[queueGate](r, err, 200)
	})
	last := queueGate{}
	for i, g := range gates {
		if want := []string{"closed", "open"}[i%2]; g.State != want {
			t.Errorf("call %d left the gate %s, want %s", i, g.State, want)
		}
		if g.ControlVersion > last.ControlVersion {
			last = g
		}
	}
	var shown struct {
		Paused bool `json:"paused"`
	}
	if o.Call("GET", "/v1/queues/"+id, nil).Want(t, 200).JSON(t, &shown); shown.Paused != (last.State == "closed") {
		t.Errorf("the queue is shown paused: %t, its last move left it %s", shown.Paused, last.State)
	}
	if n := o.Count("orbit_events WHERE aggregate_kind = 'gate' AND aggregate_id = UNHEX(?)", id); int64(n) != last.ControlVersion {
		t.Errorf("%d events of %d versions", n, last.ControlVersion)
	}
}

func TestAPauseIsRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("q", nil)
	since := ledger(t, o)
	for _, bad := range []string{`{}`, `{"reason":""}`, `{"reason":"` + strings.Repeat("x", 1001) + `"}`, `{"reason":"x","until":"2100-01-01T00:00:00Z"}`} {
		o.Call("POST", "/v1/queues/"+id+":pause", bad, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	}
	for _, verb := range []string{":pause", ":resume"} {
		o.Call("POST", "/v1/queues/"+id+verb, `{"reason":"x"}`).WantProblem(t, 400, "idempotency_missing")
		o.Call("POST", "/v1/queues/"+strings.Repeat("0", 32)+verb, `{"reason":"x"}`, harness.Key("k")).WantProblem(t, 404, "not_found")
	}
	wantLedger(t, o, since)
	o.Call("POST", "/v1/queues/"+id+":pause", `{"reason":"x"}`, harness.Key("k")).Want(t, 200)
	o.Call("POST", "/v1/queues/"+id+":pause", `{"reason":"y"}`, harness.Key("k")).WantProblem(t, 422, "idempotency_conflict")
}
