package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orbit-run/orbit/sdk/go/client"
)

func taskJSON(n int) string {
	return fmt.Sprintf(`{"id":"%032x","queue_id":%q,"type":"t","state":"queued","priority":5,"run_at":"2026-01-02T03:04:05.000000Z","max_attempts":1,`+
		`"attempts_used":0,"generation":0,"cancel_requested":false,"etag":"\"1\"","created_at":"2026-01-02T03:04:05.000000Z","updated_at":"2026-01-02T03:04:05.000000Z"}`, n, queueID)
}

func eventJSON(n int) string {
	return fmt.Sprintf(`{"position":"%d","type":"task.accepted","aggregate_kind":"task","aggregate_id":%q,"version":1,`+
		`"occurred_at":"2026-01-02T03:04:05.000000Z","actor":%q,"data":{}}`, n, taskID, taskID)
}

func page(items []string, rest string) *http.Response {
	return reply(200, "application/json", `{"items":[`+strings.Join(items, ",")+`]`+rest+`}`)
}

func TestTasksWalksToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: func(n int, _ seen) (*http.Response, error) {
			switch n {
			case 1:
				return page([]string{taskJSON(1), taskJSON(2)}, `,"next_cursor":"c1"`), nil
			case 2:
				return refuse(503, client.CodeUnavailable), nil
			case 3:
				return page(nil, `,"next_cursor":"c2"`), nil // an empty page is not the end
			}
			return page([]string{taskJSON(3)}, ""), nil
		}}
		tasks := s.client(t).Tasks(t.Context(), client.TaskFilter{QueueID: queueID, State: "queued"})
		var ids, queries []string
		for task, err := range tasks {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, strings.TrimLeft(task.ID, "0"))
		}
		for _, r := range s.request {
			queries = append(queries, strings.ReplaceAll(r.query, queueID, "Q"))
		}
		if diff := cmp.Diff([]string{"1", "2", "3"}, ids); diff != "" {
			t.Errorf("tasks (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{
			"limit=500&queue_id=Q&state=queued", "cursor=c1&limit=500&queue_id=Q&state=queued",
			"cursor=c1&limit=500&queue_id=Q&state=queued", "cursor=c2&limit=500&queue_id=Q&state=queued",
		}, queries); diff != "" {
			t.Errorf("queries (-want +got):\n%s", diff)
		}
	})
}

func TestListsStop(t *testing.T) {
	s := &server{answer: func(int, seen) (*http.Response, error) {
		return page([]string{taskJSON(1), taskJSON(2)}, `,"next_cursor":"c"`), nil
	}}
	for range s.client(t).Tasks(t.Context(), client.TaskFilter{}) {
		break
	}
	if len(s.request) != 1 {
		t.Errorf("%d requests for one task", len(s.request))
	}
	s = &server{answer: func(int, seen) (*http.Response, error) { return refuse(403, client.CodeForbidden), nil }}
	var errs []error
	for _, err := range s.client(t).Attempts(t.Context(), taskID) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !client.HasCode(errs[0], client.CodeForbidden) {
		t.Errorf("a refused list gave %v, want the refusal once", errs)
	}
}

func TestEvents(t *testing.T) {
	feed := map[string]struct {
		items []string
		next  string
	}{
		"0": {[]string{eventJSON(1), eventJSON(2)}, "2"},
		"2": {[]string{eventJSON(3)}, "3"},
		"3": {nil, "3"},
	}
	answer := func(_ int, r seen) (*http.Response, error) {
		after := strings.TrimPrefix(strings.Split(r.query, "&")[0], "after=")
		p := feed[after]
		return page(p.items, `,"next_after":"`+p.next+`"`), nil
	}
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: answer}
		var got []string
		for e, err := range s.client(t).Events(t.Context(), "0") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Position)
		}
		if diff := cmp.Diff([]string{"1", "2", "3"}, got); diff != "" || len(s.request) != 3 {
			t.Errorf("%d requests; positions (-want +got):\n%s", len(s.request), diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: answer}
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		var got []string
		var last error
		for e, err := range s.client(t).FollowEvents(ctx, "2", time.Second) {
			if last = err; err == nil {
				got = append(got, e.Position)
			}
		}
		if diff := cmp.Diff([]string{"3"}, got); diff != "" || !errors.Is(last, context.DeadlineExceeded) {
			t.Errorf("ended with %v; positions (-want +got):\n%s", last, diff)
		}
		if n := len(s.request); n < 11 || n > 13 {
			t.Errorf("%d requests in 10.5 s, want one each second", n)
		}
	})
}
