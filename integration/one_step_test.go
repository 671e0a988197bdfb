package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/sdk/go/client"
	sdk "github.com/orbit-run/orbit/sdk/go/worker"
)

// claimStarting claims and asks to start what may start at once.
func (w *worker) claimStarting(max int) []offer {
	w.t.Helper()
	w.seq++
	var got claimed
	w.call(claimPath, map[string]any{"claim_seq": w.seq, "max": max, "start": true}).Want(w.t, 200).JSON(w.t, &got)
	return got.Offers
}

// wantStarted wants n offers that all came started.
func wantStarted(t testing.TB, offers []offer, n int) []offer {
	t.Helper()
	if len(offers) != n {
		t.Fatalf("%d offers, want %d", len(offers), n)
	}
	for _, o := range offers {
		if o.StartedAt.IsZero() || !o.LeaseUntil.Equal(o.StartedAt.Add(time.Duration(o.LeaseMs)*time.Millisecond)) {
			t.Fatalf("not started: %+v", o)
		}
	}
	return offers
}

// wantPlain wants n offers that did not come started.
func wantPlain(t testing.TB, offers []offer, n int) []offer {
	t.Helper()
	if len(offers) != n {
		t.Fatalf("%d offers, want %d", len(offers), n)
	}
	for _, o := range offers {
		if !o.StartedAt.IsZero() || !o.LeaseUntil.IsZero() {
			t.Fatalf("started: %+v", o)
		}
	}
	return offers
}

func TestOneStepNeedsThePolicyRetry(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	wantRefused := func(r harness.Reply) {
		t.Helper()
		if p := r.WantProblem(t, 400, "invalid_request"); len(p.Errors) != 1 || p.Errors[0].Pointer != "/one_step" || !strings.Contains(p.Errors[0].Detail, "unknown_outcome retry") {
			t.Fatalf("%+v", p)
		}
	}
	wantRefused(o.Call("POST", "/v1/queues", `{"name":"q","one_step":true}`, harness.Key("a")))
	wantRefused(o.Call("POST", "/v1/queues", `{"name":"q","one_step":true,"unknown_outcome":"review"}`, harness.Key("b")))
	path := "/v1/queues/" + o.CreateQueue("q", nil)
	wantRefused(o.Call("PATCH", path, `{"one_step":true}`, mergePatch, ifMatch(`"1"`)))
	changed := o.Call("PATCH", path, `{"one_step":true,"unknown_outcome":"retry"}`, mergePatch, ifMatch(`"1"`)).Want(t, 200)
	if !strings.Contains(string(changed.Body), `"one_step":true`) {
		t.Fatalf("%s", changed.Body)
	}
	wantRefused(o.Call("PATCH", path, `{"unknown_outcome":"review"}`, mergePatch, ifMatch(`"2"`)))
	o.Call("PATCH", path, `{"unknown_outcome":"review","one_step":false}`, mergePatch, ifMatch(`"2"`)).Want(t, 200)
}

func TestAClaimStartsAtOnceWhatItsQueueAllows(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("fast", policy("one_step", true, "lease_ms", 7000))
	o.CreateQueue("slow", policy())
	for range 3 {
		submit(t, o, "fast", "priority", 1)
	}
	submit(t, o, "slow")
	w := openWorker(t, o, "w", "fast", "slow")
	asked := wantPlain(t, w.claimFrom(1, "fast"), 1)[0] // not without being asked to
	offers := w.claimStarting(10)
	started, plain := wantStarted(t, offers[:2], 2), wantPlain(t, offers[2:], 1)[0]
	first := started[0]
	if first.LeaseMs != 7000 || !first.OfferExpiresAt.Equal(first.LeaseUntil) || first.AttemptNumber != 1 {
		t.Fatalf("%+v", first)
	}
	if got := wantState(t, o, first.TaskID, "running"); got.AttemptsUsed != 0 || got.AttemptID != first.AttemptID {
		t.Fatalf("%+v", got)
	}
	wantAttempt(t, o, first.AttemptID, "running", "")
	if got := countEvents(t, o, first.AttemptID); got["attempt.offered"] != 0 || got["attempt.started"] != 1 {
		t.Fatalf("events %v", got)
	}
	o.Advance(time.Second)
	// A start is a repeat: it gets the lease that the claim began.
	if again := w.start(first); again.Status != 200 || !again.Attempt.StartedAt.Equal(first.StartedAt) || !again.Attempt.LeaseUntil.Equal(first.LeaseUntil) {
		t.Fatalf("%+v, want the lease of %+v", again, first)
	}
	if beat := w.heartbeat(first); beat.Status != 200 || !beat.Attempt.LeaseUntil.After(first.LeaseUntil) {
		t.Fatalf("%+v", beat)
	}
	for _, a := range []offer{asked, plain} {
		wantItem(t, w.start(a), 200, "")
	}
	for _, a := range append(started, asked, plain) {
		wantItem(t, w.succeed(a, `1`), 200, "")
		if got := wantState(t, o, a.TaskID, "succeeded"); got.AttemptsUsed != 1 || got.Generation != 1 {
			t.Fatalf("%+v", got)
		}
	}
}

