package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestCreateScheduleAnswersWhatItMade(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	body := everyMinute("nightly", "timetable", map[string]any{"cron": "30 2 * * mon-fri", "zone": "Europe/Berlin"})
	r := o.Call("POST", "/v1/schedules", body, harness.Key("k")).Want(t, 201)
	var s schedule
	r.JSON(t, &s)
	if r.Header.Get("Location") != "/v1/schedules/"+s.ID || r.Header.Get("ETag") != `"1"` || s.Version != 1 || s.Revision != 1 || s.Task.QueueID != queue {
		t.Fatalf("%v %s", r.Header, r.Body)
	}
	if s.RunOverlap != "skip" || s.CatchUpWindowMs != 86_400_000 || s.CatchUpMax != 1440 || s.Timetable["gap"] != "shift" || s.Timetable["overlap"] != "first" || s.Task.Priority != 5 || s.Task.Payload != "null" {
		t.Errorf("defaults: %s", r.Body)
	}
	again := o.Call("POST", "/v1/schedules", body, harness.Key("k")).Want(t, 201)
	if string(again.Body) != string(r.Body) || !replayed(again) {
		t.Errorf("a repeat answered %s", again.Body)
	}
	o.Call("POST", "/v1/schedules", body, harness.Key("k2")).WantProblem(t, 409, "state_conflict")
	o.Call("POST", "/v1/schedules", everyMinute("x", "task", map[string]any{"queue": "none", "type": "t"}), harness.Key("k3")).WantProblem(t, 404, "not_found")
	if counts := countEvents(t, o, s.ID); counts["schedule.created"] != 1 || o.Count("pulse_schedules") != 1 || o.Count("pulse_schedule_versions") != 1 {
		t.Errorf("events %v, %d schedules", counts, o.Count("pulse_schedules"))
	}
}

