package integration_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/integration/harness"
)

// saboteur fails one statement of a replica.
type saboteur struct {
	mu    sync.Mutex
	armed bool
	left  int // statements before the one that fails
	fail  func(run func() error) error
	name  string // of the statement that failed
}

func (s *saboteur) arm(k int, fail func(run func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.left, s.fail, s.name = true, k, fail, ""
}

// hit disarms, and tells which statement failed, if one did.
func (s *saboteur) hit() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	return s.name
}

func (s *saboteur) around(st harness.Statement, run func() error) error {
	s.mu.Lock()
	fail := s.fail
	if !s.armed || s.left > 0 {
		s.left--
		fail = nil
	} else {
		s.armed, s.name = false, st.Name()
	}
	s.mu.Unlock()
	if fail != nil {
		return fail(run)
	}
	return run()
}

// Whatever statement fails, and however, another replica's next pass leaves each instant with one occurrence and one task, and what ran before
// with its end.
func TestEveryStatementOfAFireMayFail(t *testing.T) {
	cut := func(run func() error) error { return mysql.ErrInvalidConn }
	for name, fail := range map[string]func(run func() error) error{
		"cut before it was done": cut,
		"cut after it was done":  func(run func() error) error { return errors.Join(run(), mysql.ErrInvalidConn) },
		"deadlock":               func(func() error) error { return &mysql.MySQLError{Number: 1213, Message: "Deadlock found"} },
		"lock wait": func(func() error) error {
			return &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
		},
		"bad connection": func(func() error) error { return driver.ErrBadConn },
	} {
		t.Run(name, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			var s saboteur
			o.AddReplica(harness.Options{Between: harness.Around(s.around)})
			o.CreateQueue("q", nil)
			nextMinute(t, o)
			ids := map[string]string{}
			for _, policy := range []string{"allow", "skip", "buffer_all", "cancel_running"} {
				ids[policy] = createSchedule(t, o, everyMinute(policy, "run_overlap", policy)).ID
			}
			fired := 0
			failed := map[string]bool{}
			for k := 0; ; k++ {
				at := nextMinute(t, o)
				fired++
				s.arm(k, fail)
				_, _ = pass(t, o, "fire_schedules", 1)
				hit := s.hit()
				failed[hit] = true
				fireOverdue(t, o)
				for policy, id := range ids {
					all := occurrences(t, o, id)
					if len(all) != fired || !all[fired-1].FireAt.Equal(at) {
						t.Fatalf("%s, statement %d (%s): %d occurrences of %d instants", policy, k, hit, len(all), fired)
					}
				}
				if n, want := o.Count("pulse_tasks"), o.Count("pulse_schedule_occurrences WHERE outcome = 'fired'"); n != want {
					t.Fatalf("statement %d (%s): %d tasks of %d occurrences that fired", k, hit, n, want)
				}
				if hit == "" {
					break
				}
			}
			for _, statement := range []string{"DueSchedules", "BEGIN", "LockSchedules", "ListCurrentVersions", "InsertOccurrence", "InsertTask", "MoveSchedule", "InsertSpool", "COMMIT"} {
				if !failed[statement] {
					t.Errorf("%s never failed", statement)
				}
			}
		})
	}
}

// fireOverdue runs passes until nothing is due: a session that was cut off holds its schedules until the server notices.
func fireOverdue(t *testing.T, o *harness.Orbit) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for fireAll(t, o); o.Count("pulse_schedules WHERE next_fire_at <= TIMESTAMPADD(MICROSECOND, ?, NOW(6))", o.Offset().Microseconds()) > 0; fireAll(t, o) {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatal("schedules stay overdue")
		}
	}
}

// The end of a task begins what waits even while a fire is on its way: whichever commits first, nothing waits for nobody.
func TestAFireAndTheEndOfATaskAtOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "buffer_one"))
	nextMinute(t, o)
	fireAll(t, o)
	for round := range 15 {
		o.Pass("renew_replica")
		running := w.run()
		nextMinute(t, o)
		race(t, 2, func(i int) (int, error) {
			if i == 0 {
				return pass(t, o, "fire_schedules", 1)
			}
			_, err := w.sendItem("/v1/attempts:finish", running.item("outcome", "succeeded", "result", 1))
			return 0, err
		})
		fireAll(t, o)
		if n := o.Count("pulse_schedule_occurrences WHERE outcome = 'buffered'"); n != 0 {
			if begun := o.Pass("release_buffered"); begun != 1 {
				t.Fatalf("round %d: %d wait, and the scan began %d", round, n, begun)
			}
		}
		if got := occurrences(t, o, s.ID); got[len(got)-1].Outcome != "fired" || !got[len(got)-1].Running {
			t.Fatalf("round %d: %+v", round, got[len(got)-1])
		}
	}
}

