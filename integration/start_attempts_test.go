package integration_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/integration/harness"
)

const startPath = "/v1/attempts:start"

func TestStartAttemptsBeginsALeaseThatARepeatGetsAgain(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy("lease_ms", 7000))
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	offered := w.claimOne()
	first := w.start(offered)
	wantItem(t, first, 200, "")
	if a := first.Attempt; a.State != "running" || a.LeaseMs != 7000 || !a.LeaseUntil.Equal(a.StartedAt.Add(7*time.Second)) {
		t.Fatalf("%+v", a)
	}
	if got := wantState(t, o, id, "running"); got.AttemptsUsed != 0 || got.AttemptID != offered.AttemptID {
		t.Fatalf("%+v", got)
	}
	o.Advance(time.Second)
	wantItem(t, w.heartbeat(offered), 200, "")
	if again := w.start(offered); again.Status != 200 || again.Attempt != first.Attempt {
		t.Fatalf("a repeat got %+v, want %+v", again.Attempt, first.Attempt)
	}
	if got := countEvents(t, o, offered.AttemptID); got["attempt.offered"] != 1 || got["attempt.started"] != 1 {
		t.Fatalf("events %v", got)
	}
	if n := o.Count("pulse_tasks WHERE revision <> 1"); n != 0 {
		t.Fatal("claim or start wrote the task's row")
	}
}

func TestStartAttemptsRefusesItemByItem(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	for range 9 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	other := openWorker(t, o, "other", "mail")
	foreign := other.claimOne()
	offers := w.claim(8)
	good, released, expired, cancelled, lost, done, swapped, last := offers[0], offers[1], offers[2], offers[3], offers[4], offers[5], offers[6], offers[7]
	wantItem(t, w.release(released, "shutdown"), 200, "")
	o.Call("POST", "/v1/tasks/"+cancelled.TaskID+":cancel", nil, harness.Key("c")).Want(t, 200)
	wantItem(t, w.start(done), 200, "")
	wantItem(t, w.succeed(done, `1`), 200, "")
	wantItem(t, w.start(lost), 200, "")
	// Only the offer and the lease that are over by now are ended; the others are moved out of recovery's sight.
	for _, a := range []offer{expired, lost} {
		change(t, o, "UPDATE pulse_attempts SET lease_until = NOW(6) - INTERVAL 1 DAY WHERE id = UNHEX(?)", a.AttemptID)
	}
	o.StayFresh(3 * time.Second)
	if n := o.Pass("recover_leases"); n != 0 {
		t.Fatalf("%d attempts ended before the replica was fresh for their time", n)
	}
	for _, a := range []offer{good, swapped, last, foreign} {
		change(t, o, "UPDATE pulse_attempts SET lease_until = NOW(6) + INTERVAL 1 DAY WHERE id = UNHEX(?)", a.AttemptID)
	}
	o.StayFresh(3 * time.Second)
	if n := o.Pass("recover_leases"); n != 2 {
		t.Fatalf("%d attempts ended, want 2", n)
	}
	got := w.items(startPath,
		good.item(),
		map[string]any{"attempt_id": swapped.AttemptID, "token": last.Token},
		map[string]any{"attempt_id": swapped.AttemptID[:31] + "g", "token": last.Token},
		map[string]any{"attempt_id": newInstance(), "token": last.Token},
		map[string]any{"attempt_id": last.AttemptID, "token": "x"},
		map[string]any{"attempt_id": last.AttemptID},
		foreign.item(), released.item(), expired.item(), cancelled.item(), lost.item(), done.item(),
	)
	for i, want := range []struct {
		status int
		code   string
	}{
		{200, ""}, {409, "stale_attempt"}, {400, "invalid_request"}, {404, "not_found"}, {409, "stale_attempt"}, {400, "invalid_request"},
		{409, "stale_attempt"}, {409, "stale_attempt"}, {409, "stale_attempt"}, {409, "stale_attempt"}, {409, "lease_lost"}, {409, "stale_attempt"},
	} {
		if got[i].Status != want.status || got[i].Problem.Code != want.code {
			t.Errorf("item %d: %d %s (%s), want %d %s", i, got[i].Status, got[i].Problem.Code, got[i].Problem.Detail, want.status, want.code)
		}
	}
	wantState(t, o, good.TaskID, "running")
	wantState(t, o, swapped.TaskID, "offered")
	wantState(t, o, last.TaskID, "offered")
	wantForeign(t, w, startPath, map[string]any{"items": []any{last.item()}})
	wantState(t, o, last.TaskID, "offered")
}

func TestStartAttemptsBoundsItsItems(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	w := openWorker(t, o, "w", "mail")
	item := map[string]any{"attempt_id": newInstance(), "token": "t"}
	w.call(startPath, map[string]any{"items": []any{}}).WantProblem(t, 400, "invalid_request")
	w.call(startPath, map[string]any{"items": slices.Repeat([]any{item}, 1001)}).WantProblem(t, 400, "invalid_request")
	w.call(startPath, map[string]any{}).WantProblem(t, 400, "invalid_request")
	w.call(startPath, map[string]any{"items": []any{item}, "more": 1}).WantProblem(t, 400, "invalid_request")
}