func TestCreateScheduleRefusesWhatIsNone(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	task := func(more string) string {
		return `{"name":"s","timetable":{"cron":"@daily"},"task":{"queue":"q","type":"t"` + more + `}}`
	}
	table := func(members string) string {
		return `{"name":"s","timetable":{` + members + `},"task":{"queue":"q","type":"t"}}`
	}
	for _, c := range []struct{ body, pointer, code string }{
		{table(``), "/timetable/cron", "one_of"},
		{table(`"cron":"@daily","every_ms":1000`), "/timetable/cron", "one_of"},
		{table(`"cron":"61 * * * *"`), "/timetable/cron", "cron"},
		{table(`"cron":"@daily","zone":"Europe/Nowhere"`), "/timetable/zone", "unknown_zone"},
		{table(`"calendar":["2026-02-30T00:00"]`), "/timetable/calendar", "wall_time"},
		{table(`"every_ms":1000,"phase_ms":1000`), "/timetable/phase_ms", "out_of_range"},
		{table(`"at":"2001-01-01T00:00:00Z"`), "/timetable", "never_fires"},
		{table(`"cron":"0 0 30 2 *"`), "/timetable", "never_fires"},
		{table(`"cron":"@daily","ends_at":"2001-01-01T00:00:00Z"`), "/timetable", "never_fires"},
		{table(`"cron":"@daily","starts_at":"2100-01-01T00:00:00Z","ends_at":"2099-01-01T00:00:00Z"`), "/timetable/ends_at", "not_after_start"},
		{task(`,"queue_id":"` + strings.Repeat("0", 32) + `"`), "/task/queue", "one_of"},
		{strings.Replace(task(``), `"name":"s"`, `"name":"`+strings.Repeat("a", 32)+`"`, 1), "/name", "looks_like_an_id"},
	} {
		p := o.Call("POST", "/v1/schedules", c.body, harness.Key("k")).WantProblem(t, 400, "invalid_request")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != c.pointer || p.Errors[0].Code != c.code {
			t.Errorf("%s: %+v, want %s %s", c.body, p.Errors, c.pointer, c.code)
		}
	}
	for _, bad := range []string{table(`"every_ms":999`), table(`"cron":"@daily","gap":"jump"`), task(`,"priority":10`), task(`,"colour":1`), task(`,"max_attempts":0`),
		`{"name":"s","timetable":{"cron":"@daily"}}`, strings.Replace(task(``), `"name":"s"`, `"name":"s","run_overlap":"maybe"`, 1), strings.Replace(task(``), `"name":"s"`, `"name":"s","catch_up_window_ms":1`, 1)} {
		o.Call("POST", "/v1/schedules", bad, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	}
	o.Call("POST", "/v1/schedules", task(`,"payload":"`+strings.Repeat("a", 1<<20)+`"`), harness.Key("k")).WantProblem(t, 413, "payload_too_large")
	if n := o.Count("pulse_schedules"); n != 0 {
		t.Errorf("%d schedules were made", n)
	}
	o.Call("POST", "/v1/schedules", task(``), harness.Key("k")).Want(t, 201)
}

func TestOfManyCreationsOfOneScheduleOneWins(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	won := 0
	for _, r := range race(t, 8, func(i int) (harness.Reply, error) {
		return harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/schedules", everyMinute("s"), harness.Key(fmt.Sprint(i)))
	}) {
		if r.Status == 201 {
			won++
		} else {
			r.WantProblem(t, 409, "state_conflict")
		}
	}
	if won != 1 {
		t.Errorf("%d of 8 made one schedule", won)
	}
}

func TestUpdateSchedulePublishesAnImmutableVersion(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	other := o.CreateQueue("other", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "allow"))
	path := "/v1/schedules/" + s.ID
	hourly := map[string]any{"run_overlap": "allow", "timetable": map[string]any{"every_ms": 3_600_000}, "task": map[string]any{"queue_id": other, "type": "u", "payload": 7}}
	o.Call("PUT", path, hourly).WantProblem(t, 428, "precondition_required")
	o.Call("PUT", path, hourly, ifMatch(`"9"`)).WantProblem(t, 412, "revision_mismatch")
	o.Call("PUT", path, map[string]any{"timetable": map[string]any{"at": "2001-01-01T00:00:00Z"}, "task": hourly["task"]}, ifMatch(`"1"`)).WantProblem(t, 400, "invalid_request")

	// What is due when the change comes fires under the version before.
	at := nextMinute(t, o)
	r := o.Call("PUT", path, hourly, ifMatch(`"1"`)).Want(t, 200)
	var changed schedule
	r.JSON(t, &changed)
	if r.Header.Get("ETag") != `"2"` || changed.Version != 2 || changed.Task.Type != "u" || changed.Timetable["cron"] != nil {
		t.Fatalf("%v %s", r.Header, r.Body)
	}
	all := occurrences(t, o, s.ID)
	if len(all) != 1 || !all[0].FireAt.Equal(at) || all[0].Version != 1 || getTask(t, o, all[0].TaskID).Type != "t" {
		t.Fatalf("%+v", all)
	}
	o.Call("PUT", path, hourly, ifMatch(`"1"`)).WantProblem(t, 412, "revision_mismatch")
	o.Advance(time.Hour)
	fireAll(t, o)
	all = occurrences(t, o, s.ID)
	if len(all) != 2 || all[1].Version != 2 || getTask(t, o, all[1].TaskID).Type != "u" || all[1].FireAt.Minute() != 0 {
		t.Fatalf("%+v", all)
	}
	var versions struct {
		Items []struct {
			Version   int64          `json:"version"`
			Timetable map[string]any `json:"timetable"`
			ActorID   string         `json:"actor_id"`
			Task      struct {
				Payload rawJSON `json:"payload"`
			} `json:"task"`
		} `json:"items"`
		NextCursor string `json:"next_cursor"`
	}
	o.Call("GET", path+"/versions?limit=1", nil).Want(t, 200).JSON(t, &versions)
	if len(versions.Items) != 1 || versions.Items[0].Version != 2 || versions.Items[0].Task.Payload != "" || versions.NextCursor == "" {
		t.Fatalf("%+v", versions)
	}
	cursor := versions.NextCursor
	versions.NextCursor = ""
	o.Call("GET", path+"/versions?limit=1&cursor="+cursor, nil).Want(t, 200).JSON(t, &versions)
	if len(versions.Items) != 1 || versions.Items[0].Version != 1 || versions.Items[0].Timetable["cron"] != "* * * * *" || versions.NextCursor != "" {
		t.Fatalf("%+v", versions)
	}
	if got := o.Call("GET", path+"/versions/2", nil).Want(t, 200); !strings.Contains(string(got.Body), `"payload":7`) {
		t.Fatalf("%s", got.Body)
	}
	o.Call("GET", path+"/versions/3", nil).WantProblem(t, 404, "not_found")
	if _, err := o.DB.ExecContext(t.Context(), "UPDATE pulse_schedule_versions SET priority = 1"); err == nil || !strings.Contains(err.Error(), "history") {
		t.Errorf("a version was changed: %v", err)
	}
}

func TestOfManyUpdatesFromOneTagOneWins(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	s := createSchedule(t, o, everyMinute("s"))
	won := 0
	for _, r := range race(t, 8, func(i int) (harness.Reply, error) {
		return harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "PUT", "/v1/schedules/"+s.ID, version(everyMinute("")), ifMatch(`"1"`))
	}) {
		if r.Status == 200 {
			won++
		} else {
			r.WantProblem(t, 412, "revision_mismatch")
		}
	}
	if got := getSchedule(t, o, s.ID); won != 1 || got.Version != 2 {
		t.Errorf("%d of 8 won, the version is %d", won, got.Version)
	}
}

// An edit that names an instant that has fired does not fire it again; one that moves the clock's instants begins with the next.
func TestNoEditFiresAnInstantTwice(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "allow"))
	at := nextMinute(t, o)
	fireAll(t, o)
	o.Call("PUT", "/v1/schedules/"+s.ID, version(everyMinute("", "run_overlap", "allow", "timetable", map[string]any{"every_ms": 60_000})), ifMatch(`"1"`)).Want(t, 200)
	fireAll(t, o)
	o.Call("PUT", "/v1/schedules/"+s.ID, version(everyMinute("", "run_overlap", "allow")), ifMatch(`"2"`)).Want(t, 200)
	fireAll(t, o)
	o.Call("POST", "/v1/schedules/"+s.ID+":backfill", map[string]any{"from": at.Add(-time.Second), "to": at.Add(time.Microsecond)}, harness.Key("b")).Want(t, 200)
	if all := occurrences(t, o, s.ID); len(all) != 1 || !all[0].FireAt.Equal(at) {
		t.Fatalf("%+v", all)
	}
}

