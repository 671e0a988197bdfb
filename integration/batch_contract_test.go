package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// What a batch owes each of its callers, when something is wrong with one of them or with the connection they share.

// manyItems are n tasks for the queue q, the i-th under the key "<prefix>-i".
func manyItems(prefix string, n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"%s-%03d"}`, prefix, i)
	}
	return items
}

// count is how many of what was noted have a name; nothing is forgotten.
func (r *recorder) count(name string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.statements {
		if s == name {
			n++
		}
	}
	return n
}

func TestAHeldKeyOfABatchIsSoughtInHalves(t *testing.T) {
	for _, place := range []int{0, 100, 255} {
		t.Run(fmt.Sprint("at ", place), func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			wired, w := addWired(t, o, harness.Options{})
			asked := &recorder{}
			recorded := o.AddReplica(harness.Options{Between: harness.Around(asked.around)})
			o.CreateQueue("q", nil)
			items := manyItems("k", 256)
			commit := w.stop(harness.Commit)
			holder := send(t, wired.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(fmt.Sprintf("k-%03d", place)))
			within(t, commit.reached, "the holder to be before its commit")
			batch := later(t, func() ([]submitResult, error) { return sendBatch(t, recorded.URL, o.Key, items...) })
			await(t, "the strangers to be accepted while the key is held", func() bool { return o.Count("pulse_tasks") == 255 })
			awaitLockWait(t, o, "orbit_idempotency_keys") // the one that is left waits by itself
			// The first one, eight halvings with two each, and for the last item one that finds it held and one that waits.
			if n := asked.count("BEGIN"); n > 1+8*2+2 {
				t.Errorf("%d transactions, want at most 19", n)
			}
			commit.goOn()
			single, got := holder().Want(t, 201), batch()
			for i, r := range got {
				if r.Status != 201 || r.Replayed != (i == place) {
					t.Errorf("item %d answered %+v", i, r)
				}
			}
			if string(got[place].Receipt) != string(single.Body) {
				t.Errorf("the duplicate got %s, the holder %s", got[place].Receipt, single.Body)
			}
		})
	}
}

// The batch has seen that the key is free, and then another was faster and does not come to its end.
func TestAKeyTakenAfterTheLookHoldsStrangersForOneLockWait(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	first, w1 := addWired(t, o, harness.Options{})
	second, w2 := addWired(t, o, harness.Options{})
	o.CreateQueue("q", nil)
	take := w2.stop("InsertKey")
	batch := later(t, func() ([]submitResult, error) { return sendBatch(t, second.URL, o.Key, manyItems("k", 64)...) })
	within(t, take.reached, "the batch to have looked")
	commit := w1.stop(harness.Commit)
	holder := send(t, first.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k-007"))
	within(t, commit.reached, "the holder to be before its commit")
	take.goOn()
	await(t, "the strangers to be accepted while the key is held", func() bool { return o.Count("pulse_tasks") == 63 })
	commit.goOn()
	single, got := holder().Want(t, 201), batch()
	for i, r := range got {
		if r.Status != 201 || r.Replayed != (i == 7) {
			t.Errorf("item %d answered %+v", i, r)
		}
	}
	if string(got[7].Receipt) != string(single.Body) {
		t.Errorf("the duplicate got %s, the holder %s", got[7].Receipt, single.Body)
	}
}

func TestDuplicatesOfOneBatchAreOneTaskInOneTransaction(t *testing.T) {
	asked := &recorder{}
	o := harness.Start(t, harness.Options{})
	recorded := o.AddReplica(harness.Options{Between: harness.Around(asked.around)})
	o.CreateQueue("q", nil)
	var items []string
	for i := range 60 {
		items = append(items, fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"k-%d"}`, i%3))
	}
	got := submitBatch(t, o, recorded.URL, items...)
	for i, r := range got {
		if r.Status != 201 || r.Replayed != (i >= 3) || r.Receipt != got[i%3].Receipt {
			t.Errorf("item %d answered %+v", i, r)
		}
	}
	if n := asked.count("BEGIN"); n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
	if n := o.Count("pulse_tasks"); n != 3 {
		t.Errorf("%d tasks, want 3", n)
	}
}

