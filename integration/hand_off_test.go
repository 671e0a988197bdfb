package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/service"
)

// New tasks go to claims that wait for them in the transaction that accepts them.

// park has a claim wait for work, and returns once it is parked.
func park(t *testing.T, w *worker, max int, more ...any) (answer func() harness.Reply) {
	t.Helper()
	w.seq++
	body := map[string]any{"claim_seq": w.seq, "max": max, "wait_ms": 30_000}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	before := harness.ParkedClaims()
	sender := *w
	answer = later(t, func() (harness.Reply, error) { return sender.send(claimPath, body) })
	await(t, "a claim to be parked", func() bool { return harness.ParkedClaims() == before+1 })
	return answer
}

func offersOf(t *testing.T, r harness.Reply) []offer {
	t.Helper()
	var got claimed
	r.Want(t, 200).JSON(t, &got)
	return got.Offers
}

// wantHanded checks that one transaction accepted tasks and gave them to a claim.
func wantHanded(t *testing.T, statements []string) {
	t.Helper()
	n := map[string]int{}
	for _, s := range statements {
		n[s]++
	}
	if n["BEGIN"] != 1 || n["COMMIT"] != 1 || n["InsertTask"] != 1 || n["InsertAttempt"] != 1 || n["InsertReady"]+n["LockReady"]+n["ListTasksToOffer"] != 0 {
		t.Errorf("not handed over in one transaction: %v", statements)
	}
}

// wantNotHanded checks that no new task went past its ready row.
func wantNotHanded(t *testing.T, statements []string) {
	t.Helper()
	if i := slices.Index(statements, "InsertTask"); i < 0 || slices.Index(statements[i:], "InsertReady") < 0 {
		t.Errorf("no task became ready: %v", statements)
	}
}

func recorded(t *testing.T, more ...harness.Options) (*harness.Orbit, *recorder) {
	t.Helper()
	r := &recorder{}
	opts := harness.Options{}
	if len(more) > 0 {
		opts = more[0]
	}
	opts.Between = harness.Around(r.around)
	return harness.Start(t, opts), r
}

func TestAWaitingClaimIsHandedANewTaskByTheTransactionThatAcceptsIt(t *testing.T) {
	o, r := recorded(t)
	o.CreateQueue("q", policy("lease_ms", 7000))
	w, other := openWorker(t, o, "w", "q"), openWorker(t, o, "other", "q")
	answer := park(t, w, 10)
	fields := []any{"payload", rawJSON(`{"b": 1.50, "a":"ä"}`), "payload_version", 3, "priority", 2, "deadline_at", "2100-01-02T03:04:05.678901Z", "max_attempts", 2}
	r.take()
	id := submit(t, o, "q", fields...)
	handed := wantOffer(t, offersOf(t, answer()), id)
	wantHanded(t, r.take())
	if got := wantState(t, o, id, "offered"); got.AttemptID != handed.AttemptID || got.AttemptsUsed != 0 {
		t.Errorf("%+v", got)
	}
	if n := o.Count("pulse_ready"); n != 0 {
		t.Errorf("%d ready rows", n)
	}
	// It is what a claim would have found.
	submit(t, o, "q", fields...)
	found := other.claimOne()
	if !handed.OfferExpiresAt.Equal(handed.RunAt.Add(5 * time.Second)) {
		t.Errorf("the offer ends at %s, and was made at %s", handed.OfferExpiresAt, handed.RunAt)
	}
	same := found
	same.AttemptID, same.TaskID, same.Token, same.OfferExpiresAt, same.RunAt = handed.AttemptID, handed.TaskID, handed.Token, handed.OfferExpiresAt, handed.RunAt
	same.Traceparent = handed.Traceparent
	if same != handed || handed.Payload == "" || handed.AttemptNumber != 1 || handed.Generation != 1 {
		t.Errorf("handed %+v\n found %+v", handed, found)
	}
	wantItem(t, w.start(handed), 200, "")
	wantItem(t, w.succeed(handed, `1`), 200, "")
	if got := countEvents(t, o, handed.AttemptID); got["attempt.offered"] != 1 || got["attempt.started"] != 1 || got["attempt.ended"] != 1 {
		t.Errorf("events %v", got)
	}
}