func TestPauseScheduleStopsItAndResumeGoesOnFromThen(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "allow"))
	path := "/v1/schedules/" + s.ID
	o.Call("POST", path+":pause", `{}`, harness.Key("p")).WantProblem(t, 400, "invalid_request")
	var paused schedule
	o.Call("POST", path+":pause", `{"reason":"repairs"}`, harness.Key("p")).Want(t, 200).JSON(t, &paused)
	if !paused.Paused || paused.PauseReason != "repairs" || !paused.NextFireAt.IsZero() || paused.Revision != 2 {
		t.Fatalf("%+v", paused)
	}
	o.Call("POST", path+":pause", `{"reason":"again"}`, harness.Key("p2")).Want(t, 200).JSON(t, &paused)
	if paused.PauseReason != "repairs" || paused.Revision != 2 {
		t.Fatalf("%+v", paused)
	}
	o.Advance(10 * time.Minute)
	if n := fireAll(t, o); n != 0 {
		t.Fatalf("%d instants fired during a pause", n)
	}
	// A new version changes nothing about that.
	o.Call("PUT", path, version(everyMinute("", "run_overlap", "allow")), ifMatch(`"2"`)).Want(t, 200)
	if got := getSchedule(t, o, s.ID); !got.Paused || !got.NextFireAt.IsZero() {
		t.Fatalf("%+v", got)
	}
	var resumed schedule
	o.Call("POST", path+":resume", nil, harness.Key("r")).Want(t, 200).JSON(t, &resumed)
	if resumed.Paused || resumed.PauseReason != "" || resumed.NextFireAt.Before(resumed.Watermark) {
		t.Fatalf("%+v", resumed)
	}
	if n := fireAll(t, o); n != 0 {
		t.Fatalf("%d instants of the pause were made up for", n)
	}
	at := nextMinute(t, o)
	fireAll(t, o)
	if all := occurrences(t, o, s.ID); len(all) != 1 || !all[0].FireAt.Equal(at) {
		t.Fatalf("%+v", all)
	}
	if counts := countEvents(t, o, s.ID); counts["schedule.paused"] != 1 || counts["schedule.resumed"] != 1 {
		t.Errorf("events: %v", counts)
	}
}

func TestAPauseKeepsWhatWaitsAndResumeBeginsIt(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "buffer_all"))
	path := "/v1/schedules/" + s.ID
	for i := range 2 {
		o.Call("POST", path+":trigger", nil, harness.Key(fmt.Sprint("t", i))).Want(t, 200)
	}
	running := w.run()
	o.Call("POST", path+":pause", `{"reason":"x"}`, harness.Key("p")).Want(t, 200)
	wantItem(t, w.succeed(running, `1`), 200, "")
	o.Pass("release_buffered")
	if got := outcomes(t, o, s.ID); got != "fired buffered" {
		t.Fatalf("during the pause: %s", got)
	}
	o.Call("POST", path+":resume", nil, harness.Key("r")).Want(t, 200)
	if got := outcomes(t, o, s.ID); got != "fired fired" {
		t.Fatalf("after it: %s", got)
	}
}

func TestArchiveScheduleEndsIt(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "buffer_all"))
	path := "/v1/schedules/" + s.ID
	for i := range 3 {
		o.Call("POST", path+":trigger", nil, harness.Key(fmt.Sprint("t", i))).Want(t, 200)
	}
	var archived schedule
	o.Call("POST", path+":archive", `{"reason":"over"}`, harness.Key("a")).Want(t, 200).JSON(t, &archived)
	if archived.ArchivedAt.IsZero() || !archived.NextFireAt.IsZero() {
		t.Fatalf("%+v", archived)
	}
	if got := outcomes(t, o, s.ID); got != "fired skipped skipped" {
		t.Fatalf("%s", got)
	}
	o.Advance(10 * time.Minute)
	if n := fireAll(t, o); n != 0 {
		t.Fatalf("an archived schedule fired %d times", n)
	}
	for verb, body := range map[string]string{"pause": `{"reason":"x"}`, "resume": `{}`, "trigger": `{}`, "backfill": `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}`} {
		o.Call("POST", path+":"+verb, body, harness.Key("after")).WantProblem(t, 409, "state_conflict")
	}
	o.Call("PUT", path, version(everyMinute("")), ifMatch(fmt.Sprintf("%q", fmt.Sprint(archived.Revision)))).WantProblem(t, 409, "state_conflict")
	o.Call("POST", path+":archive", `{"reason":"again"}`, harness.Key("a2")).Want(t, 200)
	o.Call("POST", "/v1/schedules", everyMinute("s"), harness.Key("new")).WantProblem(t, 409, "state_conflict")
}
