package integration_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/service"
)

// wantUnavailable fails t unless the reply says that nothing was done and when to come again, and nothing of why.
func wantUnavailable(t testing.TB, r harness.Reply) {
	t.Helper()
	r.WantProblem(t, 503, "unavailable")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	for _, inner := range []string{"dial", "tcp", "127.0.0.1", "driver", "mysql", "MySQL", "super_read_only", "Error 1290", "EOF"} {
		if strings.Contains(string(r.Body), inner) {
			t.Errorf("the reply shows %q: %s", inner, r.Body)
		}
	}
}

// wantNoWrites fails t unless each operation that writes is unavailable at the replica, and item by item in a batch.
func wantNoWrites(t testing.TB, o *harness.Orbit, url, queue, task string) {
	t.Helper()
	for i, c := range [][3]string{
		{"POST", "/v1/tasks", `{"queue":"q","type":"t","payload":1}`},
		{"POST", "/v1/queues", `{"name":"q2"}`},
		{"POST", "/v1/queues/" + queue + ":pause", `{"reason":"x"}`},
		{"PATCH", "/v1/queues/" + queue, `{"max_attempts":1}`},
		{"POST", "/v1/tasks/" + task + ":cancel", `{}`},
		{"POST", "/v1/credentials", `{"name":"n","actions":["*"],"queues":["*"]}`},
		{"POST", "/v1/idempotency-keys:void", `{"operation":"submitTask","key":"unused"}`},
		{"POST", "/v1/worker-sessions", `{"worker_name":"w","instance_id":"` + strings.Repeat("ab", 16) + `","queues":["q"],"types":[],"slots":1}`},
	} {
		headers := []harness.Header{harness.Key(fmt.Sprint("away", i)), ifMatch(`"1"`)}
		if c[0] == "PATCH" {
			headers = append(headers, mergePatch)
		}
		wantUnavailable(t, o.CallAt(url, o.Key, c[0], c[1], c[2], headers...))
	}
	for i, r := range submitBatch(t, o, url, `{"queue":"q","type":"t","idempotency_key":"away-a"}`, `{"queue":"q","type":"t","idempotency_key":"away-b"}`) {
		if r.Status != 503 || r.Problem.Code != "unavailable" || r.Problem.RetryAfterMs < 1 {
			t.Errorf("item %d answered %+v", i, r)
		}
	}
}

