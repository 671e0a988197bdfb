package integration_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// schedule is a schedule as it is shown, as far as tests look at it.
type schedule struct {
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	Version    int64          `json:"version"`
	Timetable  map[string]any `json:"timetable"`
	RunOverlap string         `json:"run_overlap"`
	Task       struct {
		QueueID     string  `json:"queue_id"`
		Type        string  `json:"type"`
		Payload     rawJSON `json:"payload"`
		Priority    int     `json:"priority"`
		MaxAttempts int     `json:"max_attempts"`
		DeadlineMs  int64   `json:"deadline_ms"`
	} `json:"task"`
	CatchUpWindowMs int64     `json:"catch_up_window_ms"`
	CatchUpMax      int       `json:"catch_up_max"`
	Paused          bool      `json:"paused"`
	PauseReason     string    `json:"pause_reason"`
	ArchivedAt      time.Time `json:"archived_at"`
	NextFireAt      time.Time `json:"next_fire_at"`
	Watermark       time.Time `json:"watermark"`
	Revision        int64     `json:"revision"`
}

// occurrence is an occurrence as it is shown.
type occurrence struct {
	ID         string    `json:"id"`
	ScheduleID string    `json:"schedule_id"`
	Version    int64     `json:"version"`
	FireAt     time.Time `json:"fire_at"`
	Source     string    `json:"source"`
	Outcome    string    `json:"outcome"`
	Code       string    `json:"code"`
	TaskID     string    `json:"task_id"`
	Running    bool      `json:"running"`
}

// everyMinute is a schedule that fires at whole minutes; more changes its members.
func everyMinute(name string, more ...any) map[string]any {
	body := map[string]any{"name": name, "timetable": map[string]any{"cron": "* * * * *"}, "task": map[string]any{"queue": "q", "type": "t"}}
	for i := 0; i < len(more); i += 2 {
		if more[i+1] == nil {
			delete(body, more[i].(string))
		} else {
			body[more[i].(string)] = more[i+1]
		}
	}
	return body
}

// version is the same as a request to publish a new version.
func version(body map[string]any) map[string]any {
	v := maps.Clone(body)
	delete(v, "name")
	return v
}

func createSchedule(t testing.TB, o *harness.Orbit, body map[string]any) schedule {
	t.Helper()
	var s schedule
	o.Call("POST", "/v1/schedules", body, harness.Key(fmt.Sprint("schedule-", body["name"]))).Want(t, 201).JSON(t, &s)
	return s
}

func getSchedule(t testing.TB, o *harness.Orbit, id string) schedule {
	t.Helper()
	var s schedule
	o.Call("GET", "/v1/schedules/"+id, nil).Want(t, 200).JSON(t, &s)
	return s
}

// occurrences lists all of a schedule, the earliest instant first.
func occurrences(t testing.TB, o *harness.Orbit, id string) []occurrence {
	t.Helper()
	var all []occurrence
	for cursor := ""; ; {
		var page struct {
			Items      []occurrence `json:"items"`
			NextCursor string       `json:"next_cursor"`
		}
		o.Call("GET", "/v1/schedules/"+id+"/occurrences?limit=200"+cursor, nil).Want(t, 200).JSON(t, &page)
		all = append(all, page.Items...)
		if page.NextCursor == "" {
			slices.Reverse(all)
			return all
		}
		cursor = "&cursor=" + page.NextCursor
	}
}

// outcomes tells what became of a schedule's instants, in their order.
func outcomes(t testing.TB, o *harness.Orbit, id string) string {
	t.Helper()
	var words []string
	for _, c := range occurrences(t, o, id) {
		words = append(words, c.Outcome)
	}
	return strings.Join(words, " ")
}

// setClock moves the database's clock, as the service sees it, on to an instant.
func setClock(t testing.TB, o *harness.Orbit, to time.Time) {
	t.Helper()
	now := value[time.Time](t, o, "SELECT NOW(6)").Add(o.Offset())
	if to.Before(now) {
		t.Fatalf("the clock is at %s already, past %s", now, to)
	}
	o.Advance(to.Sub(now))
}

// nextMinute moves the clock on to just after the next whole minute, so that a test has a minute before it, and answers that whole minute.
func nextMinute(t testing.TB, o *harness.Orbit) time.Time {
	t.Helper()
	now := value[time.Time](t, o, "SELECT NOW(6)").Add(o.Offset())
	minute := now.Truncate(time.Minute).Add(time.Minute)
	o.Advance(minute.Add(time.Millisecond).Sub(now))
	return minute
}

// fireAll runs passes on a replica until nothing is due, and answers how many instants were dealt with.
func fireAll(t testing.TB, o *harness.Orbit) int {
	t.Helper()
	sum := 0
	for {
		n := o.Pass("fire_schedules")
		if n == 0 {
			return sum
		}
		sum += n
	}
}

// endTask ends the one open task of a queue with success.
func (w *worker) end() {
	w.t.Helper()
	wantItem(w.t, w.succeed(w.run(), `1`), 200, "")
}
