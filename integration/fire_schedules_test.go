package integration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestFireSchedulesMakesATaskAnInstant(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "task", map[string]any{"queue": "q", "type": "report.make",
		"payload": rawJSON(`{"n": 1.000}`), "priority": 2, "max_attempts": 3, "deadline_ms": 90_000}))
	if n := o.Pass("fire_schedules"); n != 0 {
		t.Fatalf("%d instants were due at once", n)
	}
	at := nextMinute(t, o)
	if !s.NextFireAt.Equal(at) {
		t.Fatalf("the next fire was said to be at %s, want %s", s.NextFireAt, at)
	}
	if n := o.Pass("fire_schedules"); n != 1 {
		t.Fatalf("%d instants were dealt with, want 1", n)
	}
	if n := o.Pass("fire_schedules"); n != 0 {
		t.Fatalf("%d instants were dealt with again", n)
	}
	all := occurrences(t, o, s.ID)
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	got := all[0]
	if !got.FireAt.Equal(at) || got.Outcome != "fired" || got.Source != "timetable" || got.Version != 1 || !got.Running || got.ScheduleID != s.ID {
		t.Fatalf("%+v", got)
	}
	task := getTask(t, o, got.TaskID)
	if task.Type != "report.make" || task.Payload != `{"n":1.000}` || task.Priority != 2 || task.MaxAttempts != 3 || !task.RunAt.Equal(at) {
		t.Fatalf("%+v", task)
	}
	var origin struct {
		Origin struct {
			Kind, ID   string
			ScheduleID string    `json:"schedule_id"`
			FireAt     time.Time `json:"fire_at"`
		}
	}
	o.Call("GET", "/v1/tasks/"+got.TaskID, nil).Want(t, 200).JSON(t, &origin)
	if c := origin.Origin; task.QueueID != queue || c.Kind != "schedule" || c.ID != got.ID || c.ScheduleID != s.ID || !c.FireAt.Equal(at) {
		t.Fatalf("origin is %+v", c)
	}
	if after := getSchedule(t, o, s.ID); !after.Watermark.Equal(at) || !after.NextFireAt.Equal(at.Add(time.Minute)) || after.Revision != 1 {
		t.Fatalf("%+v", after)
	}
	w := openWorker(t, o, "w", "q")
	w.end()
	if got := occurrences(t, o, s.ID)[0]; got.Running {
		t.Fatalf("its task has ended, and it runs: %+v", got)
	}
	if counts := countEvents(t, o, got.ID); counts["schedule.fired"] != 1 {
		t.Fatalf("events: %v", counts)
	}
}

// Instants of days on which clocks change are those of the timetable: the loop has no opinion of its own.
func TestFireSchedulesKeepsToTheZone(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	setClock(t, o, time.Date(2028, 3, 25, 12, 0, 0, 0, time.UTC))
	ids := map[string]string{}
	for name, more := range map[string]map[string]any{
		"shift": {}, "skip": {"gap": "skip"}, "both": {"overlap": "both"},
	} {
		table := map[string]any{"cron": "30 2 * * *", "zone": "Europe/Berlin"}
		for k, v := range more {
			table[k] = v
		}
		ids[name] = createSchedule(t, o, everyMinute(name, "timetable", table, "run_overlap", "allow", "catch_up_window_ms", 2_678_400_000)).ID
	}
	setClock(t, o, time.Date(2028, 3, 26, 12, 0, 0, 0, time.UTC))
	fireAll(t, o)
	for name, want := range map[string]int{"shift": 1, "skip": 0, "both": 1} {
		all := occurrences(t, o, ids[name])
		if len(all) != want || want == 1 && !all[0].FireAt.Equal(time.Date(2028, 3, 26, 1, 0, 0, 0, time.UTC)) {
			t.Errorf("%s, in the gap: %+v", name, all)
		}
	}
	for _, id := range ids {
		o.Call("POST", "/v1/schedules/"+id+":pause", `{"reason":"summer"}`, harness.Key("p"+id)).Want(t, 200)
	}
	setClock(t, o, time.Date(2028, 10, 28, 12, 0, 0, 0, time.UTC))
	for _, id := range ids {
		o.Call("POST", "/v1/schedules/"+id+":resume", nil, harness.Key("r"+id)).Want(t, 200)
	}
	setClock(t, o, time.Date(2028, 10, 29, 12, 0, 0, 0, time.UTC))
	fireAll(t, o)
	for name, want := range map[string]int{"shift": 2, "skip": 1, "both": 3} {
		if all := occurrences(t, o, ids[name]); len(all) != want {
			t.Errorf("%s, in the overlap: %+v", name, all)
		}
	}
}

