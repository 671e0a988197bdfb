package integration_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestATaskIsShownWhereItIs(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	id := submit(t, o, "q", "delay_ms", 60_000)
	tags := map[string]string{}
	tag := func(state string) {
		t.Helper()
		r := o.Call("GET", "/v1/tasks/"+id, nil).Want(t, 200)
		var shown struct {
			State string `json:"state"`
			Etag  string `json:"etag"`
		}
		r.JSON(t, &shown)
		if shown.State != state || shown.Etag != r.Header.Get("ETag") {
			t.Fatalf("shown %+v with ETag %s, want %s", shown, r.Header.Get("ETag"), state)
		}
		if was, seen := tags[shown.Etag]; seen {
			t.Fatalf("%s and %s have the same tag %s", was, state, shown.Etag)
		}
		tags[shown.Etag] = state
	}
	tag("queued")
	if got := getTask(t, o, id); got.Waiting.Kind != "scheduled" || got.Waiting.Until.IsZero() || got.Generation != 0 {
		t.Fatalf("a delayed task is shown as %+v", got)
	}
	o.Advance(61 * time.Second)
	o.Pass("promote_scheduled")
	if got := getTask(t, o, id); got.Waiting.Kind != "ready" {
		t.Fatalf("a task that is due is shown as %+v", got)
	}
	offered := w.claimOne()
	tag("offered")
	wantItem(t, w.start(offered), 200, "")
	tag("running")
	if got := getTask(t, o, id); got.Generation != 1 || got.AttemptID != offered.AttemptID || got.AttemptsUsed != 0 {
		t.Fatalf("a running task is shown as %+v", got)
	}
	o.Call("POST", "/v1/tasks/"+id+":cancel", nil, harness.Key("c")).Want(t, 200)
	tag("running")
	wantItem(t, w.fail(offered, true), 200, "")
	tag("cancelled")
	if got := getTask(t, o, id); got.AttemptID != "" || got.CancelRequested || got.AttemptsUsed != 1 || got.Failure.Code != "boom" {
		t.Fatalf("a cancelled task is shown as %+v", got)
	}
	o.Call("GET", "/v1/tasks/"+strings.Repeat("0", 32), nil).WantProblem(t, 404, "not_found")
	o.Call("GET", "/v1/tasks/x", nil).WantProblem(t, 400, "invalid_request")
}

