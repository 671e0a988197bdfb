package harness

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/service"
)

// Orbit is a running service on a database of its own, with one tenant and its first credential. Its loops do not run: a test calls a
// pass by name. When the test ends, everything must verify.
type Orbit struct {
	*Database
	Namespace service.Namespace
	Key       string // of the first credential, which is granted everything
	replicas  []*Replica
	offset    atomic.Int64
	t         testing.TB
}

// Replica is one process's worth of service, with its own pools.
type Replica struct {
	Service *service.Service
	URL     string
	Nudges  netip.AddrPort // where it takes nudges, if it does
	server  *httptest.Server
	pools   []*sql.DB
	end     func() // of its nudges
}

func nudgeSocket(t testing.TB) (*net.UDPConn, netip.AddrPort) {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	return conn, conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func (r *Replica) runNudges() {
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.Service.RunNudges(ctx)
	}()
	r.end = func() { stop(); <-over }
}

// Options change what Start makes.
type Options struct {
	Replicas int                      // 1 if zero
	Change   func(o *service.Options) // last word on each replica's options
	DSN      func(dsn string) string  // of the replicas' pools, for a test that stands between
	// Between stands between the replicas' pools and the driver; see Around.
	Between func(driver.Connector) driver.Connector
	// LaneWait is how long single items wait for a lock; 5 s if zero.
	LaneWait time.Duration
	// Nudges connects the replicas with each other; they know of each other once each has run renew_replica after the others' first.
	Nudges bool
	// Database is a migrated database of the test's own server; nil takes one of the shared server.
	Database *Database
}

// Start gives t a running service.
func Start(t testing.TB, opts Options) *Orbit {
	t.Helper()
	o := &Orbit{Database: opts.Database, t: t}
	if o.Database == nil {
		o.Database = New(t)
	}
	for range max(opts.Replicas, 1) {
		o.AddReplica(opts)
	}
	o.Namespace, o.Key = o.Tenant("default")
	t.Cleanup(o.verify)
	return o
}

// AddReplica starts one more replica on the same database and clock.
func (o *Orbit) AddReplica(opts Options) *Replica {
	o.t.Helper()
	r := &Replica{}
	dsn := o.DSN
	if opts.DSN != nil {
		dsn = opts.DSN(dsn)
	}
	options := service.Options{
		DB:     r.open(o.t, dsn, schema.PoolOptions{MaxOpen: 32, LockWait: time.Second, Between: opts.Between}),
		Lane:   r.open(o.t, dsn, schema.PoolOptions{MaxOpen: 16, LockWait: cmp.Or(opts.LaneWait, 5*time.Second), Between: opts.Between}),
		Logger: slog.New(slog.NewTextHandler(o.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})), ClockOffset: o.Offset,
		ReplicaID: orbit.NewID(time.Now()), Version: "test", Host: "test",
	}
	if opts.Nudges {
		options.NudgeConn, options.NudgeAddress = nudgeSocket(o.t)
		r.Nudges = options.NudgeAddress
	}
	if opts.Change != nil {
		opts.Change(&options)
	}
	s, err := service.New(options)
	if err != nil {
		o.t.Fatal(err)
	}
	r.Service = s
	if opts.Nudges {
		r.runNudges()
	}
	r.server = httptest.NewServer(s.Handler())
	r.URL = r.server.URL
	o.replicas = append(o.replicas, r)
	o.t.Cleanup(r.Close)
	return r
}

func (r *Replica) open(t testing.TB, dsn string, opts schema.PoolOptions) *sql.DB {
	t.Helper()
	db, err := schema.Open(dsn, opts)
	if err != nil {
		t.Fatal(err)
	}
	r.pools = append(r.pools, db)
	return db
}

// Close ends a replica's long polls, requests and connections; more than once does no harm.
func (r *Replica) Close() {
	r.Service.Drain()
	r.server.Close()
	if r.end != nil {
		r.end()
	}
	for _, db := range r.pools {
		db.Close()
	}
}

// Replica is the i-th replica.
func (o *Orbit) Replica(i int) *Replica { return o.replicas[i] }

// URL is the address of the first replica.
func (o *Orbit) URL() string { return o.replicas[0].URL }

// Offset is what the test has added to the database's clock.
func (o *Orbit) Offset() time.Duration { return time.Duration(o.offset.Load()) }

// Advance moves the database's clock, as the service sees it, by d.
func (o *Orbit) Advance(d time.Duration) { o.offset.Add(int64(d)) }

// Pass runs one pass of a loop on a replica and answers how many items it moved.
func (o *Orbit) Pass(name string, replica ...int) int {
	o.t.Helper()
	r := o.replicas[0]
	if len(replica) > 0 {
		r = o.replicas[replica[0]]
	}
	for _, l := range r.Service.Loops() {
		if l.Name == name {
			n, err := l.Pass(context.Background())
			if err != nil {
				o.t.Fatalf("pass %s: %v", name, err)
			}
			return n
		}
	}
	o.t.Fatalf("there is no loop %q", name)
	return 0
}

// StayFresh makes a replica count as alive without a gap for d of moved time, in renewals that each come in time. Recovery may then judge
// leases up to d.
func (o *Orbit) StayFresh(d time.Duration, replica ...int) {
	o.t.Helper()
	o.Pass("renew_replica", replica...)
	for step := time.Second; d > 0; d -= step {
		o.Advance(min(step, d))
		o.Pass("renew_replica", replica...)
	}
}

