package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func trigger(t testing.TB, o *harness.Orbit, id, key string, body any) occurrence {
	t.Helper()
	var c occurrence
	o.Call("POST", "/v1/schedules/"+id+":trigger", body, harness.Key(key)).Want(t, 200).JSON(t, &c)
	return c
}

func TestTriggerScheduleFiresNowBesideTheTimetable(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "timetable", map[string]any{"cron": "* * * * *", "jitter_ms": 50_000}))
	got := trigger(t, o, s.ID, "k", `{"reason":"now"}`)
	if got.Source != "trigger" || got.Outcome != "fired" || got.FireAt.Nanosecond()%1_000_000 == 0 {
		t.Fatalf("%+v", got)
	}
	if task := getTask(t, o, got.TaskID); !task.RunAt.Equal(got.FireAt) || task.Waiting.Kind != "ready" {
		t.Fatalf("%+v", task)
	}
	if again := trigger(t, o, s.ID, "k", `{"reason":"now"}`); again != got {
		t.Fatalf("a repeat answered %+v", again)
	}
	if skipped := trigger(t, o, s.ID, "k2", nil); skipped.Outcome != "skipped" || skipped.Code != "running" {
		t.Fatalf("while the first runs: %+v", skipped)
	}
	if beside := trigger(t, o, s.ID, "k3", `{"run_overlap":"allow"}`); beside.Outcome != "fired" {
		t.Fatalf("beside the first: %+v", beside)
	}
	after := getSchedule(t, o, s.ID)
	if !after.Watermark.Equal(s.Watermark) || !after.NextFireAt.Equal(s.NextFireAt) || after.Revision != 1 {
		t.Fatalf("triggers moved the schedule: %+v", after)
	}
	o.Call("POST", "/v1/schedules/"+s.ID+":pause", `{"reason":"x"}`, harness.Key("p")).Want(t, 200)
	if paused := trigger(t, o, s.ID, "k4", `{"run_overlap":"allow"}`); paused.Outcome != "fired" {
		t.Fatalf("while paused: %+v", paused)
	}
	if n := o.Count("orbit_audit_events WHERE action = 'triggerSchedule'"); n != 4 {
		t.Errorf("4 triggers were audited %d times", n)
	}
}

func TestManyTriggersAtOnceWithSkipFireOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	s := createSchedule(t, o, everyMinute("s"))
	fired := 0
	for _, r := range race(t, 10, func(i int) (harness.Reply, error) {
		return harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/schedules/"+s.ID+":trigger", nil, harness.Key(fmt.Sprint(i)))
	}) {
		var c occurrence
		r.Want(t, 200).JSON(t, &c)
		if c.Outcome == "fired" {
			fired++
		}
	}
	if fired != 1 || o.Count("pulse_tasks") != 1 || o.Count("pulse_schedule_occurrences") != 10 {
		t.Errorf("%d of 10 fired, %d tasks, %d occurrences", fired, o.Count("pulse_tasks"), o.Count("pulse_schedule_occurrences"))
	}
}

type backfillReport struct{ Fired, Buffered, Skipped, Known int }

func backfill(t testing.TB, o *harness.Orbit, id, key string, from, to time.Time, more ...any) backfillReport {
	t.Helper()
	body := map[string]any{"from": from, "to": to}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	var r backfillReport
	o.Call("POST", "/v1/schedules/"+id+":backfill", body, harness.Key(key)).Want(t, 200).JSON(t, &r)
	return r
}

func TestBackfillScheduleFiresWhatHasNotFired(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	start := nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s"))
	for range 3 {
		nextMinute(t, o)
		fireAll(t, o) // fired, skipped, skipped
	}
	if got := outcomes(t, o, s.ID); got != "fired skipped skipped" {
		t.Fatalf("%s", got)
	}
	from, to := start.Add(-2*time.Minute), start.Add(3*time.Minute)
	if got := backfill(t, o, s.ID, "b1", from, to, "run_overlap", "allow"); got != (backfillReport{Fired: 5, Known: 1}) {
		t.Fatalf("%+v", got)
	}
	if got := outcomes(t, o, s.ID); got != "fired fired fired fired fired fired" {
		t.Fatalf("%s", got)
	}
	if got := backfill(t, o, s.ID, "b1", from, to, "run_overlap", "allow"); got != (backfillReport{Fired: 5, Known: 1}) {
		t.Fatalf("a repeat: %+v", got)
	}
	if got := backfill(t, o, s.ID, "b2", from, to, "run_overlap", "allow"); got != (backfillReport{Known: 6}) {
		t.Fatalf("another one: %+v", got)
	}
	earlier := from.Add(-10 * time.Minute)
	if got := backfill(t, o, s.ID, "b3", earlier, from.Add(-time.Minute), "run_overlap", "buffer_all"); got != (backfillReport{Buffered: 10}) {
		t.Fatalf("while others run: %+v", got)
	}
	w := openWorker(t, o, "w", "q")
	for range 16 {
		w.end()
	}
	for i, c := range occurrences(t, o, s.ID) {
		if c.Outcome != "fired" || c.Running || !c.FireAt.Equal(earlier.Add(time.Duration(i)*time.Minute)) {
			t.Fatalf("%d: %+v", i, c)
		}
	}
	if tasks := o.Count("pulse_tasks"); tasks != 16 {
		t.Errorf("16 instants have %d tasks", tasks)
	}
	for _, c := range []struct {
		from, to time.Time
		code     string
	}{
		{to, from, "before_from"},
		{from, to.Add(time.Hour), "not_past"},
		{from.Add(-24 * time.Hour), from, "too_many_instants"},
	} {
		p := o.Call("POST", "/v1/schedules/"+s.ID+":backfill", map[string]any{"from": c.from, "to": c.to}, harness.Key("bad")).WantProblem(t, 400, "invalid_request")
		if p.Errors[0].Code != c.code {
			t.Errorf("%s to %s: %+v, want %s", c.from, c.to, p.Errors, c.code)
		}
	}
}

func TestBackfillsAtOnceFireAnInstantOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	start := nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s"))
	race(t, 6, func(i int) (harness.Reply, error) {
		r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/schedules/"+s.ID+":backfill",
			map[string]any{"from": start.Add(-20 * time.Minute), "to": start, "run_overlap": "allow"}, harness.Key(fmt.Sprint(i)))
		_, err = parse[backfillReport](r, err, 200)
		return r, err
	})
	if n := o.Count("pulse_tasks"); n != 21 {
		t.Errorf("21 instants have %d tasks", n)
	}
}