func TestAnInstantFiresOnceOnManyReplicas(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 3})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	const schedules = 30
	for i := range schedules {
		createSchedule(t, o, everyMinute(fmt.Sprint("s", i), "run_overlap", "allow"))
	}
	for minute := 1; minute <= 3; minute++ {
		nextMinute(t, o)
		moved := race(t, 9, func(i int) (int, error) { return pass(t, o, "fire_schedules", i%3) })
		sum := fireAll(t, o)
		for _, n := range moved {
			sum += n
		}
		if got := o.Count("pulse_schedule_occurrences"); sum != schedules || got != minute*schedules || o.Count("pulse_tasks") != got {
			t.Fatalf("minute %d: %d instants were dealt with, %d occurrences, %d tasks", minute, sum, got, o.Count("pulse_tasks"))
		}
	}
}

// Whoever comes first, the instant fires under the version before and once, and the new version begins after it.
func TestAnEditAndAFireAtOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	for round := range 10 {
		s := createSchedule(t, o, everyMinute(fmt.Sprint("s", round), "run_overlap", "allow"))
		at := nextMinute(t, o)
		race(t, 4, func(i int) (int, error) {
			if i < 3 {
				return pass(t, o, "fire_schedules", i%2)
			}
			r, err := harness.Do(t.Context(), o.URL(), o.Key, "PUT", "/v1/schedules/"+s.ID, version(everyMinute("", "run_overlap", "allow", "task", map[string]any{"queue": "q", "type": "new"})), ifMatch(`"1"`))
			_, err = parse[schedule](r, err, 200)
			return 0, err
		})
		fireAll(t, o)
		all := occurrences(t, o, s.ID)
		if len(all) != 1 || !all[0].FireAt.Equal(at) || all[0].Version != 1 || getTask(t, o, all[0].TaskID).Type != "t" {
			t.Fatalf("round %d: %+v", round, all)
		}
		if got := getSchedule(t, o, s.ID); got.Version != 2 || !got.NextFireAt.Equal(at.Add(time.Minute)) {
			t.Fatalf("round %d: %+v", round, got)
		}
		o.Call("POST", "/v1/schedules/"+s.ID+":archive", `{"reason":"done"}`, harness.Key("a"+s.ID)).Want(t, 200)
	}
}

func TestNothingIsMissedWhenNoReplicaRan(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "allow"))
	first := s.NextFireAt
	o.Advance(20 * time.Hour)
	if n := fireAll(t, o); n != 20*60 {
		t.Fatalf("%d instants of 20 hours were dealt with, want %d", n, 20*60)
	}
	for i, c := range occurrences(t, o, s.ID) {
		if c.Outcome != "fired" || !c.FireAt.Equal(first.Add(time.Duration(i)*time.Minute)) {
			t.Fatalf("instant %d: %+v", i, c)
		}
	}
}

func TestWhatIsTooOldOrTooMuchIsMissedAndSaysSo(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	window := createSchedule(t, o, everyMinute("window", "run_overlap", "allow", "catch_up_window_ms", 600_000))
	most := createSchedule(t, o, everyMinute("most", "run_overlap", "allow", "catch_up_max", 3))
	nextMinute(t, o)
	o.Advance(19 * time.Minute)
	fireAll(t, o)
	count := func(id string) map[string]int {
		counts := map[string]int{}
		for i, c := range occurrences(t, o, id) {
			counts[c.Outcome+c.Code]++
			if i > 0 && c.Outcome == "missed" && counts["fired"] > 0 {
				t.Errorf("%+v is missed, though an earlier instant was made up for", c)
			}
		}
		return counts
	}
	if got := count(window.ID); got["missedtoo_old"] != 10 || got["fired"] != 10 {
		t.Errorf("a window of 10 minutes: %v", got)
	}
	// The last instant is no minute old: it is made up for by nobody, but in time.
	if got := count(most.ID); got["missedtoo_many"] != 16 || got["fired"] != 4 {
		t.Errorf("at most 3 late ones: %v", got)
	}
}