func TestAnOfferPastItsTimeIsStartedUntilRecoveryTakesIt(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	offered := w.claimOne()
	o.Advance(time.Hour)
	wantItem(t, w.start(offered), 200, "")
	wantItem(t, w.succeed(offered, `1`), 200, "")
}

func TestACallWaitsOnceForADatabaseThatIsAway(t *testing.T) {
	var away atomic.Bool
	var tries atomic.Int64
	o := harness.Start(t, harness.Options{Between: harness.Around(func(s harness.Statement, run func() error) error {
		if s == harness.Begin && away.Load() {
			tries.Add(1)
			return &mysql.MySQLError{Number: 1053, Message: "Server shutdown in progress"}
		}
		return run()
	})})
	o.CreateQueue("mail", policy())
	submitMany(t, o, "mail", 20)
	w := openWorker(t, o, "w", "mail")
	var items []map[string]any
	for _, a := range w.claim(20) {
		items = append(items, a.item())
	}
	away.Store(true)
	for _, i := range w.items(startPath, items...) {
		wantItem(t, i, 503, "unavailable")
	}
	if n := tries.Load(); n != 2 {
		t.Fatalf("%d transactions were tried, want one of all items and one of the first", n)
	}
	away.Store(false)
	for _, i := range w.items(startPath, items...) {
		wantItem(t, i, 200, "")
	}
}

func TestAnAttemptTwiceInOneCallIsStartedOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	offers := w.claim(2)
	got := w.items(startPath, offers[0].item(), offers[1].item(), offers[0].item(), map[string]any{"attempt_id": offers[1].AttemptID, "token": offers[0].Token})
	for _, i := range got[:3] {
		wantItem(t, i, 200, "")
	}
	wantItem(t, got[3], 409, "stale_attempt")
	if got[0].Attempt != got[2].Attempt {
		t.Fatalf("%+v and %+v", got[0].Attempt, got[2].Attempt)
	}
	if got := countEvents(t, o, offers[0].AttemptID); got["attempt.started"] != 1 {
		t.Fatalf("events %v", got)
	}
}

func TestStartsOfOneAttemptAtOnceAreOneStart(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	for range 3 {
		submit(t, o, "mail")
		offered := w.claimOne()
		got := race(t, 16, func(i int) (itemResult, error) { return w.on(i%2).sendItem(startPath, offered.item()) })
		for _, g := range got {
			wantItem(t, g, 200, "")
			if g.Attempt != got[0].Attempt {
				t.Fatalf("%+v and %+v", got[0].Attempt, g.Attempt)
			}
		}
		if got := countEvents(t, o, offered.AttemptID); got["attempt.started"] != 1 {
			t.Fatalf("events %v", got)
		}
	}
}