// wantSettled repeats what was refused, and fails t unless it is then done, once.
func wantSettled(t testing.TB, o *harness.Orbit, url, task string) {
	t.Helper()
	for range 2 {
		o.CallAt(url, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t","payload":1}`, harness.Key("away0")).Want(t, 201)
		o.CallAt(url, o.Key, "POST", "/v1/tasks/"+task+":cancel", `{}`, harness.Key("away4")).Want(t, 200)
		for i, r := range submitBatch(t, o, url, `{"queue":"q","type":"t","idempotency_key":"away-a"}`, `{"queue":"q","type":"t","idempotency_key":"away-b"}`) {
			if r.Status != 201 {
				t.Errorf("item %d answered %+v", i, r)
			}
		}
	}
	if n := o.Count("pulse_tasks"); n != 4 {
		t.Errorf("%d tasks, want the first and the three that were repeated", n)
	}
}

func TestTheDatabaseIsAway(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	task := submit(t, o, "q")
	proxy := harness.NewProxy(t, o.DSN)
	replica := o.AddReplica(harness.Options{DSN: proxy.Through})
	wantOpens(t, o, 1, o.Key, true)
	unread := o.Credential(o.Namespace, []string{"*"}, []string{"*"})
	since := ledger(t, o)
	proxy.Away()
	wantNoWrites(t, o, replica.URL, queue, task)
	for _, path := range []string{"/v1/tasks/" + task, "/v1/tasks", "/v1/queues/" + queue + "/depth", "/v1/events", "/v1/audit-events", "/v1/workers", keyPath("submitTask", "k", "")} {
		wantUnavailable(t, o.CallAt(replica.URL, o.Key, "GET", path, nil))
	}
	// Nobody is told that his key is wrong because it cannot be read.
	wantUnavailable(t, o.CallAt(replica.URL, unread, "GET", "/v1/credential", nil))
	proxy.Back()
	wantLedger(t, o, since)
	wantSettled(t, o, replica.URL, task)
	o.CallAt(replica.URL, o.Key, "GET", "/v1/tasks/"+task, nil).Want(t, 200)
}

func TestNobodyListensAtTheDatabase(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	listener.Close()
	replica := o.AddReplica(harness.Options{DSN: func(dsn string) string {
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.Addr = nobody
		return config.FormatDSN()
	}})
	wantUnavailable(t, o.CallAt(replica.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")))
	wantUnavailable(t, o.CallAt(replica.URL, o.Key, "GET", "/v1/credential", nil))
}

// The database goes away in the middle of a request: before the commit nothing was done, and at the commit the key tells.
func TestTheDatabaseGoesAwayInARequest(t *testing.T) {
	for at, code := range map[harness.Statement]string{"ShareKeys": "unavailable", "InsertKey": "unavailable", "InsertTask": "unavailable", "InsertSpool": "unavailable", harness.Commit: "outcome_unknown"} {
		t.Run(string(at), func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			o.CreateQueue("q", nil)
			proxy := harness.NewProxy(t, o.DSN)
			replica, w := addWired(t, o, harness.Options{DSN: proxy.Through})
			wantOpens(t, o, 1, o.Key, true)
			since := ledger(t, o)
			stopped := w.stop(at)
			first := send(t, replica.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"))
			within(t, stopped.reached, "the request to be under way")
			proxy.Away()
			stopped.goOn()
			r := first()
			r.WantProblem(t, 503, code)
			if r.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			wantLedger(t, o, since)
			proxy.Back()
			if again := o.CallAt(replica.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).Want(t, 201); replayed(again) {
				t.Errorf("what was never done is repeated: %s", again.Body)
			}
			wantOneTask(t, o)
		})
	}
}

func TestTheDatabaseIsReadOnly(t *testing.T) {
	server := harness.PrivateServer(t)
	o := harness.Start(t, harness.Options{Database: server.Migrated(t, "orbit")})
	queue := o.CreateQueue("q", nil)
	task := submit(t, o, "q")
	since := ledger(t, o)
	exec(t, o.DB, "SET GLOBAL super_read_only = ON")
	wantNoWrites(t, o, o.URL(), queue, task)
	for _, path := range []string{"/v1/tasks/" + task, "/v1/tasks", "/v1/queues/" + queue + "/depth", "/v1/events", keyPath("submitTask", "away0", "")} {
		o.Call("GET", path, nil).Want(t, 200) // reading goes on
	}
	wantLedger(t, o, since)
	exec(t, o.DB, "SET GLOBAL super_read_only = OFF")
	wantSettled(t, o, o.URL(), task)
}

// A database that takes what it is sent and never answers is away as well, after the time of one statement.
func TestTheDatabaseNeverAnswers(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	task := submit(t, o, "q")
	proxy := harness.NewProxy(t, o.DSN)
	replica := o.AddReplica(harness.Options{DSN: proxy.Through, Change: func(options *service.Options) {
		options.StatementTime, options.BodyTime = time.Second, time.Second
	}})
	for range 3 { // connections that are in use are the ones that hang
		o.CallAt(replica.URL, o.Key, "GET", "/v1/tasks/"+task, nil).Want(t, 200)
	}
	since := ledger(t, o)
	proxy.Hush()
	var waits []func() harness.Reply
	for i, c := range [][3]string{
		{"POST", "/v1/tasks", `{"queue":"q","type":"t","payload":1}`}, {"POST", "/v1/tasks/" + task + ":cancel", `{}`}, {"POST", "/v1/queues/" + queue + ":pause", `{"reason":"x"}`},
		{"GET", "/v1/tasks/" + task, ""}, {"GET", "/v1/tasks", ""}, {"GET", "/v1/queues/" + queue + "/depth", ""}, {"GET", "/v1/events", ""}, {"GET", "/v1/audit-events", ""}, {"GET", "/v1/credentials", ""},
		{"GET", keyPath("submitTask", "k", ""), ""}, {"GET", "/v1/workers", ""},
	} {
		waits = append(waits, send(t, replica.URL, o.Key, c[0], c[1], c[2], harness.Key(fmt.Sprint("away", i))))
	}
	for i, wait := range waits {
		r := wait()
		if r.Status != 503 || r.Header.Get("Retry-After") == "" {
			t.Errorf("call %d answered %d %s", i, r.Status, r.Body)
		}
	}
	wantLedger(t, o, since)
	proxy.Speak()
	o.CallAt(replica.URL, o.Key, "GET", "/v1/tasks/"+task, nil).Want(t, 200)
	o.CallAt(replica.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t","payload":1}`, harness.Key("away0")).Want(t, 201)
	if n := o.Count("pulse_tasks"); n != 2 {
		t.Errorf("%d tasks, want 2", n)
	}
}