func TestOverlapOfRuns(t *testing.T) {
	for policy, want := range map[string]struct{ while, after string }{
		"skip":           {"fired skipped skipped skipped", "fired skipped skipped skipped"},
		"buffer_one":     {"fired buffered skipped skipped", "fired fired skipped skipped"},
		"buffer_all":     {"fired buffered buffered buffered", "fired fired buffered buffered"},
		"allow":          {"fired fired fired fired", "fired fired fired fired"},
		"cancel_running": {"fired skipped skipped buffered", "fired skipped skipped fired"},
	} {
		t.Run(policy, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			o.CreateQueue("q", nil)
			w := openWorker(t, o, "w", "q")
			nextMinute(t, o)
			s := createSchedule(t, o, everyMinute("s", "run_overlap", policy))
			nextMinute(t, o)
			fireAll(t, o)
			running := w.run()
			for range 3 {
				nextMinute(t, o)
				o.Pass("renew_replica")
				fireAll(t, o)
			}
			if got := outcomes(t, o, s.ID); got != want.while {
				t.Fatalf("while the first ran: %s, want %s", got, want.while)
			}
			if policy == "cancel_running" {
				if got := w.heartbeat(running); !got.Attempt.CancelRequested {
					t.Fatalf("the running task was not asked to stop: %+v", got)
				}
			}
			wantItem(t, w.succeed(running, `1`), 200, "")
			if got := outcomes(t, o, s.ID); got != want.after {
				t.Fatalf("after its end: %s, want %s", got, want.after)
			}
			if policy == "buffer_all" {
				w.end()
				w.end()
				w.end()
				if got := outcomes(t, o, s.ID); got != "fired fired fired fired" {
					t.Fatalf("after all: %s", got)
				}
			}
			if n := o.Pass("release_buffered"); n != 0 {
				t.Fatalf("the scan had to begin %d", n)
			}
		})
	}
}

// A task that only waits is cancelled at once, and the instant fires at once.
func TestCancelRunningReplacesWhatHasNotBegun(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "cancel_running"))
	nextMinute(t, o)
	fireAll(t, o)
	nextMinute(t, o)
	fireAll(t, o)
	all := occurrences(t, o, s.ID)
	if len(all) != 2 || all[0].Running || !all[1].Running {
		t.Fatalf("%+v", all)
	}
	wantState(t, o, all[0].TaskID, "cancelled")
	wantState(t, o, all[1].TaskID, "queued")
}

func TestJitterDelaysTheTaskAsThePreviewSaid(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "allow", "timetable", map[string]any{"cron": "* * * * *", "jitter_ms": 50_000}))
	var preview struct {
		Items []struct {
			FireAt time.Time `json:"fire_at"`
			RunAt  time.Time `json:"run_at"`
		}
	}
	o.Call("POST", "/v1/schedules:preview", map[string]any{"schedule_id": s.ID, "count": 5}).Want(t, 200).JSON(t, &preview)
	delays := map[time.Duration]bool{}
	for range 5 {
		nextMinute(t, o)
		fireAll(t, o)
	}
	for i, c := range occurrences(t, o, s.ID) {
		want := preview.Items[i]
		if got := getTask(t, o, c.TaskID); !c.FireAt.Equal(want.FireAt) || !got.RunAt.Equal(want.RunAt) {
			t.Errorf("instant %d: at %s and %s, the preview said %s and %s", i, c.FireAt, got.RunAt, want.FireAt, want.RunAt)
		}
		delays[want.RunAt.Sub(want.FireAt)] = true
	}
	if len(delays) < 3 {
		t.Errorf("5 instants have the delays %v", delays)
	}
}

func TestAScheduleEndsWithItsTimetable(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	minute := nextMinute(t, o)
	once := createSchedule(t, o, everyMinute("once", "timetable", map[string]any{"at": minute.Add(2 * time.Minute)}))
	bound := createSchedule(t, o, everyMinute("bound", "run_overlap", "allow",
		"timetable", map[string]any{"every_ms": 60_000, "starts_at": minute.Add(2 * time.Minute), "ends_at": minute.Add(4 * time.Minute)}))
	o.Advance(10 * time.Minute)
	fireAll(t, o)
	for id, want := range map[string][]time.Time{once.ID: {minute.Add(2 * time.Minute)}, bound.ID: {minute.Add(2 * time.Minute), minute.Add(3 * time.Minute)}} {
		var got []time.Time
		for _, c := range occurrences(t, o, id) {
			got = append(got, c.FireAt)
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("fired at %v, want %v", got, want)
		}
		if s := getSchedule(t, o, id); !s.NextFireAt.IsZero() {
			t.Errorf("it is over, but fires next at %s", s.NextFireAt)
		}
	}
}
