package service

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/orbit-run/orbit"
)

// unreachable serves the API over a database that refuses connections.
func unreachable(t *testing.T, change func(*Options)) (*httptest.Server, *bytes.Buffer) {
	t.Helper()
	db, err := sql.Open("mysql", "orbit@tcp(127.0.0.1:1)/orbit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var out bytes.Buffer
	o := Options{DB: db, Lane: db, Logger: slog.New(slog.NewJSONHandler(&out, nil))}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return server, &out
}

func someKey() string {
	now := time.UnixMilli(1_800_000_000_000)
	return orbit.NewCredentialKey(orbit.NewID(now), orbit.NewID(now)).Text()
}

// Each way of failing at the edge ends in a whole problem document.
func TestEveryFailureIsAProblem(t *testing.T) {
	server, _ := unreachable(t, nil)
	key := "Bearer " + someKey()
	for name, c := range map[string]struct {
		method, path string
		header       http.Header
		body         string
		status       int
		code         string
	}{
		"no key":               {"GET", "/v1/credential", nil, "", 401, "unauthenticated"},
		"another scheme":       {"GET", "/v1/credential", http.Header{"Authorization": {"Basic " + someKey()}}, "", 401, "unauthenticated"},
		"not a key":            {"GET", "/v1/credential", http.Header{"Authorization": {"Bearer orb_x"}}, "", 401, "unauthenticated"},
		"a mistyped key":       {"GET", "/v1/credential", http.Header{"Authorization": {key[:len(key)-1] + "!"}}, "", 401, "unauthenticated"},
		"two keys":             {"GET", "/v1/credential", http.Header{"Authorization": {key, key}}, "", 400, "invalid_request"},
		"no database":          {"GET", "/v1/credential", http.Header{"Authorization": {key}}, "", 503, "unavailable"},
		"no such path":         {"GET", "/v1/nothing", http.Header{"Authorization": {key}}, "", 404, "not_found"},
		"the root":             {"GET", "/", nil, "", 404, "not_found"},
		"a verb too much":      {"POST", "/v1/tasks/" + strings.Repeat("0", 32) + ":dance", nil, "", 404, "not_found"},
		"a method not taken":   {"DELETE", "/v1/tasks", http.Header{"Authorization": {key}}, "", 405, "method_not_allowed"},
		"OPTIONS":              {"OPTIONS", "/v1/tasks", nil, "", 405, "method_not_allowed"},
		"two idempotency keys": {"POST", "/v1/tasks", http.Header{"Idempotency-Key": {"a", "a"}}, "{}", 400, "invalid_request"},
		"two asserted actors":  {"GET", "/v1/tasks", http.Header{"Orbit-Actor": {"a", "a"}}, "", 400, "invalid_request"},
		"not an actor":         {"GET", "/v1/tasks", http.Header{"Orbit-Actor": {"me"}}, "", 400, "invalid_request"},
		"not a namespace":      {"GET", "/v1/tasks", http.Header{"Orbit-Namespace": {strings.Repeat("A", 32)}}, "", 400, "invalid_request"},
		"a key for a batch":    {"POST", "/v1/tasks:batch", http.Header{"Idempotency-Key": {"a"}}, `{"items":[]}`, 400, "invalid_request"},
		"a body before a key":  {"POST", "/v1/tasks", http.Header{"Content-Type": {"application/json"}}, `{`, 401, "unauthenticated"},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range c.header {
				in.Header[k] = v
			}
			in.Header.Set("X-Request-Id", "given-id")
			out, err := http.DefaultClient.Do(in)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Body.Close()
			text, err := io.ReadAll(out.Body)
			if err != nil {
				t.Fatal(err)
			}
			var p struct {
				Type, Title, Code, Detail string
				Status                    int
				RequestID                 string `json:"request_id"`
			}
			if err := json.Unmarshal(text, &p); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if out.StatusCode != c.status || p.Status != c.status || p.Code != c.code || p.Type != "/docs/problems/"+c.code || p.Title == "" || p.Detail == "" {
				t.Errorf("%d %s, want %d %s", out.StatusCode, text, c.status, c.code)
			}
			if p.RequestID != "given-id" || out.Header.Get("X-Request-Id") != "given-id" {
				t.Errorf("the request id is not echoed: %s %v", text, out.Header)
			}
			if out.Header.Get("Content-Type") != "application/problem+json" || out.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers: %v", out.Header)
			}
			for header, want := range map[string]bool{"WWW-Authenticate": c.status == 401, "Allow": c.status == 405, "Retry-After": c.status == 503} {
				if got := out.Header.Get(header) != ""; got != want {
					t.Errorf("%s is there: %t, want %t", header, got, want)
				}
			}
		})
	}
}

