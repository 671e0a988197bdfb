package integration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// killed is an operation in which its replica dies. Prepare makes what it acts on and is called anew for each death.
type killed struct {
	prepare func(t *testing.T, s *scene)
	// before is what the replica that dies is asked first, if anything; it does not die of that.
	before func(t *testing.T, s *scene, p *harness.Process)
	// call sends the operation, whose replica may die on the way.
	call func(s *scene, url string) (harness.Reply, error)
	// retry is what the protocol has the caller do after a lost reply, on another replica.
	retry func(t *testing.T, s *scene, committed bool)
	// end drives what the retry has settled to receipts.
	end func(t *testing.T, s *scene)
}

// scene is a queue of its own for one death.
type scene struct {
	o      *harness.Orbit
	queue  string
	w      *worker
	tasks  []string
	offers []offer
	poll   chan error // gets the end of a claim that waits on the replica
}

func newScene(t *testing.T, o *harness.Orbit, name string, op killed) *scene {
	t.Helper()
	o.CreateQueue(name, policy())
	s := &scene{o: o, queue: name, w: openWorker(t, o, name, name)}
	op.prepare(t, s)
	return s
}

// batch is how many items the operations of workers have.
const killBatch = 2

func (s *scene) submit(t *testing.T) {
	t.Helper()
	for range killBatch {
		s.tasks = append(s.tasks, submit(t, s.o, s.queue))
	}
}

func (s *scene) items(more ...any) []any {
	var items []any
	for _, a := range s.offers {
		items = append(items, a.item(more...))
	}
	return items
}

// each sends the scene's items to a path of another replica than the one that died, and wants each to be taken.
func (s *scene) each(t *testing.T, path string, more ...any) []itemResult {
	t.Helper()
	var got struct {
		Items []itemResult `json:"items"`
	}
	s.w.call(path, map[string]any{"items": s.items(more...)}).Want(t, 200).JSON(t, &got)
	for _, i := range got.Items {
		wantItem(t, i, 200, "")
	}
	return got.Items
}

func (s *scene) sendTo(url, path string, body map[string]any) (harness.Reply, error) {
	w := *s.w
	w.url = url
	return w.send(path, body)
}

func (s *scene) sendSubmit(url string) (harness.Reply, error) {
	return harness.Do(s.w.t.Context(), url, s.o.Key, "POST", "/v1/tasks", map[string]any{"queue": s.queue, "type": "t"}, harness.Key(s.queue))
}

// waitForWork has the scene's worker wait for work on a replica.
func waitForWork(t *testing.T, s *scene, p *harness.Process) {
	t.Helper()
	s.poll = make(chan error, 1)
	go func() {
		r, err := s.sendTo(p.URL, claimPath, map[string]any{"claim_seq": 1, "max": killBatch, "wait_ms": 30_000})
		got, err := parse[claimed](r, err, 200)
		s.offers = got.Offers
		s.poll <- err
	}()
	p.AwaitParked(t, 1)
}

// retrySubmit is for who lost the receipt of a task.
func retrySubmit(t *testing.T, s *scene, committed bool) {
	r, err := s.sendSubmit(s.o.URL())
	if err != nil {
		t.Fatal(err)
	}
	var receipt struct {
		TaskID string `json:"task_id"`
	}
	r.Want(t, 201).JSON(t, &receipt)
	if replayed := r.Header.Get("Idempotency-Replayed") == "true"; replayed != committed {
		t.Fatalf("replayed: %t, committed: %t", replayed, committed)
	}
	s.tasks = []string{receipt.TaskID}
}

