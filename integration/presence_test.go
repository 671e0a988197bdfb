package integration_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// startAttended makes two replicas, and lists what the first sends to its database.
func startAttended(t *testing.T) (p poller, sent func() []string) {
	t.Helper()
	var mu sync.Mutex
	var names []string
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{Between: harness.Around(func(s harness.Statement, run func() error) error {
		mu.Lock()
		names = append(names, s.Name())
		mu.Unlock()
		return b.around(s, run)
	})})
	o.AddReplica(harness.Options{})
	return poller{o, b}, func() []string {
		mu.Lock()
		defer mu.Unlock()
		got := slices.DeleteFunc(names, func(name string) bool { return name == "AuthenticateCredential" })
		names = nil
		return got
	}
}

func TestAWaitingClaimIsASignOfLife(t *testing.T) {
	p, sent := startAttended(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	wait := p.poll(t, w)
	before := p.Count("pulse_worker_instances WHERE heartbeats = 1")
	if n := p.Pass("attend_waiters"); n != 1 || before != 0 || p.Count("pulse_worker_instances WHERE heartbeats = 1") != 1 {
		t.Fatalf("life was shown for %d instances", n)
	}
	sent()
	w.call(heartbeatPath, map[string]any{"items": []any{}}).Want(t, 200)
	if got := sent(); len(got) != 0 {
		t.Errorf("a heartbeat of an instance that waits sent %v", got)
	}
	id := submit(t, p.Orbit, "mail")
	offer := wantOffer(t, wait(), id)
	wantItem(t, w.start(offer), 200, "")
	wantItem(t, w.heartbeat(offer), 200, "")

	sent()
	w.call(heartbeatPath, map[string]any{"items": []any{}}).Want(t, 200) // it no longer waits
	if got := sent(); !slices.Contains(got, "BeatInstances") {
		t.Errorf("a heartbeat of an instance that does not wait sent %v", got)
	}
	if n := p.Pass("attend_waiters"); n != 0 {
		t.Errorf("life was shown for %d instances although none waits", n)
	}
}

func TestAClaimThatWaitsAgainForAnEmptyQueueAsksNothing(t *testing.T) {
	p, sent := startAttended(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	wait := p.poll(t, w)
	p.Pass("attend_waiters")
	p.Pass("wake_waiters")
	first := submit(t, p.Orbit, "mail")
	offer := wantOffer(t, wait(), first)
	wantItem(t, w.release(offer, "no_handler"), 200, "") // a hint, after which nothing is known
	if got := p.poll(t, w)(); len(got) != 1 {
		t.Fatalf("%d offers of a queue that is not empty", len(got))
	}

	wait = p.poll(t, w)
	p.Pass("attend_waiters")
	p.Pass("wake_waiters")
	sent()
	again := later(t, func() (harness.Reply, error) {
		return w.send(claimPath, map[string]any{"claim_seq": 100, "max": 1, "wait_ms": 1}) // its whole wait
	})
	var got claimed
	again().Want(t, 200).JSON(t, &got)
	if len(got.Offers) != 0 || got.ClaimSeq != 100 {
		t.Fatalf("%+v", got)
	}
	if got := sent(); len(got) != 0 {
		t.Errorf("a claim of a queue that is known to be empty sent %v", got)
	}
	w.claim(1) // one that does not wait looks
	if got := sent(); !slices.Contains(got, "LockReady") {
		t.Errorf("a claim that does not wait sent %v", got)
	}
	id := submit(t, p.Orbit, "mail")
	wantOffer(t, wait(), id)
}

// A claim that waits without having looked is found by the backstop like any other.
func TestAClaimThatDidNotLookIsWokenLikeAnyOther(t *testing.T) {
	p, sent := startAttended(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	wait := p.poll(t, w)
	p.Pass("attend_waiters")
	p.Pass("wake_waiters")
	sent()
	const n = 5
	answers := make(chan claimed, n)
	for i := range n {
		go func() {
			r, err := w.send(claimPath, map[string]any{"claim_seq": 10 + i, "max": 1, "wait_ms": 30_000})
			got, err := parse[claimed](r, err, 200)
			if err != nil {
				t.Error(err)
			}
			answers <- got
		}()
	}
	ids := map[string]bool{}
	for i := range n + 10 { // the poll that looked takes at most 10
		ids[submitAt(t, p.Orbit, 1, fmt.Sprint("k", i))] = true
	}
	for range n { // whoever comes after the look of a pass is seen by the next
		for done := false; !done; {
			p.Pass("wake_waiters")
			select {
			case got := <-answers:
				done = true
				if len(got.Offers) != 1 || !ids[got.Offers[0].TaskID] {
					t.Errorf("%+v", got)
					continue
				}
				delete(ids, got.Offers[0].TaskID)
			default:
			}
		}
	}
	if got := wait(); len(got) == 0 {
		t.Error("the poll that looked got nothing")
	}
}

func TestASupersededInstanceThatWaitsIsTold(t *testing.T) {
	p, _ := startAttended(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	claim := p.sendPoll(t, w)
	if n := p.Pass("attend_waiters"); n != 1 {
		t.Fatalf("life was shown for %d instances", n)
	}
	openWorker(t, p.Orbit, "w", "mail")
	p.Pass("attend_waiters")
	claim().WantProblem(t, 409, "session_superseded")
	w.call(heartbeatPath, map[string]any{"items": []any{}}).WantProblem(t, 409, "session_superseded")

	stranger := *w
	stranger.key = p.Credential(p.Namespace, []string{"*"}, []string{"*"})
	stranger.call(heartbeatPath, map[string]any{"items": []any{}}).WantProblem(t, 404, "not_found")
}