// closeGate closes a gate for which there is no operation, behind the service's back, until the returned function is called.
func closeGate(t testing.TB, o *harness.Orbit, scope, id string) (open func()) {
	t.Helper()
	const root = "WHERE namespace_id = ? AND scope = 'namespace'"
	if scope == "namespace" {
		change(t, o, "UPDATE pulse_execution_gates SET state = 'closed', closed_gates = closed_gates + 1 "+root, o.Namespace.ID)
		return func() {
			change(t, o, "UPDATE pulse_execution_gates SET state = 'open', closed_gates = closed_gates - 1 "+root, o.Namespace.ID)
		}
	}
	change(t, o, "INSERT INTO pulse_execution_gates (namespace_id, scope, scope_id, state, control_version, reason, updated_at) VALUES (?, ?, ?, 'closed', 1, 'r', NOW(6))", o.Namespace.ID, scope, id)
	change(t, o, "UPDATE pulse_execution_gates SET closed_gates = closed_gates + 1 "+root, o.Namespace.ID)
	return func() {
		change(t, o, "DELETE FROM pulse_execution_gates WHERE namespace_id = ? AND scope = ? AND scope_id = ?", o.Namespace.ID, scope, id)
		change(t, o, "UPDATE pulse_execution_gates SET closed_gates = closed_gates - 1 "+root, o.Namespace.ID)
	}
}

