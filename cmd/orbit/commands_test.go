package main

import (
	"cmp"
	"encoding/json"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/sdk/go/api"
)

func TestMigrateUpAndStatus(t *testing.T) {
	d := harness.Empty(t)
	t.Setenv("ORBIT_DSN", d.DSN)
	o := program("migrate", "status")
	if o.code != exitFailed || !strings.Contains(o.out, "pending") || !strings.Contains(o.err, "orbit migrate up") {
		t.Errorf("before: exit code %d\n%s%s", o.code, o.out, o.err)
	}
	program("migrate", "up").want(t, 0)
	program("migrate", "up").want(t, 0)
	var steps []schema.StepStatus
	program("migrate", "status", "-o", "json").json(t, &steps)
	if len(steps) != int(schema.Target()) || steps[0].State != schema.StepApplied || steps[0].Program == "" {
		t.Errorf("after: %+v", steps)
	}
}

func TestBootstrapWorksOnce(t *testing.T) {
	d := harness.New(t)
	t.Setenv("ORBIT_DSN", d.DSN)
	first := program("admin", "bootstrap").want(t, 0)
	if !strings.Contains(first.out, "orb_") || !strings.Contains(first.err, "not stored") {
		t.Errorf("no key is shown:\n%s%s", first.out, first.err)
	}
	if again := program("admin", "bootstrap"); again.code != exitFailed || strings.Contains(again.out, "orb_") || !strings.Contains(again.err, "orbit admin credential create") {
		t.Errorf("a second time: exit code %d\n%s%s", again.code, again.out, again.err)
	}
	if n := rowCount(t, d.DB, `SELECT COUNT(*) FROM orbit_credentials`); n != 1 {
		t.Errorf("%d credentials", n)
	}
}

func TestAdministration(t *testing.T) {
	d := harness.New(t)
	t.Setenv("ORBIT_DSN", d.DSN)
	program("admin", "application", "create", "shop").want(t, 0)
	if o := program("admin", "application", "create", "shop"); o.code != exitFailed {
		t.Errorf("an application was made twice: %s", o.out)
	}
	program("admin", "namespace", "create", "shop/eu").want(t, 0)
	if o := program("admin", "namespace", "create", "eu"); o.code != exitUsage {
		t.Errorf("a namespace without application: exit code %d, %s", o.code, o.err)
	}
	for _, list := range [][]string{{"admin", "application", "list"}, {"admin", "namespace", "list"}} {
		if o := program(list...).want(t, 0); !strings.Contains(o.out, "shop") {
			t.Errorf("%v: %s", list, o.out)
		}
	}
	issue := func(args ...string) (issued struct {
		Key        string
		Credential struct{ ID, Name, State string }
	}) {
		program(append(args, "-N", "shop/eu", "-o", "json")...).json(t, &issued)
		return issued
	}
	made := issue("admin", "credential", "create", "till", "-a", "tasks:submit", "-q", "orders-*")
	if o := program("admin", "credential", "create", "x", "-N", "shop/eu", "-a", "tasks:juggle"); o.code != exitFailed {
		t.Errorf("an unknown action was granted: %s", o.out)
	}
	rotated := issue("admin", "credential", "rotate", made.Credential.ID, "--overlap", "0s")
	if rotated.Key == made.Key || rotated.Credential.ID != made.Credential.ID {
		t.Errorf("rotated from %+v to %+v", made, rotated)
	}
	o := program("admin", "credential", "list", "-N", "shop/eu").want(t, 0)
	if !strings.Contains(o.out, "till") || !strings.Contains(o.out, "orders-*") || strings.Contains(o.out, "orb_") {
		t.Errorf("list:\n%s", o.out)
	}
	program("admin", "credential", "revoke", made.Credential.ID, "-N", "shop/eu", "-r", "left").want(t, 0)
	if o := program("admin", "credential", "list", "-N", "shop/eu").want(t, 0); !strings.Contains(o.out, "revoked") {
		t.Errorf("not revoked:\n%s", o.out)
	}
	for _, bad := range [][]string{
		{"admin", "credential", "revoke", "nothex", "-r", "x"},
		{"admin", "credential", "revoke", made.Credential.ID},
		{"admin", "credential", "list", "-N", "nowhere/none"},
		{"admin", "credential", "create", "x"},
	} {
		if o := program(bad...); o.code == 0 {
			t.Errorf("%v succeeded: %s", bad, o.out)
		}
	}
	if acts := rowCount(t, d.DB, `SELECT COUNT(*) FROM orbit_audit_events WHERE source = 'host'`); acts != 5 {
		t.Errorf("%d acts are in the audit, want 5", acts)
	}
}

