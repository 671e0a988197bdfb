package integration_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestPreviewScheduleSaysWhatWillFire(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	preview := func(body string) (local []string) {
		t.Helper()
		var got struct {
			Items []struct {
				Local string `json:"local"`
			} `json:"items"`
		}
		o.Call("POST", "/v1/schedules:preview", body).Want(t, 200).JSON(t, &got)
		for _, i := range got.Items {
			local = append(local, i.Local)
		}
		return local
	}
	for body, want := range map[string][]string{
		`{"timetable":{"cron":"30 2 * * *","zone":"Europe/Berlin"},"after":"2028-03-25T12:00:00Z","count":2}`:                      {"2028-03-26T03:00:00+02:00", "2028-03-27T02:30:00+02:00"},
		`{"timetable":{"cron":"30 2 * * *","zone":"Europe/Berlin","gap":"skip"},"after":"2028-03-25T12:00:00Z","count":1}`:         {"2028-03-27T02:30:00+02:00"},
		`{"timetable":{"cron":"30 2 * * *","zone":"Europe/Berlin","overlap":"both"},"after":"2028-10-28T12:00:00Z","count":2}`:     {"2028-10-29T02:30:00+02:00", "2028-10-29T02:30:00+01:00"},
		`{"timetable":{"calendar":["2028-12-24T18:00","2029-01-01T00:00:01"],"zone":"Asia/Tokyo"},"after":"2028-12-01T00:00:00Z"}`: {"2028-12-24T18:00:00+09:00", "2029-01-01T00:00:01+09:00"},
		`{"timetable":{"at":"2028-01-01T00:00:00Z"},"after":"2028-01-01T00:00:00Z"}`:                                               nil,
	} {
		if got := preview(body); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
	if got := preview(`{"timetable":{"cron":"* * * * *"}}`); len(got) != 10 {
		t.Errorf("%d instants without a count, want 10", len(got))
	}
	for _, bad := range []string{`{}`, `{"timetable":{"cron":"x"}}`, `{"timetable":{"cron":"@daily"},"count":1001}`, `{"schedule_id":"00000000000000000000000000000000","timetable":{"cron":"@daily"}}`} {
		o.Call("POST", "/v1/schedules:preview", bad).WantProblem(t, 400, "invalid_request")
	}
	// Of a stored schedule it is what the loop then does.
	nextMinute(t, o)
	s := createSchedule(t, o, everyMinute("s", "run_overlap", "allow"))
	said := preview(`{"schedule_id":"` + s.ID + `","count":3}`)
	o.Advance(3 * time.Minute)
	fireAll(t, o)
	for i, c := range occurrences(t, o, s.ID) {
		if got := c.FireAt.Format(time.RFC3339); got != said[i] {
			t.Errorf("instant %d: at %s, the preview said %s", i, got, said[i])
		}
	}
	if n := o.Count("pulse_schedules"); n != 1 {
		t.Errorf("%d schedules", n)
	}
}

func TestListSchedulesShowsThoseOfGrantedQueues(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	o.CreateQueue("hidden", nil)
	var want []string
	for i := range 7 {
		queue := "q"
		if i%3 == 2 {
			queue = "hidden"
		}
		s := createSchedule(t, o, everyMinute(fmt.Sprint("s", i), "task", map[string]any{"queue": queue, "type": "t", "payload": "secret"}))
		if queue == "q" {
			want = append([]string{s.ID}, want...)
		}
	}
	key := o.Credential(o.Namespace, []string{"schedules:read"}, []string{"q"})
	var got []string
	for cursor := ""; ; {
		var page list
		r := o.CallAt(o.URL(), key, "GET", "/v1/schedules?limit=2"+cursor, nil).Want(t, 200)
		r.JSON(t, &page)
		for _, i := range page.Items {
			got = append(got, i.ID)
		}
		if page.NextCursor == "" {
			break
		}
		cursor = "&cursor=" + page.NextCursor
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	for name, n := range map[string]int{"s0": 1, "s2": 0, "none": 0} {
		var page list
		if o.CallAt(o.URL(), key, "GET", "/v1/schedules?name="+name, nil).Want(t, 200).JSON(t, &page); len(page.Items) != n {
			t.Errorf("%s: %+v", name, page)
		}
	}
	_, stranger := o.Tenant("other")
	for _, query := range []string{"", "?name=s0"} {
		var page list
		if o.CallAt(o.URL(), stranger, "GET", "/v1/schedules"+query, nil).Want(t, 200).JSON(t, &page); len(page.Items) != 0 {
			t.Errorf("another tenant is shown %+v", page)
		}
	}
	if r := o.Call("GET", "/v1/schedules", nil).Want(t, 200); bytes.Contains(r.Body, []byte("secret")) {
		t.Error("a list shows payloads")
	}
	o.Call("GET", "/v1/schedules?cursor=x", nil).WantProblem(t, 400, "cursor_invalid")
}