// A schedule that somebody holds stalls only itself.
func TestOneHeldScheduleDoesNotKeepOthersFromFiring(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	held := createSchedule(t, o, everyMinute("held"))
	for i := range 5 {
		createSchedule(t, o, everyMinute(fmt.Sprint("s", i)))
	}
	nextMinute(t, o)
	release := holdRows(t, o, "pulse_schedules WHERE id = UNHEX(?)", held.ID)
	if n := o.Pass("fire_schedules"); n != 5 {
		t.Fatalf("%d instants beside a held schedule, want 5", n)
	}
	release()
	if n := o.Pass("fire_schedules"); n != 1 {
		t.Fatalf("%d instants, want that of the schedule that was held", n)
	}
}

// The scan begins what the end of a task could not, since the schedule was held at that moment.
func TestReleaseBufferedRepairsWhatWasHeld(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "buffer_one"))
	trigger(t, o, s.ID, "t1", nil)
	trigger(t, o, s.ID, "t2", nil)
	running := w.run()
	release := holdRows(t, o, "pulse_schedules WHERE id = UNHEX(?)", s.ID)
	wantItem(t, w.succeed(running, `1`), 200, "")
	if got := outcomes(t, o, s.ID); got != "fired buffered" {
		t.Fatalf("%s", got)
	}
	release()
	if n := o.Pass("release_buffered"); n != 1 {
		t.Fatalf("the scan began %d, want 1", n)
	}
	if got := outcomes(t, o, s.ID); got != "fired fired" {
		t.Fatalf("%s", got)
	}
}

// Every way in which a task ends, or comes back, is counted.
func TestOccurrencesFollowTheirTasks(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", map[string]any{"lease_ms": 5000, "max_attempts": 1, "unknown_outcome": "review"})
	w := openWorker(t, o, "w", "q")
	s := createSchedule(t, o, everyMinute("s", "task", map[string]any{"queue": "q", "type": "t", "deadline_ms": 3_600_000}))
	n := 0
	next := func() occurrence {
		t.Helper()
		n++
		c := trigger(t, o, s.ID, fmt.Sprint("t", n), nil)
		if c.Outcome != "fired" {
			t.Fatalf("trigger %d: %+v", n, c)
		}
		return c
	}
	busy := func() {
		t.Helper()
		n++
		if c := trigger(t, o, s.ID, fmt.Sprint("t", n), nil); c.Outcome != "skipped" {
			t.Fatalf("trigger %d: %+v", n, c)
		}
	}
	cancelled := next()
	o.Call("POST", "/v1/tasks/"+cancelled.TaskID+":cancel", nil, harness.Key("c")).Want(t, 200)

	failed := next()
	wantItem(t, w.fail(w.run(), false), 200, "")
	o.Call("POST", "/v1/tasks/"+failed.TaskID+":retry", nil, harness.Key("r")).Want(t, 200)
	busy()
	w.end()

	reviewed := next()
	w.run()
	o.StayFresh(6 * time.Second)
	o.Pass("recover_leases")
	wantState(t, o, reviewed.TaskID, "review")
	busy()
	tag := o.Call("GET", "/v1/tasks/"+reviewed.TaskID, nil).Want(t, 200).Header.Get("ETag")
	o.Call("POST", "/v1/tasks/"+reviewed.TaskID+":resolve", `{"resolution":"retry","reason":"x"}`, harness.Key("again"), ifMatch(tag)).Want(t, 200)
	busy()
	w.run()
	o.StayFresh(6 * time.Second)
	o.Pass("recover_leases")
	tag = o.Call("GET", "/v1/tasks/"+reviewed.TaskID, nil).Want(t, 200).Header.Get("ETag")
	o.Call("POST", "/v1/tasks/"+reviewed.TaskID+":resolve", `{"resolution":"fail","reason":"x"}`, harness.Key("fail"), ifMatch(tag)).Want(t, 200)

	expired := next()
	o.Advance(2 * time.Hour)
	o.Pass("expire_deadlines")
	wantState(t, o, expired.TaskID, "failed")
	next()
	w.end()

	// Retention removes both, and what is left is whole.
	o.Call("POST", "/v1/schedules/"+s.ID+":pause", `{"reason":"x"}`, harness.Key("p")).Want(t, 200)
	o.Advance(9 * 24 * time.Hour)
	o.Pass("retain_tasks")
	if removed := o.Pass("retain_occurrences"); removed != n || o.Count("pulse_schedule_occurrences") != 0 {
		t.Fatalf("%d occurrences were removed, of %d", removed, n)
	}
}