func TestAnAttemptIsShownWithWhatWasTakenAndWhatWasNot(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	id := submit(t, o, "q")
	first := w.run()
	wantItem(t, w.items("/v1/attempts:heartbeat", first.item("progress", rawJSON(`{"done":0.50}`)))[0], 200, "")
	wantItem(t, w.items("/v1/attempts:finish", first.item("outcome", "failed", "error", map[string]any{"code": "boom", "message": "it broke"}, "result", rawJSON(`[0.10]`), "retry_after_ms", 0))[0], 200, "")
	o.Advance(time.Hour)
	o.Pass("promote_scheduled")
	second := w.run()
	wantItem(t, w.succeed(second, `{"total":0.1000}`), 200, "")
	for _, result := range []string{`1`, `2`, `2`, `3`} {
		wantItem(t, w.succeed(second, result), 409, "result_conflict")
	}

	var attempts list
	o.Call("GET", "/v1/tasks/"+id+"/attempts?limit=1", nil).Want(t, 200).JSON(t, &attempts)
	if len(attempts.Items) != 1 || attempts.Items[0].ID != second.AttemptID || attempts.NextCursor == "" {
		t.Fatalf("the first page of attempts is %+v", attempts)
	}
	next := attempts.NextCursor
	attempts = list{}
	o.Call("GET", "/v1/tasks/"+id+"/attempts?limit=1&cursor="+url.QueryEscape(next), nil).Want(t, 200).JSON(t, &attempts)
	if len(attempts.Items) != 1 || attempts.Items[0].ID != first.AttemptID || attempts.NextCursor != "" {
		t.Fatalf("the second page of attempts is %+v", attempts)
	}

	var shown struct {
		State      string          `json:"state"`
		WorkerName string          `json:"worker_name"`
		Progress   json.RawMessage `json:"progress"`
		Result     json.RawMessage `json:"result"`
		Failure    struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"failure"`
		Receipt struct {
			Outcome   string `json:"outcome"`
			TaskState string `json:"task_state"`
		} `json:"receipt"`
	}
	r := o.Call("GET", "/v1/attempts/"+first.AttemptID, nil).Want(t, 200)
	r.JSON(t, &shown)
	if shown.State != "failed" || shown.WorkerName != "w" || string(shown.Progress) != `{"done":0.50}` || string(shown.Result) != `[0.10]` ||
		shown.Failure.Code != "boom" || shown.Failure.Message != "it broke" || shown.Receipt.Outcome != "failed" || shown.Receipt.TaskState != "queued" {
		t.Fatalf("a failed attempt is shown as %s", r.Body)
	}
	if strings.Contains(string(r.Body), "token") || strings.Contains(string(r.Body), "digest") {
		t.Fatalf("an attempt shows secrets: %s", r.Body)
	}

	path, seen := "/v1/attempts/"+second.AttemptID+"/evidence", map[string]bool{}
	for cursor := ""; ; {
		var page list
		o.Call("GET", path+"?limit=2"+cursor, nil).Want(t, 200).JSON(t, &page)
		for _, i := range page.Items {
			var one struct {
				Reason string          `json:"reason"`
				Result json.RawMessage `json:"result"`
			}
			o.Call("GET", path+"/"+i.ID, nil).Want(t, 200).JSON(t, &one)
			if one.Reason != "result_conflict" || seen[string(one.Result)] {
				t.Fatalf("evidence %+v, of which there were %v", one, seen)
			}
			seen[string(one.Result)] = true
			o.Call("GET", "/v1/attempts/"+first.AttemptID+"/evidence/"+i.ID, nil).WantProblem(t, 404, "not_found")
		}
		if page.NextCursor == "" {
			break
		}
		cursor = "&cursor=" + url.QueryEscape(page.NextCursor)
	}
	if len(seen) != 3 {
		t.Fatalf("evidence is kept of %v, want 1, 2 and 3", seen)
	}
	if got := wantState(t, o, id, "succeeded"); got.Result != `{"total":0.1000}` {
		t.Fatalf("evidence changed the result to %s", got.Result)
	}
}

func TestWorkersAreListedWithTheirLiveAttempts(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	submitMany(t, o, "q", 3)
	old := openWorker(t, o, "a", "q")
	old.claim(1)
	current := openWorker(t, o, "a", "q")
	current.claim(2)
	var page struct {
		Items []struct {
			WorkerName   string   `json:"worker_name"`
			InstanceID   string   `json:"instance_id"`
			Epoch        int64    `json:"epoch"`
			State        string   `json:"state"`
			Queues       []string `json:"queues"`
			LiveAttempts struct {
				Count  int  `json:"count"`
				Capped bool `json:"capped"`
			} `json:"live_attempts"`
		} `json:"items"`
	}
	o.Call("GET", "/v1/workers", nil).Want(t, 200).JSON(t, &page)
	if len(page.Items) != 2 {
		t.Fatalf("%d instances are listed, want 2", len(page.Items))
	}
	for i, want := range []struct {
		instance, state string
		epoch           int64
		live            int
	}{{current.instance, "live", 2, 2}, {old.instance, "superseded", 1, 1}} {
		got := page.Items[i]
		if got.InstanceID != want.instance || got.State != want.state || got.Epoch != want.epoch || got.LiveAttempts.Count != want.live || got.LiveAttempts.Capped ||
			got.WorkerName != "a" || len(got.Queues) != 1 || got.Queues[0] != queue {
			t.Errorf("instance %d is listed as %+v, want %+v", i, got, want)
		}
	}
	_, stranger := o.Tenant("other")
	var none list
	if o.CallAt(o.URL(), stranger, "GET", "/v1/workers", nil).Want(t, 200).JSON(t, &none); len(none.Items) != 0 {
		t.Errorf("another tenant lists %+v", none)
	}
}