func TestVerifyFailsWhereAnInvariantIsBroken(t *testing.T) {
	d := harness.New(t)
	t.Setenv("ORBIT_DSN", d.DSN)
	program("admin", "bootstrap").want(t, 0)
	if o := program("verify").want(t, 0); !strings.Contains(o.err, "Every invariant holds") {
		t.Errorf("got %s", o.err)
	}
	if _, err := d.DB.ExecContext(t.Context(), `DELETE FROM orbit_event_heads`); err != nil {
		t.Fatal(err)
	}
	if o := program("verify"); o.code != exitFailed || !strings.Contains(o.out, "platform.event.head") {
		t.Errorf("exit code %d\n%s%s", o.code, o.out, o.err)
	}
	o := program("verify", "-o", "json")
	var found itemsView[findingView]
	if err := json.Unmarshal([]byte(o.out), &found); o.code != exitFailed || err != nil || len(found.Items) != 1 {
		t.Errorf("exit code %d, %v\n%s", o.code, err, o.out)
	}
}

func TestQueuesFromTheCommandLine(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	t.Setenv("ORBIT_SERVER", o.URL())
	t.Setenv("ORBIT_KEY_FILE", write(t, "key", o.Key+"\n"))

	var queue struct {
		ID       string
		LeaseMs  int64 `json:"lease_ms"`
		Revision int64
		Paused   bool
		OneStep  bool `json:"one_step"`
	}
	program("queue", "create", "q", "--lease", "20s", "--unknown-outcome", "retry", "-o", "json").json(t, &queue)
	if queue.LeaseMs != 20_000 {
		t.Errorf("got %+v", queue)
	}
	for _, name := range []string{"q", queue.ID} {
		if got := program("queue", "get", name).want(t, 0); !strings.Contains(got.out, queue.ID) || !strings.Contains(got.out, "retry") {
			t.Errorf("get %s:\n%s", name, got.out)
		}
	}
	program("queue", "update", "q", "--max-attempts", "3", "-o", "json").json(t, &queue)
	if queue.Revision != 2 || queue.LeaseMs != 20_000 {
		t.Errorf("after the change: %+v", queue)
	}
	if got := program("queue", "update", "q", "--lease", "5s", "--revision", "1"); got.code != exitFailed || !strings.Contains(got.err, "revision_mismatch") {
		t.Errorf("a change of an old revision: exit code %d, %s", got.code, got.err)
	}
	if got := program("queue", "update", "q"); got.code != exitUsage {
		t.Errorf("a change of nothing: exit code %d", got.code)
	}
	if program("queue", "update", "q", "--one-step", "-o", "json").json(t, &queue); !queue.OneStep || queue.Revision != 3 {
		t.Errorf("after the change: %+v", queue)
	}
	if got := program("queue", "get", "q").want(t, 0); !regexp.MustCompile(`(?m)^one step +yes$`).MatchString(got.out) {
		t.Errorf("the queue is not shown as one of one step:\n%s", got.out)
	}
	if got := program("queue", "update", "q", "--unknown-outcome", "review"); got.code != exitFailed || !strings.Contains(got.err, "/one_step") {
		t.Errorf("one step with review: exit code %d, %s", got.code, got.err)
	}
	if program("queue", "update", "q", "--no-one-step", "-o", "json").json(t, &queue); queue.OneStep {
		t.Errorf("after the change: %+v", queue)
	}
	program("queue", "pause", "q", "-r", "maintenance").want(t, 0)
	if got := program("queue", "list").want(t, 0); !strings.Contains(got.out, "yes") {
		t.Errorf("the queue is not shown as paused:\n%s", got.out)
	}
	program("queue", "resume", "q").want(t, 0)
	if got := program("queue", "depth", "q").want(t, 0); !strings.Contains(got.out, "ready") {
		t.Errorf("depth:\n%s", got.out)
	}
	if got := program("queue", "get", "nosuch"); got.code != exitFailed || !strings.Contains(got.err, `"nosuch"`) {
		t.Errorf("a queue that is not there: exit code %d, %s", got.code, got.err)
	}
}