// Tenant makes another namespace with a credential that is granted everything in it.
func (o *Orbit) Tenant(name string) (service.Namespace, string) {
	o.t.Helper()
	host := o.replicas[0].Service.Host("test@host")
	_, err := host.CreateApplication(o.t.Context(), "app-"+name)
	if err != nil {
		o.t.Fatal(err)
	}
	ns, err := host.CreateNamespace(o.t.Context(), "app-"+name, name)
	if err != nil {
		o.t.Fatal(err)
	}
	return ns, o.Credential(ns, []string{"*"}, []string{"*"})
}

// Credential makes a credential with a new actor and answers its key.
func (o *Orbit) Credential(ns service.Namespace, actions, queues []string) string {
	o.t.Helper()
	host := o.replicas[0].Service.Host("test@host")
	issued, err := host.CreateCredential(o.t.Context(), ns.ID, service.NewCredential{Name: "test", Actions: actions, Queues: queues})
	if err != nil {
		o.t.Fatal(err)
	}
	return issued.Key.Text()
}

// Client is an SDK client on a replica with the first credential, which does not retry.
func (o *Orbit) Client(replica ...int) *client.Client {
	o.t.Helper()
	url := o.URL()
	if len(replica) > 0 {
		url = o.replicas[replica[0]].URL
	}
	c, err := client.New(url, o.Key)
	if err != nil {
		o.t.Fatal(err)
	}
	return c
}

// Reply is an answer as it came.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON reads the body into v.
func (r Reply) JSON(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		t.Fatalf("%v in %.300s", err, r.Body)
	}
}

// Problem is a problem document, as far as tests look at it.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Pointer string `json:"pointer"`
		Code    string `json:"code"`
		Detail  string `json:"detail"`
	} `json:"errors"`
}

// WantProblem fails t unless the reply is a whole problem document with that status and code.
func (r Reply) WantProblem(t testing.TB, status int, code string) Problem {
	t.Helper()
	var p Problem
	if r.Status != status || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/problem+json") {
		t.Fatalf("status %d (%s), want problem %d %s: %.500s", r.Status, r.Header.Get("Content-Type"), status, code, r.Body)
	}
	r.JSON(t, &p)
	if p.Code != code || p.Status != status || p.Type == "" || p.Title == "" || p.RequestID == "" {
		t.Fatalf("problem is not a whole %d %s: %s", status, code, r.Body)
	}
	return p
}

// Want fails t unless the reply has that status.
func (r Reply) Want(t testing.TB, status int) Reply {
	t.Helper()
	if r.Status != status {
		t.Fatalf("status %d, want %d: %.500s", r.Status, status, r.Body)
	}
	return r
}

// Header is one header of a call; a repeated name is sent twice.
type Header struct{ Name, Value string }

// Call sends a request to the first replica with the first credential. Body is nil, a string or []byte sent as they are, or anything
// else as JSON.
func (o *Orbit) Call(method, path string, body any, headers ...Header) Reply {
	o.t.Helper()
	return o.CallAt(o.URL(), o.Key, method, path, body, headers...)
}

// CallAt is Call with another replica or credential; an empty key sends none.
func (o *Orbit) CallAt(url, key, method, path string, body any, headers ...Header) Reply {
	o.t.Helper()
	r, err := Do(o.t.Context(), url, key, method, path, body, headers...)
	if err != nil {
		o.t.Fatal(err)
	}
	return r
}

// Do is CallAt for goroutines of a test, which must not end it.
func Do(ctx context.Context, url, key, method, path string, body any, headers ...Header) (Reply, error) {
	raw, err := encodeBody(body)
	if err != nil {
		return Reply{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, url+path, bytes.NewReader(raw))
	if err != nil {
		return Reply{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	own := map[string]bool{}
	for _, h := range headers {
		if !own[h.Name] {
			req.Header.Del(h.Name)
		}
		own[h.Name] = true
		req.Header.Add(h.Name, h.Value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return Reply{Status: resp.StatusCode, Header: resp.Header, Body: got}, err
}

func encodeBody(body any) ([]byte, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(b), nil
	case []byte:
		return b, nil
	}
	return json.Marshal(body)
}

// Key is the header of an idempotency key.
func Key(k string) Header { return Header{"Idempotency-Key", k} }

// Count is the number of rows a condition finds, such as "pulse_tasks WHERE state = 'open'".
func (o *Orbit) Count(from string, args ...any) int {
	o.t.Helper()
	var n int
	if err := o.DB.QueryRowContext(o.t.Context(), "SELECT COUNT(*) FROM "+from, args...).Scan(&n); err != nil {
		o.t.Fatal(err)
	}
	return n
}

// CreateQueue makes a queue with a policy given as API fields, and answers its id.
func (o *Orbit) CreateQueue(name string, policy map[string]any) string {
	o.t.Helper()
	body := map[string]any{"name": name}
	for k, v := range policy {
		body[k] = v
	}
	var queue struct {
		ID string `json:"id"`
	}
	o.Call("POST", "/v1/queues", body, Key("queue-"+name)).Want(o.t, 201).JSON(o.t, &queue)
	return queue.ID
}

// verify checks every invariant of the database the test leaves behind.
func (o *Orbit) verify() {
	if o.t.Failed() {
		return
	}
	o.Pass("sequence_events")
	found, err := o.replicas[0].Service.Verify(context.Background())
	if err != nil {
		o.t.Errorf("verify: %v", err)
	}
	for i, f := range found {
		if i == 20 {
			o.t.Errorf("… and %d more", len(found)-20)
			break
		}
		o.t.Error(fmt.Sprint(f))
	}
}
