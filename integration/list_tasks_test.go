package integration_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// submitMany submits n equal tasks in one call and answers their ids in the order of the call.
func submitMany(t testing.TB, o *harness.Orbit, queue string, n int, more ...any) []string {
	t.Helper()
	items := make([]map[string]any, n)
	for i := range items {
		submitted++
		items[i] = map[string]any{"queue": queue, "type": "test.kind", "idempotency_key": fmt.Sprintf("many-%d", submitted)}
		for k := 0; k < len(more); k += 2 {
			items[i][more[k].(string)] = more[k+1]
		}
	}
	var got struct {
		Items []struct {
			Status  int `json:"status"`
			Receipt struct {
				TaskID string `json:"task_id"`
			} `json:"receipt"`
		} `json:"items"`
	}
	o.Call("POST", "/v1/tasks:batch", map[string]any{"items": items}).Want(t, 200).JSON(t, &got)
	ids := make([]string, n)
	for i, item := range got.Items {
		if item.Status != 201 {
			t.Fatalf("item %d answered %d", i, item.Status)
		}
		ids[i] = item.Receipt.TaskID
	}
	return ids
}

// walk pages through a list to its end and answers the ids in its order.
func walk(t testing.TB, o *harness.Orbit, key, path string) []string {
	t.Helper()
	var ids []string
	for cursor := ""; ; {
		var page list
		o.CallAt(o.URL(), key, "GET", path+cursor, nil).Want(t, 200).JSON(t, &page)
		for _, i := range page.Items {
			ids = append(ids, i.ID)
		}
		if page.NextCursor == "" {
			return ids
		}
		cursor = "&cursor=" + url.QueryEscape(page.NextCursor)
	}
}

func TestTenThousandTasksOfEqualTimesArePagedOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	var want []string
	for range 10 {
		want = append(want, submitMany(t, o, "q", 1000, "run_at", "2100-01-01T00:00:00Z")...)
	}
	slices.Sort(want)
	slices.Reverse(want)
	for _, path := range []string{"/v1/tasks?limit=487", "/v1/tasks?limit=487&queue_id=" + queue, "/v1/tasks?limit=487&state=queued", "/v1/tasks?limit=1000&type=test.kind"} {
		if got := walk(t, o, o.Key, path); !slices.Equal(got, want) {
			t.Errorf("%s: %d ids, want the %d submitted, newest first, each once", path, len(got), len(want))
		}
	}
	if got := walk(t, o, o.Key, "/v1/tasks?limit=500&type=none"); len(got) != 0 {
		t.Errorf("%d tasks of a type that nobody submitted", len(got))
	}
}

func TestTasksAreListedByWhatIsShownOfThem(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	a, b := o.CreateQueue("a", nil), o.CreateQueue("b", nil)
	w := openWorker(t, o, "w", "a", "b")
	submitMany(t, o, "a", 4, "priority", 1)
	done, failed, running, offered := w.run(), w.run(), w.run(), w.claimOne()
	wantItem(t, w.succeed(done, `1`), 200, "")
	wantItem(t, w.fail(failed, false), 200, "")
	ready, scheduled := submit(t, o, "b", "type", "other"), submit(t, o, "b", "delay_ms", 60_000)
	cancelled := submit(t, o, "b")
	o.Call("POST", "/v1/tasks/"+cancelled+":cancel", nil, harness.Key("c")).Want(t, 200)
	sorted := func(ids ...string) []string {
		slices.Sort(ids)
		slices.Reverse(ids)
		return ids
	}
	onlyB := o.Credential(o.Namespace, []string{"tasks:read"}, []string{"b"})
	for _, c := range []struct {
		key, filter string
		want        []string
	}{
		{o.Key, "", sorted(done.TaskID, failed.TaskID, running.TaskID, offered.TaskID, ready, scheduled, cancelled)},
		{o.Key, "&queue_id=" + a, sorted(done.TaskID, failed.TaskID, running.TaskID, offered.TaskID)},
		{o.Key, "&queue_id=" + b, sorted(ready, scheduled, cancelled)},
		{o.Key, "&state=queued", sorted(ready, scheduled)},
		{o.Key, "&state=queued&type=other", sorted(ready)},
		{o.Key, "&state=offered", sorted(offered.TaskID)},
		{o.Key, "&state=running", sorted(running.TaskID)},
		{o.Key, "&state=running&queue_id=" + a, sorted(running.TaskID)},
		{o.Key, "&state=running&queue_id=" + b, nil},
		{o.Key, "&state=running&type=other", nil},
		{o.Key, "&state=succeeded", sorted(done.TaskID)},
		{o.Key, "&state=failed&queue_id=" + a, sorted(failed.TaskID)},
		{o.Key, "&state=cancelled", sorted(cancelled)},
		{o.Key, "&state=review", nil},
		{o.Key, "&type=other", sorted(ready)},
		{onlyB, "", sorted(ready, scheduled, cancelled)},
		{onlyB, "&state=queued", sorted(ready, scheduled)},
		{onlyB, "&state=running", nil},
	} {
		for _, limit := range []string{"1", "2", "500"} {
			if got := walk(t, o, c.key, "/v1/tasks?limit="+limit+c.filter); !slices.Equal(got, c.want) {
				t.Errorf("limit=%s%s: %v, want %v", limit, c.filter, got, c.want)
			}
		}
	}
}