func TestTheTraceOfASubmitIsHandedOver(t *testing.T) {
	o, r := recorded(t)
	o.CreateQueue("q", nil)
	answer := park(t, openWorker(t, o, "w", "q"), 1)
	r.take()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"), harness.Header{Name: "traceparent", Value: "00-" + trace + "-00f067aa0ba902b7-01"}).Want(t, 201)
	offers := offersOf(t, answer())
	wantHanded(t, r.take())
	if len(offers) != 1 || !strings.Contains(offers[0].Traceparent, trace) || offers[0].Payload != "null" {
		t.Fatalf("%+v", offers)
	}
}

func TestABatchIsHandedToWaitingClaimsInOrderAndTheRestIsReady(t *testing.T) {
	o, r := recorded(t)
	o.CreateQueue("q", policy())
	rooms := []int{1, 2, 5}
	var answers []func() harness.Reply
	for i, max := range rooms {
		answers = append(answers, park(t, openWorker(t, o, fmt.Sprint("w", i), "q"), max))
	}
	priorities := []int{5, 9, 1, 5, 9, 3, 5, 1, 9, 5, 7, 5}
	var items []string
	for i, p := range priorities {
		items = append(items, fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"k%d","priority":%d}`, i, p))
	}
	r.take()
	ids := map[string]int{}
	for i, got := range submitBatch(t, o, o.URL(), items...) {
		ids[taskOf(t, got)] = i
	}
	inOrder := slices.Clone(priorities)
	slices.Sort(inOrder)
	var handed []int
	for i, answer := range answers {
		offers := offersOf(t, answer())
		if len(offers) != rooms[i] {
			t.Errorf("a claim with room for %d was given %d", rooms[i], len(offers))
		}
		for k, a := range offers {
			place, ok := ids[a.TaskID]
			if delete(ids, a.TaskID); !ok || a.Priority != priorities[place] {
				t.Errorf("handed %+v", a)
			}
			if k > 0 && a.Priority < offers[k-1].Priority {
				t.Errorf("priority %d after %d", a.Priority, offers[k-1].Priority)
			}
			handed = append(handed, a.Priority)
		}
	}
	if slices.Sort(handed); !slices.Equal(handed, inOrder[:8]) {
		t.Errorf("priorities %v were handed, want %v", handed, inOrder[:8])
	}
	for _, s := range r.take() {
		if s == "LockReady" {
			t.Error("a claim looked for itself")
		}
	}
	rest := openWorker(t, o, "rest", "q").claim(100)
	var left []int
	for _, a := range rest {
		delete(ids, a.TaskID)
		left = append(left, a.Priority)
	}
	if !slices.Equal(left, inOrder[8:]) || len(ids) != 0 {
		t.Errorf("priorities %v became ready, want %v; lost %v", left, inOrder[8:], ids)
	}
}

func TestTasksThatAreNotDueAreNotHanded(t *testing.T) {
	o, r := recorded(t)
	o.CreateQueue("q", policy())
	answer := park(t, openWorker(t, o, "w", "q"), 10)
	r.take()
	delayed := submit(t, o, "q", "delay_ms", 60_000, "priority", 1)
	if got := r.take(); slices.Contains(got, "ShareFences") || !slices.Contains(got, "InsertScheduled") {
		t.Errorf("a task that is not due took a claim: %v", got)
	}
	got := submitBatch(t, o, o.URL(), `{"queue":"q","type":"t","idempotency_key":"a","delay_ms":60000,"priority":1}`,
		`{"queue":"q","type":"t","idempotency_key":"b"}`, `{"queue":"q","type":"t","idempotency_key":"c","run_at":"2100-01-01T00:00:00Z"}`)
	wantOffer(t, offersOf(t, answer()), taskOf(t, got[1]))
	for _, id := range []string{delayed, taskOf(t, got[0]), taskOf(t, got[2])} {
		if waits := wantState(t, o, id, "queued"); waits.Waiting.Kind != "scheduled" {
			t.Errorf("%+v", waits)
		}
	}
}

func TestNothingIsHandedPastAReadyTask(t *testing.T) {
	o, r := recorded(t)
	o.AddReplica(harness.Options{})
	o.CreateQueue("mail", policy())
	answer := park(t, openWorker(t, o, "w", "mail"), 1)
	older := submitAt(t, o, 1, "older", "priority", 9) // the claim's replica does not hear of it
	r.take()
	newer := submitAt(t, o, 0, "newer", "priority", 9)
	offers := offersOf(t, answer())
	wantNotHanded(t, r.take())
	wantOffer(t, offers, older)
	if got := wantState(t, o, newer, "queued"); got.Waiting.Kind != "ready" {
		t.Fatalf("%+v", got)
	}
}

// What stands before a claim stands before a hand-off, and the task is for somebody else.
func TestAHandOffIsFencedAsAClaimIs(t *testing.T) {
	for name, c := range map[string]struct {
		fence  func(t *testing.T, o *harness.Orbit, w *worker)
		status int
		code   string
	}{
		"superseded": {func(t *testing.T, o *harness.Orbit, w *worker) { openWorker(t, o, "w", "q") }, 409, "session_superseded"},
		"closed":     {func(t *testing.T, _ *harness.Orbit, w *worker) { w.call(closePath, nil).Want(t, 200) }, 409, "session_superseded"},
		"abandoned": {func(t *testing.T, _ *harness.Orbit, w *worker) {
			w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200)
		}, 409, "state_conflict"},
		"abandoned, by a later one": {func(t *testing.T, _ *harness.Orbit, w *worker) {
			w.call(releasePath, map[string]any{"claim_seq": w.seq + 7}).Want(t, 200)
		}, 409, "state_conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			o, r := recorded(t)
			o.CreateQueue("q", policy())
			w := openWorker(t, o, "w", "q")
			answer := park(t, w, 10)
			c.fence(t, o, w)
			r.take()
			id := submit(t, o, "q")
			answer().WantProblem(t, c.status, c.code)
			wantNotHanded(t, r.take())
			if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "ready" || got.Generation != 0 {
				t.Fatalf("%+v", got)
			}
			wantOffer(t, openWorker(t, o, "somebody-else", "q").claim(1), id)
		})
	}
}

// An incarnation that another call holds is not waited for; its claim looks for itself.
func TestAHandOffWaitsForNoSession(t *testing.T) {
	o, r := recorded(t)
	o.CreateQueue("q", policy())
	held, free := openWorker(t, o, "held", "q"), openWorker(t, o, "free", "q")
	first := park(t, held, 1)
	second := park(t, free, 1)
	release := holdRows(t, o, "pulse_worker_sessions WHERE worker_name = 'held'")
	r.take()
	got := submitBatch(t, o, o.URL(), manyItems("k", 2)...)
	offers := offersOf(t, second())
	release()
	both := append(offers, offersOf(t, first())...)
	if len(both) != 2 || both[0].TaskID == both[1].TaskID || both[0].TaskID != taskOf(t, got[0]) {
		t.Fatalf("%+v", both)
	}
}

func TestNothingIsHandedOverBehindAClosedGate(t *testing.T) {
	for name, shut := range map[string]func(t *testing.T, o *harness.Orbit, queueID string) (open func()){
		"queue": func(t *testing.T, o *harness.Orbit, queueID string) func() {
			o.Call("POST", "/v1/queues/"+queueID+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
			return func() { resume(t, o, queueID, "r") }
		},
		"namespace": func(t *testing.T, o *harness.Orbit, queueID string) func() {
			open := closeGate(t, o, "namespace", "")
			return func() {
				open()
				o.Pass("wake_waiters")
			}
		},
	} {
		for _, start := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", start: ", start), func(t *testing.T) {
				o, r := recorded(t)
				queueID := o.CreateQueue("q", policy("one_step", true))
				answer := park(t, openWorker(t, o, "w", "q"), 1, "start", start)
				open := shut(t, o, queueID)
				r.take()
				id := submit(t, o, "q")
				await(t, "the claim to wait again", func() bool { return harness.ParkedClaims() == 1 })
				wantNotHanded(t, r.take())
				if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "ready" {
					t.Fatalf("%+v", got)
				}
				open()
				wantOffer(t, offersOf(t, answer()), id)
			})
		}
	}
}

func TestWhatIsHandedOverStartsWhereItsQueueAllows(t *testing.T) {
	for name, c := range map[string]struct {
		oneStep, start, closed bool
		started                bool
	}{
		"asked for and allowed":    {true, true, false, true},
		"not asked for":            {true, false, false, false},
		"not allowed":              {false, true, false, false},
		"behind a closed type":     {true, true, true, false},
		"a closed type, not asked": {true, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, r := recorded(t)
			o.CreateQueue("q", policy("one_step", c.oneStep, "lease_ms", 7000))
			w := openWorker(t, o, "w", "q")
			open := func() {}
			if c.closed {
				open = closeGate(t, o, "task_type", "a")
			}
			answer := park(t, w, 1, "start", c.start)
			r.take()
			id := submit(t, o, "q", "type", "a", "max_attempts", 1)
			offers := offersOf(t, answer())
			wantHanded(t, r.take())
			a := wantOffer(t, offers, id)
			if c.started {
				wantStarted(t, offers, 1)
				wantState(t, o, id, "running")
			} else {
				wantPlain(t, offers, 1)
				wantState(t, o, id, "offered")
			}
			if c.closed {
				wantItem(t, w.start(a), 409, "start_refused")
				open()
				return
			}
			again := w.start(a)
			if wantItem(t, again, 200, ""); c.started && !again.Attempt.StartedAt.Equal(a.StartedAt) {
				t.Errorf("started again at %s after %s", again.Attempt.StartedAt, a.StartedAt)
			}
			wantItem(t, w.succeed(a, `1`), 200, "")
		})
	}
}

// A pause that has returned is seen by every later start; a hand-off that starts something waits for one under way.
func TestAHandOffThatStartsWaitsForAPauseThatIsUnderWay(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	wired, wire := addWired(t, o, harness.Options{})
	queueID := o.CreateQueue("q", policy("one_step", true))
	answer := park(t, openWorker(t, o, "w", "q"), 1, "start", true)
	commit := wire.stop(harness.Commit)
	pause := send(t, wired.URL, o.Key, "POST", "/v1/queues/"+queueID+":pause", map[string]any{"reason": "r"}, harness.Key("p"))
	within(t, commit.reached, "the pause to commit")
	submitted := send(t, o.URL(), o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"))
	awaitLockWait(t, o, "pulse_execution_gates")
	commit.goOn()
	pause().Want(t, 200)
	submitted().Want(t, 201)
	if n := o.Count("pulse_attempts"); n != 0 {
		t.Fatalf("%d attempts behind a pause that has returned", n)
	}
	resume(t, o, queueID, "r")
	wantStarted(t, offersOf(t, answer()), 1)
}

func TestARevokedCredentialIsHandedNothing(t *testing.T) {
	var ahead atomic.Int64
	o, r := recorded(t, harness.Options{Change: func(o *service.Options) {
		o.HostClock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}})
	o.CreateQueue("q", policy())
	var issued struct {
		Key        string `json:"key"`
		Credential struct {
			ID string `json:"id"`
		} `json:"credential"`
	}
	o.Call("POST", "/v1/credentials", map[string]any{"name": "worker", "actions": []string{"tasks:execute"}, "queues": []string{"*"}}, harness.Key("k")).Want(t, 201).JSON(t, &issued)
	w := &worker{t: t, o: o, url: o.URL(), key: issued.Key, instance: newInstance()}
	w.open("w", "q")
	answer := park(t, w, 1)
	o.Call("POST", "/v1/credentials/"+issued.Credential.ID+":revoke", map[string]any{"reason": "r"}, harness.Key("revoke")).Want(t, 200)
	ahead.Add(int64(3 * time.Second)) // past what a replica believes of a credential
	r.take()
	id := submit(t, o, "q")
	answer().WantProblem(t, 401, "unauthenticated")
	if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "ready" || got.AttemptsUsed != 0 {
		t.Fatalf("%+v", got)
	}
	wantOffer(t, openWorker(t, o, "somebody-else", "q").claim(1), id)
}

// wired is a replica whose submits can be stopped while a claim of the same replica has been taken.
func wired(t *testing.T) (*harness.Orbit, *harness.Replica, *wire, *worker) {
	t.Helper()
	o := harness.Start(t, harness.Options{})
	replica, w := addWired(t, o, harness.Options{})
	o.CreateQueue("q", policy("offer_timeout_ms", 600_000))
	return o, replica, w, openWorker(t, o, "w", "q").on(1)
}

func submitOne(t *testing.T, o *harness.Orbit, r *harness.Replica) (wait func() harness.Reply) {
	t.Helper()
	return send(t, r.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("one"))
}

// The wait ends, the replica drains or the caller leaves just when the claim has been taken.
func TestAClaimThatEndsWhileItIsTakenLosesNothing(t *testing.T) {
	t.Run("its time is up", func(t *testing.T) {
		o, r, wire, w := wired(t)
		answer := park(t, w, 1, "wait_ms", 1000)
		commit := wire.stop(harness.Commit)
		submitted := submitOne(t, o, r)
		within(t, commit.reached, "the submit to be before its commit")
		await(t, "the claim to be over", func() bool { return harness.HeldClaims() == 1 })
		commit.goOn()
		submitted().Want(t, 201)
		wantPlain(t, offersOf(t, answer()), 1)
	})
	t.Run("its replica drains", func(t *testing.T) {
		o, r, wire, w := wired(t)
		answer := park(t, w, 1)
		commit := wire.stop(harness.Commit)
		submitted := submitOne(t, o, r)
		within(t, commit.reached, "the submit to be before its commit")
		r.Service.Drain()
		await(t, "the claim to be over", func() bool { return harness.HeldClaims() == 1 })
		commit.goOn()
		submitted().Want(t, 201)
		wantPlain(t, offersOf(t, answer()), 1)
	})
	t.Run("its caller leaves", func(t *testing.T) {
		o, r, wire, w := wired(t)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		leaver := *w
		leaver.t = leaving{t, ctx}
		left := make(chan error, 1)
		go func() {
			_, err := leaver.send(claimPath, map[string]any{"claim_seq": 1, "max": 1, "wait_ms": 30_000})
			left <- err
		}()
		await(t, "the claim to be parked", func() bool { return harness.ParkedClaims() == 1 })
		commit := wire.stop(harness.Commit)
		submitted := submitOne(t, o, r)
		within(t, commit.reached, "the submit to be before its commit")
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		await(t, "the claim to be over", func() bool { return harness.HeldClaims() == 1 })
		commit.goOn()
		var got receipt
		submitted().Want(t, 201).JSON(t, &got)
		await(t, "the task to be given back", func() bool { return o.Count("pulse_ready") == 1 })
		if n := o.Count("pulse_attempts WHERE state = 'released' AND end_code = 'claim_abandoned'"); n != 1 {
			t.Errorf("%d attempts given back", n)
		}
		wantOffer(t, openWorker(t, o, "somebody-else", "q").claim(1), got.TaskID)
	})
	t.Run("its time is up and the submit fails", func(t *testing.T) {
		o, r, wire, w := wired(t)
		answer := park(t, w, 1, "wait_ms", 1000)
		broken := wire.stop("InsertAttempt")
		submitted := submitOne(t, o, r)
		within(t, broken.reached, "the submit to give the task")
		await(t, "the claim to be over", func() bool { return harness.HeldClaims() == 1 })
		broken.cut()
		var got receipt
		submitted().Want(t, 201).JSON(t, &got)
		wantPlain(t, offersOf(t, answer()), 0)
		wantOffer(t, w.claim(1), got.TaskID)
	})
}

func TestAfterAnUnansweredCommitOfAHandOffBothSidesSettleTheirs(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*stoppedStatement)
		done  int
		start bool
	}{
		"that was carried out":              {(*stoppedStatement).lose, 1, false},
		"that was carried out and started":  {(*stoppedStatement).lose, 1, true},
		"that never arrived":                {(*stoppedStatement).cut, 0, false},
		"that never arrived, with starting": {(*stoppedStatement).cut, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			replica, wire := addWired(t, o, harness.Options{})
			o.CreateQueue("q", policy("one_step", true))
			w := openWorker(t, o, "w", "q").on(1)
			answer := park(t, w, 1, "start", c.start)
			c.end(wire.stop(harness.Commit))
			submitOne(t, o, replica)().WantProblem(t, 503, "outcome_unknown")
			answer().WantProblem(t, 503, "outcome_unknown")
			if n := o.Count("pulse_attempts"); n != c.done {
				t.Fatalf("%d attempts, want %d", n, c.done)
			}
			for round := range 2 {
				var given struct{ Items []itemResult }
				w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200).JSON(t, &given)
				if want := c.done * (1 - round); len(given.Items) != want {
					t.Fatalf("%d offers given back, want %d", len(given.Items), want)
				}
			}
			var got receipt
			again := submitOne(t, o, replica)().Want(t, 201)
			again.JSON(t, &got)
			if replayed := again.Header.Get("Idempotency-Replayed") == "true"; replayed != (c.done == 1) {
				t.Fatalf("replayed: %t", replayed)
			}
			a := wantOffer(t, w.claim(10), got.TaskID)
			if a.Generation != int64(c.done)+1 || a.AttemptNumber != 1 || o.Count("pulse_tasks") != 1 {
				t.Fatalf("%+v of %d tasks", a, o.Count("pulse_tasks"))
			}
			wantItem(t, w.start(a), 200, "")
			wantItem(t, w.succeed(a, `1`), 200, "")
		})
	}
}

// Whatever statement fails, the claim goes on, the task is accepted once, and the claim gets it.
func TestAClaimOutlivesTheTransactionThatTookIt(t *testing.T) {
	deadlock := func(s *stoppedStatement) {
		s.end <- func(func() error) error { return &mysql.MySQLError{Number: 1213, Message: "Deadlock found"} }
	}
	lockWait := func(s *stoppedStatement) {
		s.end <- func(func() error) error {
			return &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
		}
	}
	for _, at := range []harness.Statement{harness.Begin, "ShareFences", "PeekReady", "InsertKey", "InsertTask", "InsertAttempt", "InsertReply", "InsertEvent", "InsertSpool"} {
		for name, fail := range map[string]func(*stoppedStatement){"deadlock": deadlock, "cut": (*stoppedStatement).cut, "lost answer": (*stoppedStatement).lose, "lock wait": lockWait} {
			t.Run(fmt.Sprint(name, " at ", at), func(t *testing.T) {
				o, r, wire, w := wired(t)
				answer := park(t, w, 1)
				failed := wire.stop(at)
				fail(failed)
				var got receipt
				submitOne(t, o, r)().Want(t, 201).JSON(t, &got)
				within(t, failed.reached, "the statement that fails")
				a := wantOffer(t, offersOf(t, answer()), got.TaskID)
				if o.Count("pulse_tasks") != 1 || o.Count("pulse_attempts") != 1 || o.Count("pulse_ready") != 0 || a.Generation != 1 {
					t.Errorf("%d tasks, %d attempts, offer %+v", o.Count("pulse_tasks"), o.Count("pulse_attempts"), a)
				}
			})
		}
	}
}

// A defect is that of the submit; the claim that it had taken does not hang.
func TestAClaimOutlivesAPanicOfTheTransactionThatTookIt(t *testing.T) {
	o, r, wire, w := wired(t)
	answer := park(t, w, 1, "wait_ms", 1000)
	wire.stop("InsertAttempt").end <- func(func() error) error { panic("broken on purpose") }
	submitOne(t, o, r)().WantProblem(t, 500, "internal")
	wantPlain(t, offersOf(t, answer()), 0)
	answer = park(t, w, 1)
	var got receipt
	submitOne(t, o, r)().Want(t, 201).JSON(t, &got)
	wantOffer(t, offersOf(t, answer()), got.TaskID)
}

func TestAClaimIsHandedTasksByItsOwnReplicaOnly(t *testing.T) {
	o, r := recorded(t)
	o.AddReplica(harness.Options{})
	o.CreateQueue("mail", policy())
	here, there := openWorker(t, o, "here", "mail"), openWorker(t, o, "there", "mail").on(1)
	elsewhere := park(t, there, 1)
	r.take()
	first := submitAt(t, o, 0, "first")
	wantNotHanded(t, r.take())
	if n := o.Pass("wake_waiters", 1); n != 1 {
		t.Fatalf("%d queues woken, want 1", n)
	}
	wantOffer(t, offersOf(t, elsewhere()), first)
	answer := park(t, here, 1)
	elsewhere = park(t, there, 1)
	r.take()
	second := submitAt(t, o, 0, "second")
	wantOffer(t, offersOf(t, answer()), second)
	wantHanded(t, r.take())
	third := submitAt(t, o, 1, "third")
	wantOffer(t, offersOf(t, elsewhere()), third)
}

func TestAClaimThatWaitsForSeveralQueuesIsTakenOnce(t *testing.T) {
	o, r := recorded(t)
	queues := []string{"a", "b", "c"}
	var items []string
	for _, q := range queues {
		o.CreateQueue(q, policy())
		items = append(items, fmt.Sprintf(`{"queue":%q,"type":"t","idempotency_key":%q}`, q, q))
	}
	for _, max := range []int{1, 10} {
		w := openWorker(t, o, "w", queues...)
		answer := park(t, w, max)
		r.take()
		ids := map[string]bool{}
		for _, got := range submitBatch(t, o, o.URL(), items...) {
			ids[taskOf(t, got)] = true
		}
		first := offersOf(t, answer())
		if len(first) != 1 || !ids[first[0].TaskID] {
			t.Fatalf("%+v", first)
		}
		rest := w.claim(10)
		for _, a := range append(rest, first...) {
			delete(ids, a.TaskID)
		}
		if len(ids) != 0 || len(rest) != 2 {
			t.Fatalf("%d tasks were left ready, and %v are lost", len(rest), ids)
		}
		for i := range items {
			items[i] = strings.Replace(items[i], `"idempotency_key":"`, `"idempotency_key":"again-`, 1)
		}
	}
}

// Several callers' tasks in one transaction, each with a queue of its own.
func TestTasksOfSeveralCallersInOneTransactionAreHandedOver(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	replica, wire := addWired(t, o, harness.Options{})
	o.CreateQueue("q", policy())
	other := o.Credential(o.Namespace, []string{"*"}, []string{"*"})
	for _, key := range []string{o.Key, other} {
		o.CallAt(replica.URL, key, "GET", "/v1/credential", nil).Want(t, 200)
	}
	var answers []func() harness.Reply
	for i := range 3 {
		answers = append(answers, park(t, openWorker(t, o, fmt.Sprint("w", i), "q").on(1), 1))
	}
	submitBy := func(key, name string) func() harness.Reply {
		return send(t, replica.URL, key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(name))
	}
	begin := wire.stop(harness.Begin)
	first := submitBy(o.Key, "first")
	within(t, begin.reached, "the first to begin")
	next := wire.stop(harness.Begin)
	second, third := submitBy(o.Key, "second"), submitBy(other, "second")
	within(t, next.reached, "the others to begin") // after the replica's patience with the first
	next.goOn()
	begin.goOn()
	tasks := map[string]bool{}
	for _, submitted := range []func() harness.Reply{first, second, third} {
		var got receipt
		submitted().Want(t, 201).JSON(t, &got)
		tasks[got.TaskID] = true
	}
	for _, answer := range answers {
		offers := offersOf(t, answer())
		if len(offers) != 1 || !tasks[offers[0].TaskID] {
			t.Fatalf("%+v", offers)
		}
		delete(tasks, offers[0].TaskID)
	}
}

// However large tasks are, a claim is handed what fits into a reply.
func TestLargeTasksAreHandedOver(t *testing.T) {
	o, r := recorded(t)
	o.CreateQueue("q", policy())
	w := openWorker(t, o, "w", "q")
	for i, payload := range []string{strings.Repeat("x", 8<<20-2), strings.Repeat(`\"`, 4<<20-1)} {
		answer := park(t, w, 10)
		r.take()
		o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","payload":"`+payload+`"}`, harness.Key(fmt.Sprint("large-", i))).Want(t, 201)
		offers := offersOf(t, answer())
		wantHanded(t, r.take())
		if len(offers) != 1 || string(offers[0].Payload) != `"`+payload+`"` {
			t.Fatalf("%d offers", len(offers))
		}
	}
	answer := park(t, w, 10)
	var items []string
	for i := range 8 { // about 4 MiB to a transaction
		items = append(items, fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"some-%d","payload":"%s"}`, i, strings.Repeat("y", 1<<20)))
	}
	submitBatch(t, o, o.URL(), items...)
	got := offersOf(t, answer())
	if len(got) == 0 || len(got)+len(w.claim(10)) != 8 {
		t.Fatalf("%d offers were handed over, and others are lost", len(got))
	}
}

// Many submitters, many waiting claims, two replicas: each task is offered once, and ends with one receipt.
func TestManyHandOffsAtOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	const queues, submitters, workers, each = 3, 8, 12, 25
	var names []string
	for i := range queues {
		names = append(names, fmt.Sprint("q", i))
		o.CreateQueue(names[i], policy("one_step", i == 0, "lease_ms", 600_000, "offer_timeout_ms", 600_000))
	}
	crowd := make([]*worker, workers)
	for i := range crowd {
		crowd[i] = openWorker(t, o, fmt.Sprint("w", i), names[i%queues], names[(i+1)%queues]).on(i % 2)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	finished := map[string]chan struct{}{}
	finish := func(id string) chan struct{} { // whoever asks first, its submitter or its worker
		mu.Lock()
		defer mu.Unlock()
		if finished[id] == nil {
			finished[id] = make(chan struct{})
		}
		return finished[id]
	}
	ended := make(chan struct{})
	var done atomic.Int64
	work := func(w *worker) error {
		for {
			select {
			case <-ended:
				return nil
			default:
			}
			w.seq++
			r, err := w.send(claimPath, map[string]any{"claim_seq": w.seq, "max": 1 + w.seq%4, "wait_ms": 500, "start": w.seq%2 == 0})
			got, err := parse[claimed](r, err, 200)
			if err != nil {
				return err
			}
			for _, a := range got.Offers {
				mu.Lock()
				seen[a.TaskID]++
				mu.Unlock()
				for _, path := range []string{startPath, finishPath} {
					item := a.item()
					if path == finishPath {
						item = a.item("outcome", "succeeded", "result", 1)
					}
					if i, err := w.sendItem(path, item); err != nil || i.Status != 200 {
						return fmt.Errorf("%s: %d %s %w", path, i.Status, i.Problem.Code, err)
					}
				}
				close(finish(a.TaskID))
				if done.Add(1) == submitters*each {
					close(ended)
				}
			}
		}
	}
	race(t, submitters+workers+1, func(i int) (struct{}, error) {
		switch {
		case i < submitters:
			for k := range each {
				body := fmt.Sprintf(`{"queue":%q,"type":"t","priority":%d}`, names[k%queues], 1+k%9)
				r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/tasks", body, harness.Key(fmt.Sprint(i, "-", k)))
				got, err := parse[receipt](r, err, 201)
				if err != nil {
					return struct{}{}, err
				}
				if k%4 > 0 { // now and then another comes before this one has ended
					select {
					case <-finish(got.TaskID):
					case <-time.After(time.Minute):
						return struct{}{}, errors.New("a task is handed to nobody")
					}
				}
			}
		case i < submitters+workers:
			return struct{}{}, work(crowd[i-submitters])
		default:
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ended:
					return struct{}{}, nil
				case <-tick.C:
				}
				for replica := range 2 {
					if _, err := pass(t, o, "wake_waiters", replica); err != nil {
						return struct{}{}, err
					}
				}
			}
		}
		return struct{}{}, nil
	})
	for id, n := range seen {
		if n != 1 {
			t.Errorf("task %s was offered %d times", id, n)
		}
	}
	if n := o.Count("pulse_attempts"); len(seen) != submitters*each || n != submitters*each || o.Count("pulse_attempt_receipts") != n {
		t.Errorf("%d tasks seen, %d attempts", len(seen), n)
	}
	handed := o.Count("pulse_attempts a JOIN pulse_tasks t ON t.namespace_id = a.namespace_id AND t.id = a.task_id WHERE a.offered_at = t.created_at")
	if t.Logf("%d of %d were handed over", handed, submitters*each); handed == 0 {
		t.Error("none was handed over")
	}
}