// crowdOperation is an operation that many workers, or submitters, do at once, and that a batch does for them.
type crowdOperation struct {
	at      harness.Statement // one in the midst of it
	prepare func(h *hand)
	call    func(h *hand, url string) (status int, code string, err error)
	// settle is what the protocol has a caller do that got no answer.
	settle func(h *hand, url string) error
	done   string // what to count: one for each caller
}

// hand is one of a crowd: a worker with a task of its own.
type hand struct {
	w *worker
	a offer
	n int
}

// item sends its one item.
func (h *hand) item(url, path string, more ...any) (int, string, error) {
	w := *h.w
	w.url = url
	r, err := w.send(path, map[string]any{"items": []any{h.a.item(more...)}})
	return statusOf(r, err)
}

// statusOf is that of the call's only item, or of the call.
func statusOf(r harness.Reply, err error) (int, string, error) {
	if err == nil && r.Status != 200 {
		p, err := parse[harness.Problem](r, nil, r.Status)
		return r.Status, p.Code, err
	}
	got, err := parse[struct{ Items []itemResult }](r, err, 200)
	if err != nil {
		return 0, "", err
	}
	return got.Items[0].Status, got.Items[0].Problem.Code, nil
}

func (h *hand) submit(url string) (int, string, error) {
	r, err := harness.Do(h.w.t.Context(), url, h.w.key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(fmt.Sprint("crowd-", h.n)))
	if err != nil || r.Status == 201 {
		return 200, "", err
	}
	p, err := parse[harness.Problem](r, nil, r.Status)
	return r.Status, p.Code, err
}

func (h *hand) claim(url string, seq int) (int, string, error) {
	w := *h.w
	w.url = url
	r, err := w.send(claimPath, map[string]any{"claim_seq": seq, "max": 1})
	if err != nil || r.Status != 200 {
		p, _ := parse[harness.Problem](r, err, r.Status)
		return r.Status, p.Code, err
	}
	got, err := parse[claimed](r, nil, 200)
	if err == nil && len(got.Offers) != 1 {
		err = fmt.Errorf("%d offers, want 1", len(got.Offers))
	}
	return 200, "", err
}

// giveBack releases what a claim took.
func (h *hand) giveBack(seq int) error {
	r, err := h.w.send(releasePath, map[string]any{"claim_seq": seq})
	_, err = parse[struct{}](r, err, 200)
	return err
}

// again repeats a call that must succeed.
func again(call func(h *hand, url string) (int, string, error)) func(h *hand, url string) error {
	return func(h *hand, url string) error {
		status, code, err := call(h, url)
		if err == nil && status != 200 {
			err = fmt.Errorf("the repeat was answered %d %s", status, code)
		}
		return err
	}
}

func crowdOperations() map[string]crowdOperation {
	offered := func(h *hand) { h.a = h.w.claimOne() }
	running := func(h *hand) { h.a = h.w.run() }
	start := func(h *hand, url string) (int, string, error) { return h.item(url, startPath) }
	beat := func(h *hand, url string) (int, string, error) { return h.item(url, heartbeatPath, "progress", 1) }
	finish := func(h *hand, url string) (int, string, error) {
		return h.item(url, finishPath, "outcome", "succeeded", "result", h.n)
	}
	finishClaiming := func(h *hand, url string) (int, string, error) {
		w := *h.w
		w.url = url
		return statusOf(w.send(finishPath, map[string]any{"items": []any{h.a.item("outcome", "succeeded", "result", h.n)}, "claim": map[string]any{"claim_seq": 2, "max": 1}}))
	}
	return map[string]crowdOperation{
		"submit": {"InsertTask", func(*hand) {}, (*hand).submit, again((*hand).submit), "pulse_tasks WHERE type = 't'"},
		"claim": {"LockReady", func(*hand) {}, func(h *hand, url string) (int, string, error) { return h.claim(url, 1) },
			func(h *hand, url string) error {
				r, err := h.w.send(releasePath, map[string]any{"claim_seq": 1})
				if _, err := parse[struct{}](r, err, 200); err != nil {
					return err
				}
				return again(func(h *hand, url string) (int, string, error) { return h.claim(url, 2) })(h, url)
			}, "pulse_attempts WHERE state = 'offered'"},
		"start":     {"StartAttempts", offered, start, again(start), "pulse_attempts WHERE state = 'running'"},
		"heartbeat": {"BeatAttempts", running, beat, again(beat), "pulse_attempts WHERE state = 'running' AND progress = '1'"},
		"finish":    {"InsertReceipt", running, finish, again(finish), "pulse_attempt_receipts"},
		"finish with a claim": {"LockReady", func(h *hand) {
			running(h)
			submit(h.w.t, h.w.o, "q")
		}, finishClaiming, func(h *hand, url string) error {
			if err := again(finish)(h, url); err != nil {
				return err
			}
			return h.giveBack(2)
		}, "pulse_attempt_receipts"},
	}
}