func TestTasksOfManyQueuesAreListed(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	var all, odd []string
	for i := range 70 {
		name := fmt.Sprintf("%s%d", []string{"even", "odd"}[i%2], i)
		o.CreateQueue(name, nil)
		ids := submitMany(t, o, name, 3, "delay_ms", 60_000)
		all = append(all, ids...)
		if i%2 == 1 {
			odd = append(odd, ids...)
		}
	}
	for _, ids := range [][]string{all, odd} {
		slices.Sort(ids)
		slices.Reverse(ids)
	}
	some := o.Credential(o.Namespace, []string{"tasks:read"}, []string{"odd*"})
	many := o.Credential(o.Namespace, []string{"tasks:read"}, []string{"odd*", "even*"})
	for _, c := range []struct {
		key, filter string
		want        []string
	}{
		{o.Key, "", all}, {o.Key, "&state=queued", all}, {o.Key, "&state=running", nil},
		{some, "", odd}, {some, "&state=queued", odd}, {some, "&state=failed", nil},
		{many, "", all}, {many, "&state=queued", all},
	} {
		for _, limit := range []string{"7", "500"} {
			if got := walk(t, o, c.key, "/v1/tasks?limit="+limit+c.filter); !slices.Equal(got, c.want) {
				t.Errorf("limit=%s%s: %d ids, want %d", limit, c.filter, len(got), len(c.want))
			}
		}
	}
}

func TestACursorBelongsToItsList(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	o.CreateQueue("q2", nil)
	submitMany(t, o, "q", 3, "delay_ms", 60_000)
	var page list
	o.Call("GET", "/v1/tasks?limit=1&state=queued", nil).Want(t, 200).JSON(t, &page)
	cursor := "&cursor=" + url.QueryEscape(page.NextCursor)
	o.Call("GET", "/v1/tasks?limit=2&state=queued"+cursor, nil).Want(t, 200)
	for _, path := range []string{"/v1/tasks?limit=1", "/v1/tasks?limit=1&state=running", "/v1/tasks?limit=1&state=queued&queue_id=" + queue,
		"/v1/queues?limit=1", "/v1/workers?limit=1", "/v1/tasks/" + page.Items[0].ID + "/attempts?limit=1"} {
		o.Call("GET", path+cursor, nil).WantProblem(t, 400, "cursor_invalid")
	}
	o.Call("GET", "/v1/tasks?limit=1&state=queued&cursor=zz", nil).WantProblem(t, 400, "cursor_invalid")
	for _, limit := range []string{"0", "-1", "x"} {
		o.Call("GET", "/v1/tasks?limit="+limit, nil).WantProblem(t, 400, "invalid_request")
	}
}

// Tasks that change their state, and new ones, while they are paged through: without a filter by state each that was there is met exactly once.
func TestTasksThatMoveAreMetOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	queue := o.CreateQueue("q", nil)
	var there []string
	for range 2 {
		there = append(there, submitMany(t, o, "q", 1000)...)
	}
	narrow := o.Credential(o.Namespace, []string{"tasks:read"}, []string{"q"})
	w := openWorker(t, o, "w", "q").on(1)
	stopWork := repeatedly(t, func() error {
		w.seq++
		r, err := w.send("/v1/claims", map[string]any{"claim_seq": w.seq, "max": 50})
		got, err := parse[struct{ Offers []offer }](r, err, 200)
		if err != nil {
			return err
		}
		var items []map[string]any
		for _, a := range got.Offers {
			items = append(items, a.item())
		}
		if len(items) == 0 {
			return nil
		}
		for _, path := range []string{"/v1/attempts:start", "/v1/attempts:finish"} {
			r, err := w.send(path, map[string]any{"items": items})
			if _, err := parse[struct{}](r, err, 200); err != nil {
				return err
			}
			for i := range items {
				items[i]["outcome"] = "succeeded"
			}
		}
		return nil
	})
	next := 0
	stopSubmits := repeatedly(t, func() error {
		next++
		r, err := harness.Do(t.Context(), o.Replica(1).URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(fmt.Sprint("new-", next)))
		_, err = parse[receipt](r, err, 201)
		return err
	})
	for _, c := range []struct{ key, path string }{{o.Key, "/v1/tasks?limit=97"}, {o.Key, "/v1/tasks?limit=97&queue_id=" + queue}, {narrow, "/v1/tasks?limit=97"}} {
		met := map[string]int{}
		for _, id := range walk(t, o, c.key, c.path) {
			met[id]++
		}
		for _, id := range there {
			if met[id] != 1 {
				t.Errorf("%s: a task was met %d times", c.path, met[id])
			}
		}
		for id, n := range met {
			if n != 1 {
				t.Errorf("%s: task %s was met %d times", c.path, id, n)
			}
		}
	}
	stopWork()
	stopSubmits()
	if n := o.Count("pulse_tasks WHERE state = 'succeeded'"); n == 0 {
		t.Error("no task moved")
	}
}