func TestSchedulesFromTheCommandLine(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	t.Setenv("ORBIT_SERVER", o.URL())
	t.Setenv("ORBIT_KEY_FILE", write(t, "key", o.Key+"\n"))
	o.CreateQueue("q", nil)

	var s api.Schedule
	program("schedule", "create", "nightly", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "-q", "q", "-t", "report", "-p", `{"n":1.0}`, "--deadline", "2h", "--catch-up-max", "0", "-o", "json").json(t, &s)
	if s.Name != "nightly" || s.Timetable.Cron.Value != "30 2 * * *" || s.Task.DeadlineMs.Value != 7_200_000 || s.CatchUpMax != 0 || s.RunOverlap != "skip" {
		t.Fatalf("got %+v", s)
	}
	s = api.Schedule{}
	program("schedule", "update", "nightly", "--every", "1h", "--phase", "5m", "--run-overlap", "allow", "-o", "json").json(t, &s)
	if s.Version != 2 || s.Timetable.Cron.Set || s.Timetable.EveryMs.Value != 3_600_000 || s.Timetable.PhaseMs.Value != 300_000 || s.RunOverlap != "allow" ||
		s.Timetable.Zone.Value != "Europe/Berlin" || !strings.Contains(string(s.Task.Payload), "1.0") || s.Task.DeadlineMs.Value != 7_200_000 || s.CatchUpMax != 0 {
		t.Fatalf("after the change: %+v", s)
	}
	if got := program("schedule", "update", "nightly", "--every", "2h", "--revision", "1"); got.code != exitFailed || !strings.Contains(got.err, "revision_mismatch") {
		t.Errorf("a change of an old revision: exit code %d, %s", got.code, got.err)
	}
	if got := program("schedule", "update", "nightly"); got.code != exitUsage {
		t.Errorf("a change of nothing: exit code %d", got.code)
	}
	if got := program("schedule", "create", "x", "--cron", "@daily", "--every", "1h", "-q", "q", "-t", "t"); got.code != exitUsage {
		t.Errorf("two kinds of timetable: exit code %d, %s", got.code, got.err)
	}
	if got := program("schedule", "preview", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--after", "2028-03-25T12:00:00Z", "-n", "1").want(t, 0); !strings.Contains(got.out, "2028-03-26T03:00:00+02:00") {
		t.Errorf("preview:\n%s", got.out)
	}
	var preview api.SchedulePreview
	if program("schedule", "preview", s.ID, "-n", "3", "-o", "json").json(t, &preview); len(preview.Items) != 3 || preview.Items[0].FireAt.Minute() != 5 {
		t.Errorf("preview of a stored one: %+v", preview)
	}
	if got := program("schedule", "trigger", "nightly").want(t, 0); !strings.Contains(got.out, "fired") {
		t.Errorf("trigger:\n%s", got.out)
	}
	var fired struct{ Items []api.Occurrence }
	program("schedule", "occurrences", "nightly", "-o", "json").json(t, &fired)
	if got := program("task", "get", fired.Items[0].TaskID.Value).want(t, 0); !strings.Contains(got.out, "schedule "+s.ID) {
		t.Errorf("the task does not show its origin:\n%s", got.out)
	}
	if got := program("schedule", "backfill", "nightly", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T03:00:00Z").want(t, 0); !regexp.MustCompile(`(?m)^fired +3$`).MatchString(got.out) {
		t.Errorf("backfill:\n%s", got.out)
	}
	if got := program("schedule", "occurrences", "nightly").want(t, 0); strings.Count(got.out, "backfill") != 3 || strings.Count(got.out, "trigger") != 1 {
		t.Errorf("occurrences:\n%s", got.out)
	}
	if got := program("schedule", "versions", "nightly").want(t, 0); !strings.Contains(got.out, "30 2 * * *") || !strings.Contains(got.out, "every 1h0m0s + 5m0s") {
		t.Errorf("versions:\n%s", got.out)
	}
	if got := program("schedule", "pause", "nightly", "-r", "repairs").want(t, 0); !strings.Contains(got.out, "repairs") {
		t.Errorf("pause:\n%s", got.out)
	}
	if got := program("schedule", "list").want(t, 0); !strings.Contains(got.out, "paused") {
		t.Errorf("list:\n%s", got.out)
	}
	program("schedule", "resume", "nightly").want(t, 0)
	if got := program("schedule", "get", "nightly").want(t, 0); !regexp.MustCompile(`(?m)^state +active$`).MatchString(got.out) {
		t.Errorf("get:\n%s", got.out)
	}
	if got := program("schedule", "archive", "nightly", "-r", "over").want(t, 0); !strings.Contains(got.out, "archived") {
		t.Errorf("archive:\n%s", got.out)
	}
	if got := program("schedule", "get", "nosuch"); got.code != exitFailed || !strings.Contains(got.err, `"nosuch"`) {
		t.Errorf("a schedule that is not there: exit code %d, %s", got.code, got.err)
	}
}

