package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// get asks a replica and gives status and body; status 0 means that nobody answered.
func get(url string) (int, string) {
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func wantGet(t *testing.T, url string, status int, contains string) {
	t.Helper()
	if got, body := get(url); got != status || !strings.Contains(body, contains) {
		t.Errorf("%s: status %d, want %d with %q:\n%.500s", url, got, status, contains, body)
	}
}

// await polls for what another process does.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
			if done() {
				tick.Stop()
				return
			}
		}
	}
}

// bootstrap makes the first credential and gives its key.
func bootstrap(t *testing.T, dsn string) string {
	t.Helper()
	var issued issuedView
	program("admin", "bootstrap", "--dsn", dsn, "-o", "json").json(t, &issued)
	return issued.Key
}

func serve(t *testing.T, dsn string, more ...string) *launched {
	t.Helper()
	return launch(t, append([]string{"serve", "--dsn", dsn, "--listen", "127.0.0.1:0", "--accept-weak-durability", "--drain-delay", "0s"}, more...)...)
}

func TestServeAnswersEverything(t *testing.T) {
	d := harness.New(t)
	p := serve(t, d.DSN, "--pprof-listen", "127.0.0.1:0")
	var profiles struct{ Address string }
	if err := json.Unmarshal([]byte(p.line("serving profiles")), &profiles); err != nil {
		t.Fatal(err)
	}
	line := p.line(`"msg":"serving"`)
	var entry struct{ Address, MySQL string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.MySQL == "" {
		t.Fatalf("the line names no MySQL version: %s", line)
	}
	url := "http://" + entry.Address
	wantGet(t, url+"/livez", 200, "ok")
	wantGet(t, url+"/readyz", 200, "ok")
	wantGet(t, url+"/readyz?verbose", 200, "database  ok")
	wantGet(t, url+"/metrics", 200, "orbit_build_info{")
	wantGet(t, url+"/metrics", 200, "orbit_http_requests_in_flight 0")
	wantGet(t, url+"/docs", 200, "")
	wantGet(t, url+"/openapi.yaml", 200, "openapi: 3")
	wantGet(t, url+"/v1/credential", 401, `"code":"unauthenticated"`)
	wantGet(t, url+"/nothing", 404, `"code":"not_found"`)
	wantGet(t, url+"/debug/pprof/", 404, `"code":"not_found"`)
	wantGet(t, "http://"+profiles.Address+"/debug/pprof/", 200, "goroutine")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestTheEngineAloneServesNoAPI(t *testing.T) {
	url := serve(t, harness.New(t).DSN, "--roles", "engine").serving()
	wantGet(t, url+"/readyz", 200, "ok")
	wantGet(t, url+"/metrics", 200, "orbit_build_info{")
	wantGet(t, url+"/v1/credential", 404, "")
}

func TestSIGTERMEndsInGoodOrder(t *testing.T) {
	d := harness.New(t)
	key := bootstrap(t, d.DSN)
	p := serve(t, d.DSN, "--drain-delay", "2s")
	url := p.serving()
	c, err := client.New(url, key)
	if err != nil {
		t.Fatal(err)
	}
	poll := longPoll(t, c)
	await(t, "the long poll to wait", func() bool {
		_, metrics := get(url + "/metrics")
		return strings.Contains(metrics, "orbit_http_requests_in_flight 1\n")
	})

	p.signal(syscall.SIGTERM)
	await(t, "readyz to say so", func() bool { status, _ := get(url + "/readyz"); return status == 503 })
	wantGet(t, url+"/readyz?verbose", 503, "this replica is ending")
	wantGet(t, url+"/livez", 200, "ok")
	if _, err := c.Credential(t.Context()); err != nil {
		t.Errorf("requests are refused before the delay is over: %v", err)
	}
	select {
	case got := <-poll:
		t.Fatalf("the long poll ended before the delay was over: %v", got)
	default:
	}
	if err := <-poll; err != nil {
		t.Errorf("the long poll was cut: %v", err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if status, _ := get(url + "/livez"); status != 0 {
		t.Errorf("somebody still answers: %d", status)
	}
	if !strings.Contains(p.all(), `"msg":"ended"`) {
		t.Errorf("the last line is lost")
	}
	if n := rowCount(t, d.DB, `SELECT COUNT(*) FROM orbit_replicas`); n != 0 {
		t.Errorf("%d replicas are still on the list", n)
	}
}

// longPoll claims with a wait of 30 s; what comes is how it ended.
func longPoll(t *testing.T, c *client.Client) <-chan error {
	t.Helper()
	queue, err := c.API.CreateQueue(t.Context(), &api.CreateQueueRequest{Name: "q"}, api.CreateQueueParams{IdempotencyKey: api.NewOptString("q")})
	if err != nil {
		t.Fatal(err)
	}
	session, err := c.API.OpenWorkerSession(t.Context(), &api.OpenWorkerSessionRequest{
		WorkerName: "w", InstanceID: strings.Repeat("a", 32), Queues: []string{queue.Response.ID}, Types: []string{"t"}, Slots: 1,
	}, api.OpenWorkerSessionParams{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		claim, err := c.API.ClaimTasks(t.Context(), &api.ClaimTasksRequest{
			InstanceID: session.InstanceID, Epoch: session.Epoch, ClaimSeq: 1, Max: 1, WaitMs: api.NewOptInt64(30_000),
		}, api.ClaimTasksParams{})
		if err == nil && len(claim.Offers) != 0 {
			err = fmt.Errorf("%d offers from an empty queue", len(claim.Offers))
		}
		ended <- err
	}()
	return ended
}

func rowCount(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	p := serve(t, harness.New(t).DSN, "--drain-delay", "1h")
	p.serving()
	p.signal(syscall.SIGTERM)
	p.line("ending: unready")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != -1 {
		t.Errorf("exit code %d; the second signal should have killed it", code)
	}
}

func TestReadyzFollowsTheDatabase(t *testing.T) {
	d := harness.New(t)
	proxy := harness.NewProxy(t, d.DSN)
	url := serve(t, proxy.Through(d.DSN)).serving()
	wantGet(t, url+"/readyz", 200, "ok")
	proxy.Away()
	wantGet(t, url+"/readyz", 503, "not ready")
	wantGet(t, url+"/readyz?verbose", 503, "the database does not answer")
	wantGet(t, url+"/livez", 200, "ok")
	if _, body := get(url + "/readyz?verbose"); strings.Contains(body, "127.0.0.1") {
		t.Errorf("an address is told to strangers:\n%s", body)
	}
	proxy.Back()
	await(t, "the replica to be ready again", func() bool { status, _ := get(url + "/readyz"); return status == 200 })
	if _, err := d.DB.ExecContext(t.Context(), `UPDATE orbit_migration_runs SET ended_at = NULL WHERE version = 5`); err != nil {
		t.Fatal(err)
	}
	wantGet(t, url+"/readyz?verbose", 503, "did not end")
	if _, err := d.DB.ExecContext(t.Context(), `UPDATE orbit_migration_runs SET ended_at = started_at WHERE version = 5`); err != nil {
		t.Fatal(err)
	}
}

func TestServeWaitsForItsDatabase(t *testing.T) {
	d := harness.New(t)
	proxy := harness.NewProxy(t, d.DSN)
	proxy.Away()
	p := serve(t, proxy.Through(d.DSN))
	p.line("the database does not answer yet")
	proxy.Back()
	p.serving()

	proxy.Away()
	late := serve(t, proxy.Through(d.DSN), "--database-wait", "1s")
	if code := late.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	proxy.Back()
}

func TestServeRefuses(t *testing.T) {
	empty, migrated := harness.Empty(t), harness.New(t)
	wrong, err := mysql.ParseDSN(migrated.DSN)
	if err != nil {
		t.Fatal(err)
	}
	wrong.Passwd = "wrong"
	for name, try := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no DSN":                  {nil, exitUsage, "ORBIT_DSN"},
		"a DSN that is none":      {[]string{"--dsn", "mysql://x"}, exitFailed, "want user:password@tcp(host:3306)/orbit"},
		"no tables":               {[]string{"--dsn", empty.DSN, "--accept-weak-durability"}, exitFailed, "orbit migrate up"},
		"a wrong password":        {[]string{"--dsn", wrong.FormatDSN()}, exitFailed, "refuses this user or password"},
		"an unknown role":         {[]string{"--dsn", migrated.DSN, "--roles", "cook"}, exitUsage, "cook"},
		"keys that die too soon":  {[]string{"--dsn", migrated.DSN, "--accept-weak-durability", "--idempotency-life", "1h"}, exitFailed, "at least 192h"},
		"an address that is none": {[]string{"--dsn", migrated.DSN, "--accept-weak-durability", "--listen", "nowhere"}, exitFailed, "nowhere"},
		"one connection":          {[]string{"--dsn", migrated.DSN, "--database-connections", "1"}, exitUsage, "at least 2"},
		"a negative limit":        {[]string{"--dsn", migrated.DSN, "--rate-limit", "-1"}, exitUsage, "rate-limit"},
	} {
		if o := program(append([]string{"serve"}, try.args...)...); o.code != try.code || !strings.Contains(o.err, try.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", name, o.code, try.code, try.want, o.err)
		}
	}
}

func TestServeRefusesWeakDurabilityByName(t *testing.T) {
	d := harness.PrivateServer(t, "--innodb-flush-log-at-trx-commit=2").Migrated(t, "orbit")
	o := program("serve", "--dsn", d.DSN, "--listen", "127.0.0.1:0")
	for _, want := range []string{"innodb_flush_log_at_trx_commit", "--accept-weak-durability"} {
		if o.code != exitFailed || !strings.Contains(o.err, want) {
			t.Errorf("exit code %d, want %d and %q:\n%s", o.code, exitFailed, want, o.err)
		}
	}
	p := serve(t, d.DSN)
	p.line(`"setting":"innodb_flush_log_at_trx_commit"`)
	p.serving()
}

func TestReadyzTellsAReadOnlyDatabase(t *testing.T) {
	d := harness.PrivateServer(t).Migrated(t, "orbit")
	url := serve(t, d.DSN).serving()
	for state, status := range map[string]int{"ON": 503, "OFF": 200} {
		if _, err := d.DB.ExecContext(t.Context(), `SET GLOBAL read_only = `+state); err != nil {
			t.Fatal(err)
		}
		if got, body := get(url + "/readyz?verbose"); got != status || strings.Contains(body, "read-only") != (status == 503) {
			t.Errorf("read_only %s: status %d\n%s", state, got, body)
		}
	}
}

func TestSlowClientsAreCut(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config = newHTTPServer(http.NotFoundHandler(), newLogger(io.Discard, "json", "error"))
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow:"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := bufio.NewReader(conn).ReadString('\n'); os.IsTimeout(err) {
		t.Fatal("a client that sends half a header is kept")
	}
	if took := time.Since(begin); took < server.Config.ReadHeaderTimeout/2 {
		t.Errorf("it was cut after %s already", took)
	}
}

// A long poll must outlive every time-out of the server that bounds clients.
func TestTimeoutsLeaveRoomForLongPolls(t *testing.T) {
	server := newHTTPServer(http.NotFoundHandler(), newLogger(io.Discard, "json", "error"))
	const longPoll, body = 30 * time.Second, time.Minute
	if server.WriteTimeout < longPoll+body+30*time.Second {
		t.Errorf("WriteTimeout %s cuts a long poll whose body was slow", server.WriteTimeout)
	}
	if server.ReadTimeout <= body {
		t.Errorf("ReadTimeout %s cuts a body that the service still waits for", server.ReadTimeout)
	}
	if server.ReadHeaderTimeout <= 0 || server.IdleTimeout <= 0 || server.MaxHeaderBytes <= 0 {
		t.Error("a client may be as slow as it likes")
	}
}