// A panic is a problem for the caller and a stack in the log; the server goes on.
func TestPanicIsAProblem(t *testing.T) {
	calls := 0
	server, out := unreachable(t, func(o *Options) {
		o.ReplicaID = orbit.NewID(time.UnixMilli(1))
		o.HostClock = func() time.Time {
			if calls++; calls == 2 {
				panic("the clock broke")
			}
			return time.UnixMilli(int64(calls))
		}
	})
	for _, want := range []int{500, 503} {
		in, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/credential", nil)
		if err != nil {
			t.Fatal(err)
		}
		in.Header.Set("Authorization", "Bearer "+someKey())
		reply, err := http.DefaultClient.Do(in)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if reply.StatusCode != want || strings.Contains(string(text), "clock") || reply.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d %s, want %d", reply.StatusCode, text, want)
		}
	}
	server.Close()
	if log := out.String(); !strings.Contains(log, "the clock broke") || !strings.Contains(log, "http_edge.go") {
		t.Errorf("no stack in the log: %s", log)
	}
}

// The access log and the metrics name the operation, never a path or a key.
func TestRequestsAreLoggedAndMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	server, out := unreachable(t, func(o *Options) { o.Registerer = registry })
	key := someKey()
	for _, path := range []string{"/v1/tasks/" + strings.Repeat("0", 32), "/v1/nothing/" + key} {
		in, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		in.Header.Set("Authorization", "Bearer "+key)
		in.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		reply, err := http.DefaultClient.Do(in)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
	}
	server.Close()
	for _, want := range []string{`"operation":"getTask"`, `"status":503`, `"status":404`, `"trace_id":"0af7651916cd43dd8448eb211c80319c"`, `"request_id":"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, out)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "orbit_http_request_duration_seconds"); err != nil || n != 2 {
		t.Errorf("%d series of requests, %v; want 2: getTask 5xx and none 4xx", n, err)
	}
	if n, err := testutil.GatherAndCount(registry, "orbit_http_requests_in_flight"); err != nil || n != 1 {
		t.Errorf("in flight: %d, %v", n, err)
	}
}

// Once a reply has begun nothing is added to it.
func TestBrokenReplyGetsNoProblem(t *testing.T) {
	e := &edge{service: &Service{options: Options{Logger: slog.New(slog.DiscardHandler)}}}
	in := httptest.NewRequest(http.MethodGet, "/v1/tasks", nil)
	out := httptest.NewRecorder()
	e.fail(context.WithValue(t.Context(), requestKey{}, &request{status: 200}), out, in, io.ErrClosedPipe)
	if out.Body.Len() != 0 || out.Result().Header.Get("Content-Type") != "" {
		t.Errorf("%s %v", out.Body, out.Result().Header)
	}
}

func TestUnquote(t *testing.T) {
	for in, want := range map[string]string{
		`k`: `k`, `"k"`: `k`, `""`: ``, `"`: `"`, `"k`: `"k`, `k"`: `k"`, `"a\"b"`: `a"b`, `"a\\b"`: `a\b`, `"a\b"`: `"a\b"`, `"a"b"`: `"a"b"`, `"a\"`: `"a\"`,
	} {
		if got := unquote(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestRequestID(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for _, id := range []string{"a", "!~", strings.Repeat("x", 128)} {
		if got := requestID(id, now); got != id {
			t.Errorf("%q becomes %q", id, got)
		}
	}
	for _, id := range []string{"", "a b", "é", "a\x00", strings.Repeat("x", 129)} {
		if _, err := orbit.ParseID(requestID(id, now)); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestOptions(t *testing.T) {
	db, err := sql.Open("mysql", "orbit@tcp(127.0.0.1:1)/orbit")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, o := range map[string]Options{
		"no pools":             {},
		"no lane":              {DB: db},
		"keys live too short":  {DB: db, Lane: db, IdempotencyLife: 8*24*time.Hour - 1},
		"negative life of key": {DB: db, Lane: db, IdempotencyLife: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := New(Options{DB: db, Lane: db}); err != nil {
		t.Error(fmt.Errorf("nothing but pools: %w", err))
	}
}