// gather makes a crowd on a queue with a task for each, and a replica on a wire that knows their credential.
func gather(t *testing.T, op crowdOperation, n int) (*harness.Orbit, *harness.Replica, *wire, []*hand) {
	t.Helper()
	o := harness.Start(t, harness.Options{})
	wired, w := addWired(t, o, harness.Options{})
	o.CreateQueue("q", policy("lease_ms", 600_000, "offer_timeout_ms", 600_000))
	submitMany(t, o, "q", n)
	crowd := make([]*hand, n)
	for i := range crowd {
		crowd[i] = &hand{w: openWorker(t, o, fmt.Sprint("w", i), "q"), n: i}
		op.prepare(crowd[i])
	}
	o.CallAt(wired.URL, o.Key, "GET", "/v1/credential", nil).Want(t, 200)
	return o, wired, w, crowd
}

// answer is what became of one call.
type answer struct {
	status int
	code   string
}

// crowded is a crowd whose calls are under way: the first one waits before its transaction, and behind it others share one that waits too.
type crowded struct {
	first, next *stoppedStatement
	wait        func() []answer
}

// crowdIn has a crowd make its calls.
func crowdIn(t *testing.T, w *wire, op crowdOperation, crowd []*hand, url string) crowded {
	t.Helper()
	c := crowded{first: w.stop(harness.Begin), next: w.stop(harness.Begin)}
	call := func(h *hand) (answer, error) {
		status, code, err := op.call(h, url)
		return answer{status, code}, err
	}
	first := later(t, func() (answer, error) { return call(crowd[0]) })
	within(t, c.first.reached, "the first call to begin")
	others := later(t, func() ([]answer, error) {
		return race(t, len(crowd)-1, func(i int) (answer, error) { return call(crowd[i+1]) }), nil
	})
	within(t, c.next.reached, "the batch behind it to begin")
	c.wait = func() []answer {
		t.Helper()
		return append([]answer{first()}, others()...)
	}
	return c
}

// A connection that breaks before the commit harms nobody: whoever shared the transaction is judged anew.
func TestACrowdWhoseConnectionBreaksIsAnsweredAllTheSame(t *testing.T) {
	for name, op := range crowdOperations() {
		t.Run(name, func(t *testing.T) {
			const n = 12
			o, wired, w, crowd := gather(t, op, n)
			calls := crowdIn(t, w, op, crowd, wired.URL)
			broken := w.stop(op.at)
			broken.cut()
			calls.next.goOn()
			within(t, broken.reached, "the statement that breaks")
			calls.first.goOn()
			for i, a := range calls.wait() {
				if a.status != 200 {
					t.Errorf("caller %d was answered %d %s", i, a.status, a.code)
				}
			}
			if got := o.Count(op.done); got != n {
				t.Fatalf("%d done, want %d", got, n)
			}
		})
	}
}