var killedOperations = map[string]killed{
	"submit": {
		prepare: func(*testing.T, *scene) {},
		call:    (*scene).sendSubmit,
		retry:   retrySubmit,
		end:     func(t *testing.T, s *scene) { s.runAll(t, s.w) },
	},
	"submit to a claim that waits": {
		prepare: func(*testing.T, *scene) {},
		before:  waitForWork,
		call:    (*scene).sendSubmit,
		retry: func(t *testing.T, s *scene, committed bool) {
			if err := <-s.poll; err == nil && (!committed || len(s.offers) != 1) {
				t.Fatalf("the claim was answered %+v, committed: %t", s.offers, committed)
			}
			var given struct {
				Items []itemResult `json:"items"`
			}
			s.w.call(releasePath, map[string]any{"claim_seq": 1}).Want(t, 200).JSON(t, &given)
			if handed := len(given.Items) == 1; handed != committed || len(given.Items) > 1 {
				t.Fatalf("%d offers given back, committed: %t", len(given.Items), committed)
			}
			s.w.seq = 1
			retrySubmit(t, s, committed)
		},
		end: func(t *testing.T, s *scene) { s.runAll(t, s.w) },
	},
	"claim": {
		prepare: func(t *testing.T, s *scene) { s.submit(t) },
		call: func(s *scene, url string) (harness.Reply, error) {
			return s.sendTo(url, claimPath, map[string]any{"claim_seq": 1, "max": killBatch})
		},
		retry: func(t *testing.T, s *scene, committed bool) {
			var given struct {
				Items []itemResult `json:"items"`
			}
			s.w.call(releasePath, map[string]any{"claim_seq": 1}).Want(t, 200).JSON(t, &given)
			if released := len(given.Items) == killBatch; released != committed || len(given.Items)%killBatch != 0 {
				t.Fatalf("%d offers given back, committed: %t", len(given.Items), committed)
			}
			s.w.seq = 1
			s.offers = s.w.claim(killBatch)
			for _, a := range s.offers {
				if a.AttemptNumber != 1 {
					t.Fatalf("a claim used an attempt: %+v", a)
				}
			}
			if len(s.offers) != killBatch {
				t.Fatalf("%d offers, want %d", len(s.offers), killBatch)
			}
		},
		end: func(t *testing.T, s *scene) {
			s.each(t, startPath)
			s.each(t, finishPath, "outcome", "succeeded", "result", 1)
		},
	},
	"start": {
		prepare: func(t *testing.T, s *scene) {
			s.submit(t)
			s.offers = s.w.claim(killBatch)
		},
		call: func(s *scene, url string) (harness.Reply, error) {
			return s.sendTo(url, startPath, map[string]any{"items": s.items()})
		},
		retry: func(t *testing.T, s *scene, _ bool) { s.each(t, startPath) },
		end: func(t *testing.T, s *scene) {
			s.each(t, finishPath, "outcome", "succeeded", "result", 1)
			for _, a := range s.offers {
				if n := countEvents(t, s.o, a.AttemptID)["attempt.started"]; n != 1 {
					t.Fatalf("the attempt started %d times", n)
				}
			}
		},
	},
	"finish": {
		prepare: func(t *testing.T, s *scene) {
			s.submit(t)
			s.offers = s.w.claim(killBatch)
			s.each(t, startPath)
		},
		call: func(s *scene, url string) (harness.Reply, error) {
			return s.sendTo(url, finishPath, map[string]any{"items": s.items("outcome", "succeeded", "result", 1)})
		},
		retry: func(t *testing.T, s *scene, committed bool) {
			for _, i := range s.each(t, finishPath, "outcome", "succeeded", "result", 1) {
				if i.Replayed != committed {
					t.Fatalf("replayed: %t, committed: %t", i.Replayed, committed)
				}
			}
		},
		end: func(*testing.T, *scene) {},
	},
}

// runAll claims, starts and finishes what the queue has.
func (s *scene) runAll(t *testing.T, w *worker) {
	t.Helper()
	for _, a := range w.claim(100) {
		wantItem(t, w.start(a), 200, "")
		wantItem(t, w.succeed(a, `1`), 200, "")
	}
}

// recover is what happens when neither the caller nor its worker comes back: time passes, recovery goes over what is left, and another
// worker takes it.
func (s *scene) recover(t *testing.T) {
	t.Helper()
	s.o.StayFresh(6 * time.Second)
	s.o.Pass("recover_leases")
	ready(s.o, 2*time.Minute)
	s.runAll(t, openWorker(t, s.o, s.queue+"-next", s.queue))
}