func TestAStartBehindAClosedGateIsRefusedAndItsTaskWaitsForTheGate(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("mail", policy())
	o.CreateQueue("open", policy())
	for range 2 {
		submit(t, o, "mail")
	}
	submit(t, o, "open")
	w := openWorker(t, o, "w", "mail", "open")
	offers := append(w.claimFrom(2, "mail"), w.claimFrom(1, "open")...)
	wantItem(t, w.start(offers[0]), 200, "") // before the pause: it goes on
	o.Call("POST", "/v1/queues/"+id+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
	got := w.items(startPath, offers[0].item(), offers[1].item(), offers[2].item())
	wantItem(t, got[0], 200, "")
	wantItem(t, got[1], 409, "start_refused")
	wantItem(t, got[2], 200, "") // of a queue that is open
	wantItem(t, w.start(offers[1]), 409, "stale_attempt")
	wantAttempt(t, o, offers[1].AttemptID, "released", "gate_closed")
	blocked := wantState(t, o, offers[1].TaskID, "queued")
	if blocked.Waiting.Kind != "blocked" || blocked.Waiting.Blocker.ID != "queue:"+id || blocked.AttemptsUsed != 0 || blocked.Failure.Code != "" {
		t.Fatalf("%+v", blocked)
	}
	wantItem(t, w.succeed(offers[0], `1`), 200, "") // a finish passes closed gates
	if n := o.Pass("unblock_gates"); n != 0 || len(w.claim(1)) != 0 {
		t.Fatalf("%d tasks woke behind a closed gate", n)
	}
	o.Call("POST", "/v1/queues/"+id+":resume", nil, harness.Key("r")).Want(t, 200)
	if n := o.Pass("unblock_gates"); n != 1 {
		t.Fatalf("%d tasks woke, want 1", n)
	}
	if again := w.run(); again.TaskID != blocked.ID || again.AttemptNumber != 1 || again.Generation != 2 {
		t.Fatalf("%+v", again)
	}
}

// The first close makes the gate's row: there is nothing of its own that starts could share before.
func TestOnceAPauseHasReturnedNoStartGetsThrough(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	const starters = 8
	for round := range 4 {
		name := fmt.Sprint("mail", round)
		id := o.CreateQueue(name, policy())
		for range starters * 6 {
			submit(t, o, name)
		}
		workers := make([]*worker, starters)
		offers := make([][]offer, starters)
		for i := range workers {
			workers[i] = openWorker(t, o, fmt.Sprint(name, "-", i), name).on(i % 2)
			offers[i] = workers[i].claim(6)
		}
		var paused atomic.Bool
		var started atomic.Int64
		race(t, starters+1, func(i int) (struct{}, error) {
			if i == starters {
				r, err := harness.Do(t.Context(), o.Replica(1).URL, o.Key, "POST", "/v1/queues/"+id+":pause", map[string]any{"reason": "r"}, harness.Key(name))
				paused.Store(true)
				_, err = parse[struct{}](r, err, 200)
				return struct{}{}, err
			}
			for _, offered := range offers[i] {
				after := paused.Load()
				got, err := workers[i].sendItem(startPath, offered.item())
				switch {
				case err != nil:
					return struct{}{}, err
				case got.Status == 200 && after:
					return struct{}{}, errors.New("a start began after the pause had returned, and got through")
				case got.Status == 200:
					started.Add(1)
				case got.Problem.Code != "start_refused":
					return struct{}{}, fmt.Errorf("%d %s", got.Status, got.Problem.Code)
				}
			}
			return struct{}{}, nil
		})
		// The order of events says the same: every start of the queue is before its pause.
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
		blocked := o.Count("pulse_blocked WHERE queue_id = UNHEX(?)", id)
		if int64(blocked)+started.Load() != starters*6 {
			t.Fatalf("%d started and %d blocked of %d", started.Load(), blocked, starters*6)
		}
		t.Logf("round %d: %d started, %d refused", round, started.Load(), blocked)
		o.Call("POST", "/v1/queues/"+id+":resume", nil, harness.Key(name+"r")).Want(t, 200)
		if n := o.Pass("unblock_gates"); n != blocked {
			t.Fatalf("%d of %d blocked tasks woke", n, blocked)
		}
		if n := len(workers[0].claim(100)); n != blocked {
			t.Fatalf("%d offers after the resume, want %d", n, blocked)
		}
	}
}

func TestAStartWaitsForAPauseThatIsUnderWay(t *testing.T) {
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{})
	o.AddReplica(harness.Options{Between: harness.Around(b.around)})
	id := o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	offered := w.claimOne()
	o.CallAt(o.Replica(1).URL, o.Key, "GET", "/v1/credential", nil).Want(t, 200)
	reached, goOn := b.next(harness.Commit)
	defer goOn()
	pause := later(t, func() (harness.Reply, error) {
		return harness.Do(t.Context(), o.Replica(1).URL, o.Key, "POST", "/v1/queues/"+id+":pause", map[string]any{"reason": "r"}, harness.Key("p"))
	})
	within(t, reached, "the pause to commit")
	start := later(t, func() (itemResult, error) { return w.sendItem(startPath, offered.item()) })
	awaitLockWait(t, o, "pulse_execution_gates")
	goOn()
	pause().Want(t, 200)
	wantItem(t, start(), 409, "start_refused")
}

func TestAStartAndACancellationAtOnceHaveOneWinner(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	won := map[string]int{}
	for round := range 20 {
		id := submit(t, o, "mail")
		offered := w.claimOne()
		var start itemResult
		var shown task
		race(t, 2, func(i int) (_ struct{}, err error) {
			if i == 0 {
				start, err = w.on(0).sendItem(startPath, offered.item())
				return
			}
			r, err := harness.Do(t.Context(), o.Replica(1).URL, o.Key, "POST", "/v1/tasks/"+id+":cancel", nil, harness.Key(fmt.Sprint("c", round)))
			shown, err = parse[task](r, err, 200)
			return
		})
		switch now := getTask(t, o, id); {
		case start.Status == 200 && shown.State == "running" && shown.CancelRequested && now.State == "running" && now.CancelRequested:
			won["start"]++
			if beat := w.heartbeat(offered); beat.Status != 200 || !beat.Attempt.CancelRequested {
				t.Fatalf("the worker is not told: %+v", beat)
			}
			wantItem(t, w.succeed(offered, `1`), 200, "")
		case start.Problem.Code == "stale_attempt" && shown.State == "cancelled" && now.State == "cancelled":
			won["cancel"]++
		default:
			t.Fatalf("start %d %s, cancel showed %s (asked: %t), the task is %s", start.Status, start.Problem.Code, shown.State, shown.CancelRequested, now.State)
		}
	}
	t.Log(won)
}