func TestAfterAnUnansweredCommitEachOfACrowdSettlesItsOwn(t *testing.T) {
	for end, cutOff := range map[string]func(*stoppedStatement){"that was carried out": (*stoppedStatement).lose, "that never arrived": (*stoppedStatement).cut} {
		for name, op := range crowdOperations() {
			t.Run(name+" "+end, func(t *testing.T) {
				const n = 12
				o, wired, w, crowd := gather(t, op, n)
				calls := crowdIn(t, w, op, crowd, wired.URL)
				commits := make([]*stoppedStatement, n)
				for i := range commits {
					commits[i] = w.stop(harness.Commit)
					cutOff(commits[i])
				}
				calls.next.goOn()
				calls.first.goOn()
				for i, a := range calls.wait() {
					if a.status != 503 || a.code != "outcome_unknown" {
						t.Errorf("caller %d was answered %d %s", i, a.status, a.code)
					}
				}
				if transactions := w.forget(harness.Commit); transactions >= n {
					t.Fatalf("%d transactions for %d callers: none was shared", transactions, n)
				} else {
					t.Logf("%d transactions for %d callers", transactions, n)
				}
				race(t, n, func(i int) (struct{}, error) { return struct{}{}, op.settle(crowd[i], wired.URL) })
				if got := o.Count(op.done); got != n {
					t.Fatalf("%d done, want %d", got, n)
				}
			})
		}
	}
}

// Two callers hang up, one alone in its transaction and one among others. Nobody else notices, and what they asked for is done; only a call that
// had not arrived is none.
func TestThoseOfACrowdWhoLeaveTakeNobodyAlong(t *testing.T) {
	for name, op := range crowdOperations() {
		t.Run(name, func(t *testing.T) {
			const n = 8
			o, wired, w, crowd := gather(t, op, n)
			ctx, leave := context.WithCancel(t.Context())
			leaves := func(i int) bool { return i == 0 || i == 3 }
			for i, h := range crowd {
				if leaves(i) {
					leaver := *h.w
					leaver.t = leaving{t, ctx}
					h.w = &leaver
				}
			}
			stays := op.call
			op.call = func(h *hand, url string) (int, string, error) {
				status, code, err := stays(h, url)
				if leaves(h.n) && errors.Is(err, context.Canceled) {
					return 0, "left", nil
				}
				return status, code, err
			}
			calls := crowdIn(t, w, op, crowd, wired.URL)
			leave()
			calls.next.goOn()
			calls.first.goOn()
			for i, a := range calls.wait() {
				if leaves(i) && a.code != "left" || !leaves(i) && a.status != 200 {
					t.Errorf("caller %d was answered %d %s", i, a.status, a.code)
				}
			}
			done := op.done
			if name == "claim" {
				done = "pulse_attempts" // what those who left were offered is given back
			}
			await(t, "what was asked for to be done", func() bool { return o.Count(done) >= n-1 })
		})
	}
}

// leaving is a test whose calls end with a context of their own.
type leaving struct {
	testing.TB
	ctx context.Context //nolint:containedctx // it stands for the test's own
}

func (l leaving) Context() context.Context { return l.ctx }

func TestOneHeldRowAmongManyHeartbeatsHarmsOnlyItself(t *testing.T) {
	op := crowdOperations()["heartbeat"]
	const n, held = 9, 4
	for kind, table := range map[string]string{"attempt": "pulse_attempts", "instance": "pulse_worker_instances"} {
		t.Run(kind, func(t *testing.T) {
			o, wired, w, crowd := gather(t, op, n)
			release := holdRows(t, o, table+" WHERE namespace_id = ? AND id = UNHEX(?)", o.Namespace.ID,
				map[string]string{"attempt": crowd[held].a.AttemptID, "instance": crowd[held].w.instance}[kind])
			var others sync.WaitGroup
			others.Add(n - 1)
			noted := op
			noted.call = func(h *hand, url string) (int, string, error) {
				if h.n != held {
					defer others.Done()
				}
				return op.call(h, url)
			}
			calls := crowdIn(t, w, noted, crowd, wired.URL)
			calls.next.goOn()
			calls.first.goOn()
			later(t, func() (struct{}, error) { others.Wait(); return struct{}{}, nil })()
			awaitLockWait(t, o, table) // the held one still waits, by itself
			renewed := o.Count(op.done)
			release()
			for i, a := range calls.wait() {
				if a.status != 200 {
					t.Errorf("caller %d was answered %d %s", i, a.status, a.code)
				}
			}
			if renewed != n-1 {
				t.Errorf("%d renewed while one is held, want %d", renewed, n-1)
			}
			if got := o.Count(op.done); got != n {
				t.Fatalf("%d renewed, want %d", got, n)
			}
		})
	}
}
