package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// workerView is an incarnation as it is listed.
type workerView struct {
	WorkerName   string    `json:"worker_name"`
	InstanceID   string    `json:"instance_id"`
	Epoch        int64     `json:"epoch"`
	State        string    `json:"state"`
	Host         string    `json:"host"`
	Version      string    `json:"version"`
	Queues       []string  `json:"queues"`
	Types        []string  `json:"types"`
	Slots        int       `json:"slots"`
	HeartbeatAt  time.Time `json:"heartbeat_at"`
	EndedAt      time.Time `json:"ended_at"`
	LiveAttempts struct {
		Count  int  `json:"count"`
		Capped bool `json:"capped"`
	} `json:"live_attempts"`
}

func listWorkers(t testing.TB, o *harness.Orbit, key, query string) (items []workerView, next string) {
	t.Helper()
	var page struct {
		Items      []workerView `json:"items"`
		NextCursor string       `json:"next_cursor"`
	}
	o.CallAt(o.URL(), key, "GET", "/v1/workers"+query, nil).Want(t, 200).JSON(t, &page)
	return page.Items, page.NextCursor
}

func TestListWorkersShowsIncarnationsAndWhatTheyHold(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("mail", policy())
	for range 3 {
		submit(t, o, "mail")
	}
	w := &worker{t: t, o: o, url: o.URL(), key: o.Key, instance: newInstance(), epoch: 1}
	openSession(o, o.Key, opening("w", w.instance, "mail")).Want(t, 200)
	wantItem(t, w.start(w.claim(2)[0]), 200, "")
	items, next := listWorkers(t, o, o.Key, "")
	if len(items) != 1 || next != "" {
		t.Fatalf("%d items, next %q", len(items), next)
	}
	got := items[0]
	if got.WorkerName != "w" || got.InstanceID != w.instance || got.Epoch != 1 || got.State != "live" || got.Host != "h" || got.Version != "v" ||
		fmt.Sprint(got.Queues) != "["+id+"]" || fmt.Sprint(got.Types) != "[a.b]" || got.Slots != 4 || got.LiveAttempts.Count != 2 || got.LiveAttempts.Capped {
		t.Fatalf("%+v", got)
	}
	openSession(o, o.Key, opening("w", newInstance(), "mail")).Want(t, 200)
	closed := openWorker(t, o, "closed", "mail")
	closed.call(closePath, nil).Want(t, 200)
	states := map[string]string{}
	items, _ = listWorkers(t, o, o.Key, "")
	for _, i := range items {
		states[fmt.Sprint(i.WorkerName, i.Epoch)] = i.State
		if ended := i.State != "live"; ended == i.EndedAt.IsZero() {
			t.Fatalf("%s since %s", i.State, i.EndedAt)
		}
	}
	if want := "map[closed1:closed w1:superseded w2:live]"; fmt.Sprint(states) != want {
		t.Fatalf("%v, want %s", states, want)
	}
}

func TestASilentIncarnationIsShownAsExpiredAndRevivesByAHeartbeat(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	w := openWorker(t, o, "w", "mail")
	o.Advance(30 * time.Second)
	o.Pass("expire_instances")
	if items, _ := listWorkers(t, o, o.Key, ""); items[0].State != "live" {
		t.Fatalf("%s within a minute", items[0].State)
	}
	o.Advance(31 * time.Second)
	o.Pass("expire_instances")
	if items, _ := listWorkers(t, o, o.Key, ""); items[0].State != "expired" {
		t.Fatalf("%s after a minute of silence", items[0].State)
	}
	w.call("/v1/attempts:heartbeat", map[string]any{"items": []any{}}).Want(t, 200)
	if items, _ := listWorkers(t, o, o.Key, ""); items[0].State != "live" {
		t.Fatalf("%s after a heartbeat", items[0].State)
	}
	o.Advance(2 * time.Minute)
	o.Pass("expire_instances")
	next := openWorker(t, o, "w", "mail")
	w.call("/v1/attempts:heartbeat", map[string]any{"items": []any{}}).WantProblem(t, 409, "session_superseded")
	for _, i := range first(listWorkers(t, o, o.Key, "")) {
		if want := map[string]string{w.instance: "superseded", next.instance: "live"}[i.InstanceID]; i.State != want {
			t.Fatalf("epoch %d is %s, want %s", i.Epoch, i.State, want)
		}
	}
}

func TestListWorkersPagesEachOnceAndOnlyOfItsTenant(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	want := map[string]bool{}
	for i := range 7 {
		want[openWorker(t, o, fmt.Sprint("w", i), "mail").instance] = true
	}
	_, tenant := o.Tenant("other-tenant")
	if items, _ := listWorkers(t, o, tenant, ""); len(items) != 0 {
		t.Fatalf("another tenant sees %+v", items)
	}
	seen := map[string]bool{}
	query := "?limit=3"
	for pages := 1; ; pages++ {
		items, next := listWorkers(t, o, o.Key, query)
		for _, i := range items {
			if seen[i.InstanceID] || !want[i.InstanceID] {
				t.Fatalf("%s again, or from elsewhere", i.InstanceID)
			}
			seen[i.InstanceID] = true
		}
		if next == "" {
			if pages != 3 || len(seen) != 7 {
				t.Fatalf("%d pages with %d of 7", pages, len(seen))
			}
			break
		}
		query = "?limit=3&cursor=" + next
	}
	reader := o.Credential(o.Namespace, []string{"tasks:execute"}, []string{"*"})
	o.CallAt(o.URL(), reader, "GET", "/v1/workers", nil).WantProblem(t, 403, "forbidden")
	o.Call("GET", "/v1/workers?cursor=nonsense", nil).WantProblem(t, 400, "cursor_invalid")
	o.Call("GET", "/v1/workers?limit=-1", nil).WantProblem(t, 400, "invalid_request")
	if r := o.Call("GET", "/v1/workers?cursor="+strings.TrimPrefix(query, "?limit=3&cursor="), nil); r.Status != 200 {
		t.Fatalf("a cursor with another limit: %d", r.Status)
	}
}

func TestEndedIncarnationsAreForgottenOnceTheyOweNothing(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	submit(t, o, "mail")
	old := openWorker(t, o, "w", "mail")
	old.claimOne()
	live := openWorker(t, o, "w", "mail")
	o.Advance(8 * 24 * time.Hour)
	live.call("/v1/attempts:heartbeat", map[string]any{"items": []any{}}).Want(t, 200)
	if n := o.Pass("retain_instances"); n != 0 {
		t.Fatalf("%d forgotten that still owe a sweep", n)
	}
	o.Pass("sweep_instances")
	o.Pass("sweep_instances")
	if n := o.Pass("retain_instances"); n != 1 {
		t.Fatalf("%d forgotten, want 1", n)
	}
	if items, _ := listWorkers(t, o, o.Key, ""); len(items) != 1 || items[0].InstanceID != live.instance {
		t.Fatalf("%+v", items)
	}
}

func first[T, U any](v T, _ U) T { return v }