func TestNothingStartsAtOnceBehindAClosedGate(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("fast", policy("one_step", true))
	w := openWorker(t, o, "w", "fast")
	for range 2 {
		submit(t, o, "fast", "type", "a")
		submit(t, o, "fast", "type", "b")
	}
	o.Call("POST", "/v1/queues/"+id+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
	wantPlain(t, w.claimStarting(10), 0)
	resume(t, o, id, "r")

	open := closeGate(t, o, "namespace", "")
	wantPlain(t, w.claimStarting(10), 0)
	open()

	open = closeGate(t, o, "task_type", "a")
	offers := w.claimStarting(2)
	slices.SortFunc(offers, func(x, y offer) int { return strings.Compare(x.Type, y.Type) })
	behind, free := wantPlain(t, offers[:1], 1)[0], wantStarted(t, offers[1:], 1)[0]
	wantItem(t, w.start(behind), 409, "start_refused")
	wantState(t, o, free.TaskID, "running")
	open()

	open = closeGate(t, o, "instance", w.instance)
	other := openWorker(t, o, "other", "fast")
	behind = wantPlain(t, w.claimStarting(1), 1)[0]
	wantStarted(t, other.claimStarting(1), 1)
	wantItem(t, w.start(behind), 409, "start_refused")
	open()
	o.Pass("unblock_gates")
	wantStarted(t, w.claimStarting(10), 2)
}

// Claims alone and claims with results, against a pause of their queue.
func TestOnceAPauseHasReturnedNoClaimStartsATask(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	const claimers, each = 8, 12
	for round := range 4 {
		name := fmt.Sprint("fast", round)
		id := o.CreateQueue(name, policy("one_step", true, "lease_ms", 600_000))
		submitMany(t, o, name, claimers*each)
		workers := make([]*worker, claimers)
		for i := range workers {
			workers[i] = openWorker(t, o, fmt.Sprint(name, "-", i), name).on(i % 2)
		}
		var paused atomic.Bool
		var started atomic.Int64
		race(t, claimers+1, func(i int) (struct{}, error) {
			if i == claimers {
				r, err := harness.Do(t.Context(), o.Replica(1).URL, o.Key, "POST", "/v1/queues/"+id+":pause", map[string]any{"reason": "r"}, harness.Key(name))
				paused.Store(true)
				_, err = parse[struct{}](r, err, 200)
				return struct{}{}, err
			}
			w := workers[i]
			var last []offer
			for range each {
				after := paused.Load()
				got, err := w.sendNext(last, 1)
				if err != nil {
					return struct{}{}, err
				}
				if len(got) > 0 && after {
					return struct{}{}, errors.New("a claim began after the pause had returned, and started a task")
				}
				for _, o := range got {
					if o.StartedAt.IsZero() {
						return struct{}{}, fmt.Errorf("a claim offered a task of an open queue: %+v", o)
					}
				}
				started.Add(int64(len(got)))
				last = got
			}
			return struct{}{}, nil
		})
		var seen bool
		for _, e := range events(t, o) {
			switch {
			case e.AggregateID == id && e.Type == "gate.closed":
				seen = true
			case e.Type == "attempt.started" && seen:
				t.Fatalf("attempt %s started after the pause", e.AggregateID)
			}
		}
		if !seen {
			t.Fatal("the pause has no event")
		}
		left := o.Count("pulse_ready WHERE queue_id = UNHEX(?)", id)
		if int64(left)+started.Load() != claimers*each {
			t.Fatalf("%d started and %d left of %d", started.Load(), left, claimers*each)
		}
		t.Logf("round %d: %d started, %d left", round, started.Load(), left)
	}
}

// sendNext reports what ran, if anything, and claims in the same call; else it only claims.
func (w *worker) sendNext(ran []offer, max int) ([]offer, error) {
	w.seq++
	claim := map[string]any{"claim_seq": w.seq, "max": max, "start": true}
	if len(ran) == 0 {
		r, err := w.send(claimPath, claim)
		got, err := parse[claimed](r, err, 200)
		return got.Offers, err
	}
	var items []any
	for _, o := range ran {
		items = append(items, o.item("outcome", "succeeded", "result", 1))
	}
	r, err := w.send(finishPath, map[string]any{"items": items, "claim": claim})
	got, err := parse[finished](r, err, 200)
	if err != nil {
		return nil, err
	}
	for _, i := range got.Items {
		if i.Status != 200 {
			return nil, fmt.Errorf("a result was answered %d %s", i.Status, i.Problem.Code)
		}
	}
	if got.Claim.Status != 200 {
		return nil, fmt.Errorf("a claim was answered %d %s", got.Claim.Status, got.Claim.Problem.Code)
	}
	return got.Claim.Offers, nil
}

func TestAClaimThatMayStartWaitsForAPauseThatIsUnderWay(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	wired, wire := addWired(t, o, harness.Options{})
	id := o.CreateQueue("fast", policy("one_step", true))
	submit(t, o, "fast")
	w := openWorker(t, o, "w", "fast")
	commit := wire.stop(harness.Commit)
	pause := send(t, wired.URL, o.Key, "POST", "/v1/queues/"+id+":pause", map[string]any{"reason": "r"}, harness.Key("p"))
	within(t, commit.reached, "the pause to commit")
	claim := later(t, func() ([]offer, error) { return w.sendNext(nil, 1) })
	awaitLockWait(t, o, "pulse_execution_gates")
	commit.goOn()
	pause().Want(t, 200)
	wantPlain(t, claim(), 0)
}

func TestWhatALostClaimStartedIsGivenBackUnused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("fast", policy("one_step", true))
	submitMany(t, o, "fast", 4, "max_attempts", 1)
	w := openWorker(t, o, "w", "fast")
	lost := wantStarted(t, w.claimStarting(4), 4)
	seen, asked := lost[2], lost[3]
	wantItem(t, w.heartbeat(seen), 200, "") // not lost after all
	o.Call("POST", "/v1/tasks/"+asked.TaskID+":cancel", nil, harness.Key("c")).Want(t, 200)
	var got struct{ Items []itemResult }
	w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200).JSON(t, &got)
	if len(got.Items) != 3 {
		t.Fatalf("%d given back, want 3", len(got.Items))
	}
	for _, a := range lost[:2] {
		if got := wantState(t, o, a.TaskID, "queued"); got.Waiting.Kind != "ready" || got.AttemptsUsed != 0 || got.Generation != 1 || got.Failure.Code != "" {
			t.Fatalf("%+v", got)
		}
		wantAttempt(t, o, a.AttemptID, "released", "claim_abandoned")
		late := w.succeed(a, `"late"`)
		if wantItem(t, late, 409, "stale_attempt"); late.EvidenceID == "" {
			t.Fatal("a late result is lost")
		}
		if beat := w.heartbeat(a); beat.Status != 409 {
			t.Fatalf("%+v", beat)
		}
		wantState(t, o, a.TaskID, "queued")
	}
	wantState(t, o, seen.TaskID, "running")
	wantState(t, o, asked.TaskID, "cancelled") // it was asked to stop while nobody ran it
	w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200).JSON(t, &got)
	if len(got.Items) != 0 {
		t.Fatalf("a repeat gave %d more back", len(got.Items))
	}
	again := wantStarted(t, w.claimStarting(4), 2)
	if again[0].AttemptNumber != 1 || again[0].Generation != 2 {
		t.Fatalf("%+v", again[0])
	}
	for _, a := range append(again, seen) {
		wantItem(t, w.succeed(a, `1`), 200, "")
	}
}