func TestTasksFromTheCommandLine(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	t.Setenv("ORBIT_SERVER", o.URL())
	t.Setenv("ORBIT_KEY", o.Key)
	o.CreateQueue("q", nil)

	const digits = `{"n": 3889108265204450030, "d": 0.1000}`
	var first, second receiptView
	submit := []string{"task", "submit", "-q", "q", "-t", "t", "--delay", "1h", "--idempotency-key", "k", "-o", "json"}
	program(append(submit, "-p", digits)...).json(t, &first)
	program(append(submit, "-p", "@"+write(t, "payload", digits))...).json(t, &second)
	if !second.Replayed || second.TaskID != first.TaskID || !second.AcceptedAt.Equal(first.AcceptedAt) {
		t.Errorf("the repeat got %+v, the first %+v", second, first)
	}
	if wait := first.RunAt.Sub(first.AcceptedAt); wait != time.Hour {
		t.Errorf("delayed by %s", wait)
	}
	if got := program("task", "get", first.TaskID).want(t, 0); !strings.Contains(got.out, digits) || !strings.Contains(got.out, "scheduled until") {
		t.Errorf("get:\n%s", got.out)
	}
	if got := program("task", "get", first.TaskID, "-o", "json").want(t, 0); !strings.Contains(got.out, `"n": 3889108265204450030`) || !strings.Contains(got.out, `"d": 0.1000`) {
		t.Errorf("digits are lost:\n%s", got.out)
	}
	var list itemsView[struct{ ID, State string }]
	program("task", "list", "-q", "q", "--state", "queued", "-o", "json").json(t, &list)
	if len(list.Items) != 1 || list.Items[0].ID != first.TaskID {
		t.Errorf("list: %+v", list)
	}
	program("task", "list", "-t", "other", "-o", "json").json(t, &list)
	if len(list.Items) != 0 {
		t.Errorf("a list of another type: %+v", list)
	}
	if got := program("task", "cancel", first.TaskID, "--if-match", `"99-0-0"`); got.code != exitFailed || !strings.Contains(got.err, "revision_mismatch") {
		t.Errorf("cancelled by an old etag: exit code %d, %s", got.code, got.err)
	}
	if got := program("task", "cancel", first.TaskID, "-r", "no need").want(t, 0); !strings.Contains(got.out, "cancelled") {
		t.Errorf("cancel:\n%s", got.out)
	}
	if got := program("task", "retry", first.TaskID); got.code != exitFailed || !strings.Contains(got.err, "state_conflict") || strings.Contains(got.err, "orbit: orbit:") {
		t.Errorf("retry of a cancelled task: exit code %d, %s", got.code, got.err)
	}

	program("task", "submit", "-q", "q", "-t", "t", "--deadline-at", time.Now().Add(time.Hour).Format(time.RFC3339), "-o", "json").json(t, &first)
	o.Advance(2 * time.Hour)
	o.Pass("expire_deadlines")
	if got := program("task", "retry", first.TaskID, "--max-attempts", "2").want(t, 0); !strings.Contains(got.out, "queued") {
		t.Errorf("retry of a failed task:\n%s", got.out)
	}
	for _, bad := range [][]string{
		{"task", "resolve", first.TaskID, "retry", "-r", "x", "--if-match", `"9-9-9"`}, // not in review
		{"task", "resolve", first.TaskID, "juggle", "-r", "x", "--if-match", `"1-0-0"`},
		{"task", "resolve", first.TaskID, "retry", "-r", "x"},
		{"task", "submit", "-q", "q", "-t", "t", "-p", "{"},
		{"task", "submit", "-q", "q", "-t", "t", "-p", "@/nowhere"},
		{"task", "submit", "-q", "q"},
		{"task", "submit", "-q", "q", "-t", "t", "--delay", "1s", "--run-at", "2030-01-01T00:00:00Z"},
		{"task", "list", "--state", "lost"},
		{"task", "get", strings.Repeat("0", 32)},
	} {
		if got := program(bad...); got.code == 0 || got.err == "" {
			t.Errorf("%v succeeded: %s", bad, got.out)
		}
	}
	for rule, bad := range map[string][]string{
		"32 lower-case hexadecimal": {"task", "get", "abc"},
		"characters, each one of":   {"queue", "create", "bad name!"},
		"at most 86400000":          {"queue", "update", "q", "--lease", "1000000h"},
	} {
		if got := program(bad...); got.code != exitFailed || strings.Count(got.err, rule) != 1 {
			t.Errorf("%v: exit code %d, %q is not said once: %s", bad, got.code, rule, got.err)
		}
	}
}

func TestAServerThatIsAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	remote, err := remoteSettings{Server: "http://" + listener.Addr().String(), Key: "orb_x"}.client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.API.GetCredential(t.Context(), api.GetCredentialParams{}); !unreachable(err) {
		t.Errorf("nothing listens there: %v", err)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String()); err == nil || unreachable(err) {
		t.Errorf("a database that is away: %v", err)
	}
}

func TestDev(t *testing.T) {
	d := harness.Empty(t)
	made := `SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE 'orbit\_dev\_%'`
	before := rowCount(t, d.DB, made)
	p := launch(t, "dev", "--dsn", d.DSN, "--address", "127.0.0.1:0", "--queue", "try")
	url, _, _ := strings.Cut(strings.TrimPrefix(p.line("Orbit runs at "), "Orbit runs at "), ";")
	export := strings.Fields(p.line("export ORBIT_SERVER="))
	t.Setenv("ORBIT_SERVER", url)
	t.Setenv("ORBIT_KEY", strings.TrimPrefix(export[len(export)-1], "ORBIT_KEY="))
	p.line("orbit queue depth try")
	program("task", "submit", "-q", "try", "-t", "hello").want(t, 0)
	if n := rowCount(t, d.DB, made); n != before+1 {
		t.Errorf("%d databases of its own", n-before)
	}
	if n := rowCount(t, d.DB, `SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()`); n != 0 {
		t.Errorf("%d tables were made in the given database", n)
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := rowCount(t, d.DB, made); n != before {
		t.Errorf("%d databases are left", n-before)
	}
}

func TestATaskInReviewIsResolvedFromTheCommandLine(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	t.Setenv("ORBIT_SERVER", o.URL())
	t.Setenv("ORBIT_KEY", o.Key)
	o.CreateQueue("q", map[string]any{"unknown_outcome": "review"})
	var task receiptView
	program("task", "submit", "-q", "q", "-t", "t", "-o", "json").json(t, &task)
	loseAttempt(t, o)

	var seen struct{ Task struct{ State, Etag string } }
	program("task", "get", task.TaskID, "-o", "json").json(t, &seen)
	if seen.Task.State != "review" {
		t.Fatalf("the task is %s", seen.Task.State)
	}
	if got := program("task", "resolve", task.TaskID, "fail", "-r", "looked", "--if-match", seen.Task.Etag).want(t, 0); !strings.Contains(got.out, "failed") {
		t.Errorf("got:\n%s", got.out)
	}
}

// loseAttempt has a worker start the one task of queue q and never be heard of again.
func loseAttempt(t *testing.T, o *harness.Orbit) {
	t.Helper()
	c := o.Client()
	session, err := c.API.OpenWorkerSession(t.Context(), &api.OpenWorkerSessionRequest{
		WorkerName: "w", InstanceID: strings.Repeat("a", 32), Queues: []string{"q"}, Types: []string{"t"}, Slots: 1,
	}, api.OpenWorkerSessionParams{})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := c.API.ClaimTasks(t.Context(), &api.ClaimTasksRequest{InstanceID: session.InstanceID, Epoch: session.Epoch, ClaimSeq: 1, Max: 1}, api.ClaimTasksParams{})
	if err != nil || len(claim.Offers) != 1 {
		t.Fatalf("%v: %+v", err, claim)
	}
	started, err := c.API.StartAttempts(t.Context(), &api.StartAttemptsRequest{
		InstanceID: session.InstanceID, Epoch: session.Epoch,
		Items: []api.StartItem{{AttemptID: claim.Offers[0].AttemptID, Token: claim.Offers[0].Token}},
	}, api.StartAttemptsParams{})
	if err != nil || started.Items[0].Status != 200 {
		t.Fatalf("%v: %+v", err, started)
	}
	o.StayFresh(time.Minute)
	o.Pass("recover_leases")
}

func TestDevInAContainerOfItsOwn(t *testing.T) {
	if os.Getenv("ORBIT_TEST_DSN") != "" {
		t.Skip("the tests were given a server: there may be no Docker here")
	}
	image := cmp.Or(os.Getenv("ORBIT_TEST_MYSQL_IMAGE"), officialImage)
	p := launch(t, "dev", "--mysql-image", image, "--address", "127.0.0.1:0")
	line := p.line("in container ")
	_, name, _ := strings.Cut(line, "in container ")
	name, _, _ = strings.Cut(name, ".")
	p.line("orbit queue depth default")
	exists := func() bool {
		_, err := docker(t.Context(), nil, "container", "inspect", name)
		return err == nil
	}
	if !exists() {
		t.Errorf("there is no container %q, as %q says", name, line)
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if exists() {
		t.Errorf("container %s is left", name)
	}
}