// wantLedger checks that each task ended once, with one receipt, and that nothing is stuck.
func (s *scene) wantLedger(t *testing.T) {
	t.Helper()
	for _, id := range s.tasks {
		wantState(t, s.o, id, "succeeded")
		if n := s.o.Count("pulse_attempt_receipts r JOIN pulse_attempts a ON a.namespace_id = r.namespace_id AND a.id = r.attempt_id WHERE a.task_id = UNHEX(?)", id); n != 1 {
			t.Fatalf("%d receipts", n)
		}
		if got := countEvents(t, s.o, id); got["task.accepted"] != 1 || got["task.succeeded"] != 1 {
			t.Fatalf("events %v", got)
		}
	}
	if n := s.o.Count("pulse_tasks t JOIN pulse_queues q ON q.namespace_id = t.namespace_id AND q.id = t.queue_id WHERE q.name = ?", s.queue); n != len(s.tasks) {
		t.Fatalf("%d tasks, want %d", n, len(s.tasks))
	}
	for _, table := range []string{"pulse_ready", "pulse_scheduled", "pulse_blocked", "pulse_attempts WHERE lease_until IS NOT NULL"} {
		if n := s.o.Count(table); n != 0 {
			t.Fatalf("%d rows are left in %s", n, table)
		}
	}
}

// A replica dies before and after each statement of an operation, its COMMIT included; the statements are those of a run without a death.
func TestAReplicaKilledInTheMiddle(t *testing.T) {
	for name, op := range killedOperations {
		t.Run(name, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			statements, before := statementsOf(t, o, op)
			t.Log(statements[:before], statements[before:])
			for n := before; n < len(statements); n++ {
				for _, kill := range []harness.Kill{{Statement: n + 1}, {Statement: n + 1, After: true}} {
					t.Run(fmt.Sprint(kill, " ", statements[n]), func(t *testing.T) { testKill(t, o, op, kill, statements[before:], before) })
				}
			}
		})
	}
}

// statementsOf are the statements of a replica that nobody disturbs, and how many of them come before the operation.
func statementsOf(t *testing.T, o *harness.Orbit, op killed) (statements []string, before int) {
	t.Helper()
	s := newScene(t, o, "undisturbed", op)
	p := o.StartProcess(t, harness.Kill{})
	if op.before != nil {
		op.before(t, s, p)
		before = len(p.Statements(t))
	}
	r, err := op.call(s, p.URL)
	if err != nil || r.Status/100 != 2 {
		t.Fatalf("%v: %d %s", err, r.Status, r.Body)
	}
	statements = p.Statements(t)
	if commits := len(slices.DeleteFunc(slices.Clone(statements[before:]), func(s string) bool { return s != string(harness.Commit) })); commits != 1 {
		t.Fatalf("%d commits in %v", commits, statements)
	}
	op.retry(t, s, true)
	op.end(t, s)
	s.wantLedger(t)
	if s.poll != nil && !slices.Contains(statements[before:], "InsertAttempt") {
		t.Fatalf("the task was not handed to the claim that waits: %v", statements[before:])
	}
	return statements, before
}

func testKill(t *testing.T, o *harness.Orbit, op killed, kill harness.Kill, statements []string, before int) {
	sent := statements[:kill.Statement-before-1]
	if kill.After {
		sent = statements[:kill.Statement-before]
	}
	committed := slices.Contains(sent, string(harness.Commit))
	die := func(t *testing.T, name string) (*scene, *harness.Process) {
		t.Helper()
		s := newScene(t, o, name, op)
		p := o.StartProcess(t, kill)
		if op.before != nil {
			op.before(t, s, p)
		}
		if r, err := op.call(s, p.URL); err == nil {
			t.Fatalf("the replica answered %d %s", r.Status, r.Body)
		}
		p.AwaitKill(t)
		return s, p
	}
	name := fmt.Sprint("kill-", kill.Statement, "-", kill.After)
	s, _ := die(t, name)
	op.retry(t, s, committed)
	op.end(t, s)
	s.wantLedger(t)
	if !kill.After {
		return // for the database it is the same as after the statement before
	}
	s, p := die(t, name+"-alone")
	p.AwaitSessions(t)
	if len(s.tasks) == 0 && committed {
		s.tasks = []string{value[string](t, o, "SELECT LOWER(HEX(t.id)) FROM pulse_tasks t JOIN pulse_queues q ON q.namespace_id = t.namespace_id AND q.id = t.queue_id WHERE q.name = ?", s.queue)}
	}
	s.recover(t)
	s.wantLedger(t)
}