func TestWhatCameStartedIsGivenBackByItemUntilItsFirstHeartbeat(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("fast", policy("one_step", true))
	w := openWorker(t, o, "w", "fast")
	id := submit(t, o, "fast", "max_attempts", 1)
	first := wantStarted(t, w.claimStarting(1), 1)[0]
	for range 2 {
		wantItem(t, w.release(first, "no_handler"), 200, "")
	}
	wantAttempt(t, o, first.AttemptID, "released", "no_handler")
	if got := wantState(t, o, id, "queued"); got.AttemptsUsed != 0 || got.Waiting.Kind != "ready" {
		t.Fatalf("%+v", got)
	}
	second := wantStarted(t, w.claimStarting(1), 1)[0]
	wantItem(t, w.release(second, "no_handler"), 200, "")
	if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "scheduled" { // as with offers, from the second in a row on
		t.Fatalf("%+v", got)
	}
	ready(o, time.Minute)
	third := wantStarted(t, w.claimStarting(1), 1)[0]
	wantItem(t, w.heartbeat(third), 200, "")
	wantItem(t, w.release(third, "no_handler"), 409, "state_conflict")
	wantItem(t, w.succeed(third, `1`), 200, "")
	// What was started by a start stays so, without a heartbeat.
	submit(t, o, "fast")
	fourth := w.run()
	wantItem(t, w.release(fourth, "no_handler"), 409, "state_conflict")
	w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200)
	wantItem(t, w.succeed(fourth, `1`), 200, "")
}

func TestTheLostLeaseOfATaskThatCameStartedIsRetried(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("fast", policy("one_step", true))
	id := submit(t, o, "fast", "max_attempts", 2)
	w := openWorker(t, o, "w", "fast")
	for _, state := range []string{"queued", "failed"} {
		first := wantStarted(t, w.claimStarting(1), 1)[0]
		o.StayFresh(6 * time.Second)
		if n := o.Pass("recover_leases"); n != 1 {
			t.Fatalf("%d leases lost, want 1", n)
		}
		wantAttempt(t, o, first.AttemptID, "lost", "lease_lost")
		wantState(t, o, id, state)
		late := w.succeed(first, `1`)
		if wantItem(t, late, 409, "lease_lost"); late.EvidenceID == "" {
			t.Fatal("a late result is lost")
		}
		ready(o, time.Minute)
	}
	if got := getTask(t, o, id); got.AttemptsUsed != 2 {
		t.Fatalf("%+v", got)
	}
}

// calls counts requests by path.
type calls struct {
	mu     sync.Mutex
	byPath map[string]int
}

func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.byPath[r.URL.Path]++
	c.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

func TestABusySDKWorkerNeedsOneCallATaskWhereItsQueueAllows(t *testing.T) {
	for _, oneStep := range []bool{false, true} {
		t.Run(fmt.Sprint("one step: ", oneStep), func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			o.CreateQueue("mail", policy("one_step", oneStep))
			const tasks = 40
			submitMany(t, o, "mail", tasks)
			counted := &calls{byPath: map[string]int{}}
			c, err := client.New(o.URL(), o.Key, client.WithHTTPClient(&http.Client{Transport: counted}))
			if err != nil {
				t.Fatal(err)
			}
			w := sdk.New(c, sdk.Config{Queues: []string{"mail"}, Concurrency: 1})
			w.Handle("test.kind", func(context.Context, *sdk.Task) (any, error) { return 1, nil })
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			await(t, "the tasks to succeed", func() bool { return o.Count("pulse_tasks WHERE state = 'succeeded'") == tasks })
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			got, starts := counted.byPath, map[bool]int{false: tasks}[oneStep]
			if got[claimPath] > 3 || got[startPath] != starts || got[finishPath] != tasks {
				t.Fatalf("calls %v", got)
			}
			if n := o.Count("pulse_attempts"); n != tasks {
				t.Fatalf("%d attempts, want %d", n, tasks)
			}
		})
	}
}
