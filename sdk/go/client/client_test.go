package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// seen is one request that a server got.
type seen struct {
	method, path, query, body string
	header                    http.Header
	at                        time.Time
}

// server answers from memory, as a transport, so that a bubble's clock is exact.
type server struct {
	mu      sync.Mutex
	answer  func(n int, r seen) (*http.Response, error) // n counts from 1
	request []seen
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	s.mu.Lock()
	r := seen{req.Method, req.URL.Path, req.URL.RawQuery, string(body), req.Header.Clone(), time.Now()}
	s.request = append(s.request, r)
	n := len(s.request)
	s.mu.Unlock()
	return s.answer(n, r)
}

func (s *server) client(t *testing.T, opts ...client.Option) *client.Client {
	t.Helper()
	opts = append([]client.Option{client.WithHTTPClient(&http.Client{Transport: s})}, opts...)
	c, err := client.New("https://orbit.test/", "orb_secret", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func reply(status int, contentType, body string, header ...string) *http.Response {
	rec := httptest.NewRecorder()
	rec.Header().Set("Content-Type", contentType)
	for i := 0; i < len(header); i += 2 {
		rec.Header().Set(header[i], header[i+1])
	}
	rec.WriteHeader(status)
	io.WriteString(rec, body)
	return rec.Result()
}

func refuse(status int, code string, header ...string) *http.Response {
	body := fmt.Sprintf(`{"type":"/docs/problems/%s","title":"T","status":%d,"code":%q,"request_id":"r-1"}`, code, status, code)
	return reply(status, "application/problem+json", body, header...)
}

const (
	taskID  = "0198c0de4a7b7c3e9f10a2b3c4d5e6f7"
	queueID = "0198c0de4a7b7c3e9f10a2b3c4d5e6f8"
	receipt = `{"task_id":"` + taskID + `","queue_id":"` + queueID + `","type":"mail.welcome","accepted_at":"2026-01-02T03:04:05.000006Z","run_at":"2026-01-02T03:04:05.000006Z"}`
)

func accepted(header ...string) *http.Response {
	return reply(201, "application/json", receipt, append(header, "Location", "/v1/tasks/"+taskID)...)
}

func TestSubmitSendsWhatItWasGiven(t *testing.T) {
	s := &server{answer: func(int, seen) (*http.Response, error) { return accepted("Idempotency-Replayed", "true"), nil }}
	c := s.client(t, client.WithUserAgent("billing/2.1"))
	const payload = `{"n":3889108265204450030, "d":0.1000,"big":12345678901234567890123456789012345678,"html":"<&>"}`
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	got, err := c.Submit(trace.ContextWithSpanContext(t.Context(), parent), "order-1", client.Submission{
		Queue: "mail", Type: "mail.welcome", Payload: json.RawMessage(payload), Priority: 2, Delay: 1500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	want := client.Receipt{TaskID: taskID, QueueID: queueID, Type: "mail.welcome", AcceptedAt: at, RunAt: at, Replayed: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	r := s.request[0]
	if want := `{"queue":"mail","type":"mail.welcome","payload":` + payload + `,"priority":2,"delay_ms":1500}`; r.body != want {
		t.Errorf("body\n %s, want\n %s", r.body, want)
	}
	for name, want := range map[string]string{
		"Authorization":   "Bearer orb_secret",
		"Idempotency-Key": "order-1",
		"Traceparent":     "00-01000000000000000000000000000000-0200000000000000-01",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if ua := r.header.Get("User-Agent"); !strings.HasPrefix(ua, "billing/2.1 orbit-go") {
		t.Errorf("User-Agent: %q", ua)
	}
	if r.path != "/v1/tasks" || r.method != "POST" {
		t.Errorf("%s %s", r.method, r.path)
	}
}

func TestSubmitRepeatsUnderTheSameKey(t *testing.T) {
	cut := errors.New("connection reset by peer")
	synctest.Test(t, func(t *testing.T) {
		answers := []func() (*http.Response, error){
			func() (*http.Response, error) { return nil, cut },
			func() (*http.Response, error) { return refuse(503, client.CodeOutcomeUnknown), nil },
			func() (*http.Response, error) { return refuse(429, client.CodeRateLimited, "Retry-After", "7"), nil },
			func() (*http.Response, error) { return refuse(409, client.CodeIdempotencyInProgress), nil },
			func() (*http.Response, error) { return reply(502, "text/html", "<h1>Bad gateway</h1>"), nil },
			func() (*http.Response, error) { return reply(201, "application/json", receipt[:40]), nil },
			func() (*http.Response, error) { return accepted(), nil },
		}
		s := &server{answer: func(n int, _ seen) (*http.Response, error) { return answers[n-1]() }}
		got, err := s.client(t).Submit(t.Context(), "order-1", client.Submission{Queue: "mail", Type: "mail.welcome"})
		if err != nil || got.TaskID != taskID {
			t.Fatalf("Submit = %+v, %v", got, err)
		}
		if len(s.request) != len(answers) {
			t.Fatalf("%d requests, want %d", len(s.request), len(answers))
		}
		for _, r := range s.request {
			if r.header.Get("Idempotency-Key") != "order-1" || r.body != s.request[0].body {
				t.Errorf("a repeat under key %q with body %s", r.header.Get("Idempotency-Key"), r.body)
			}
		}
		if waited := s.request[3].at.Sub(s.request[2].at); waited != 7*time.Second {
			t.Errorf("waited %v after Retry-After: 7", waited)
		}
	})
}

func TestSubmitTakesADefiniteNo(t *testing.T) {
	for status, code := range map[int]string{
		400: client.CodeInvalidRequest, 401: client.CodeUnauthenticated, 404: client.CodeNotFound, 409: client.CodePrincipalMismatch,
		410: client.CodeIdempotencyVoid, 422: client.CodeIdempotencyConflict, 418: "never_heard_of",
	} {
		s := &server{answer: func(int, seen) (*http.Response, error) { return refuse(status, code), nil }}
		_, err := s.client(t).Submit(t.Context(), "order-1", client.Submission{Queue: "mail", Type: "mail.welcome"})
		if !client.HasCode(err, code) || len(s.request) != 1 {
			t.Errorf("%d %s: %d requests and %v, want one and the refusal", status, code, len(s.request), err)
		}
	}
}

func TestSubmitNeedsAKeyAndJSON(t *testing.T) {
	s := &server{answer: func(int, seen) (*http.Response, error) { return accepted(), nil }}
	c := s.client(t)
	good := client.Submission{Queue: "mail", Type: "mail.welcome"}
	bad := good
	bad.Payload = json.RawMessage("{")
	for _, try := range []struct {
		key string
		s   client.Submission
	}{{"", good}, {"k", bad}} {
		if _, err := c.Submit(t.Context(), try.key, try.s); err == nil {
			t.Errorf("Submit(%q, %+v) was let through", try.key, try.s)
		}
	}
	if len(s.request) != 0 {
		t.Errorf("%d requests were sent", len(s.request))
	}
}

func TestRetryEnds(t *testing.T) {
	away := func(int, seen) (*http.Response, error) { return refuse(503, client.CodeUnavailable), nil }
	submission := client.Submission{Queue: "mail", Type: "mail.welcome"}
	synctest.Test(t, func(t *testing.T) {
		s, from := &server{answer: away}, time.Now()
		_, err := s.client(t, client.WithRetryFor(30*time.Second)).Submit(t.Context(), "k", submission)
		if took := time.Since(from); !client.HasCode(err, client.CodeUnavailable) || took > 30*time.Second || took < 20*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		if len(s.request) < 8 || len(s.request) > 16 {
			t.Errorf("%d requests in 30 s", len(s.request))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: away}
		_, err := s.client(t, client.WithRetryFor(0)).Submit(t.Context(), "k", submission)
		if !client.HasCode(err, client.CodeUnavailable) || len(s.request) != 1 {
			t.Errorf("WithRetryFor(0): %d requests, %v", len(s.request), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: away}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := s.client(t, client.WithRetryFor(-1)).Submit(ctx, "k", submission)
		if !errors.Is(err, context.DeadlineExceeded) || !client.HasCode(err, client.CodeUnavailable) {
			t.Errorf("at the end of ctx: %v, want both the end and the last refusal", err)
		}
	})
}

func TestPerTryAndNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		tries := 0
		got, err := client.Retry(t.Context(), func(ctx context.Context) (int, error) {
			if tries++; tries == 1 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return tries, nil
		}, client.PerTry(time.Second), client.Notify(func(err error, _ time.Duration) { told = append(told, err) }))
		if got != 2 || err != nil || len(told) != 1 || !errors.Is(told[0], context.DeadlineExceeded) {
			t.Errorf("Retry = %d, %v; told %v", got, err, told)
		}
	})
}

func TestProblem(t *testing.T) {
	const body = `{"type":"/docs/problems/invalid_request","title":"The request is not valid","status":400,"code":"invalid_request",` +
		`"request_id":"r-9","retry_after_ms":250,"errors":[{"pointer":"/payload/a","code":"too_deep","detail":"deeper than 100"}]}`
	s := &server{answer: func(int, seen) (*http.Response, error) {
		return reply(400, "application/problem+json; charset=utf-8", body), nil
	}}
	_, err := s.client(t).API.GetTask(t.Context(), api.GetTaskParams{TaskID: taskID})
	var got *client.Problem
	if !errors.As(err, &got) {
		t.Fatalf("%v holds no Problem", err)
	}
	want := &client.Problem{
		Status: 400, Code: "invalid_request", Title: "The request is not valid", Type: "/docs/problems/invalid_request", RequestID: "r-9",
		RetryAfter: 250 * time.Millisecond, Errors: []client.Fault{{Pointer: "/payload/a", Code: "too_deep", Detail: "deeper than 100"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problem (-want +got):\n%s", diff)
	}
	if text := "orbit: 400 invalid_request: The request is not valid; /payload/a: deeper than 100 (request r-9)"; got.Error() != text {
		t.Errorf("Error() = %q, want %q", got.Error(), text)
	}
}

func TestProblemSaysEachFaultOnce(t *testing.T) {
	for want, p := range map[string]client.Problem{
		"path/task_id: no id":                      {Detail: "path/task_id: no id", Errors: []client.Fault{{Pointer: "path/task_id", Detail: "no id"}}},
		"/a: no name (and 1 more); /b: no name":    {Detail: "/a: no name (and 1 more)", Errors: []client.Fault{{Pointer: "/a", Detail: "no name"}, {Pointer: "/b", Detail: "no name"}}},
		"it is empty":                              {Detail: "it is empty", Errors: []client.Fault{{Detail: "it is empty"}}},
		"Not valid; /a: too_deep; it has two ends": {Title: "Not valid", Errors: []client.Fault{{Pointer: "/a", Code: "too_deep"}, {Detail: "it has two ends"}}},
	} {
		p.Status, p.Code = 400, client.CodeInvalidRequest
		if got := p.Error(); got != "orbit: 400 invalid_request: "+want {
			t.Errorf("Error() = %q, want %q", got, want)
		}
	}
}

func TestProblemFromElsewhere(t *testing.T) {
	for _, tt := range []struct {
		status     int
		media      string
		body       string
		date, wait string
		want       client.Problem
	}{
		{502, "text/html", "<html>", "", "", client.Problem{Status: 502, Title: "Bad Gateway", RequestID: "r-2"}},
		{403, "application/problem+json", "{", "", "", client.Problem{Status: 403, Title: "Forbidden", RequestID: "r-2"}},
		{503, "text/plain", "", "Fri, 02 Jan 2026 03:04:05 GMT", "Fri, 02 Jan 2026 03:04:15 GMT",
			client.Problem{Status: 503, Title: "Service Unavailable", RequestID: "r-2", RetryAfter: 10 * time.Second}},
		{503, "text/plain", "", "", "Fri, 02 Jan 2026 03:04:15 GMT", client.Problem{Status: 503, Title: "Service Unavailable", RequestID: "r-2"}},
		{503, "text/plain", "", "", "-3", client.Problem{Status: 503, Title: "Service Unavailable", RequestID: "r-2"}},
	} {
		s := &server{answer: func(int, seen) (*http.Response, error) {
			return reply(tt.status, tt.media, tt.body, "X-Request-Id", "r-2", "Date", tt.date, "Retry-After", tt.wait), nil
		}}
		_, err := s.client(t).API.GetCredential(t.Context(), api.GetCredentialParams{})
		var got *client.Problem
		if !errors.As(err, &got) {
			t.Fatalf("%v holds no Problem", err)
		}
		if diff := cmp.Diff(&tt.want, got); diff != "" {
			t.Errorf("problem (-want +got):\n%s", diff)
		}
	}
}

func TestRetryable(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("cut"), true},
		{io.ErrUnexpectedEOF, true},
		{context.DeadlineExceeded, true},
		{fmt.Errorf("do: %w", context.Canceled), false},
		{&client.Problem{Status: 500}, true},
		{&client.Problem{Status: 503, Code: "outcome_unknown"}, true},
		{&client.Problem{Status: 408}, true},
		{&client.Problem{Status: 425}, true},
		{&client.Problem{Status: 429}, true},
		{&client.Problem{Status: 409, Code: "idempotency_in_progress"}, true},
		{&client.Problem{Status: 409, Code: "state_conflict"}, false},
		{&client.Problem{Status: 404}, false},
	} {
		if got := client.Retryable(tt.err); got != tt.want {
			t.Errorf("Retryable(%v) = %t", tt.err, got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, try := range [][2]string{{"orbit.test", "orb_k"}, {"ftp://orbit.test", "orb_k"}, {"http://", "orb_k"}, {"http://a b", "orb_k"}, {"http://orbit.test", ""}} {
		if _, err := client.New(try[0], try[1]); err == nil {
			t.Errorf("New(%q, %q) was let through", try[0], try[1])
		}
	}
}

func TestNewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := map[string]bool{}
		for range 1000 {
			keys[client.NewKey()] = true
		}
		if len(keys) != 1000 {
			t.Errorf("%d different keys of 1000", len(keys))
		}
		before := client.NewKey()
		<-time.After(time.Millisecond)
		if after := client.NewKey(); after <= before || len(after) != 32 {
			t.Errorf("%s is not above %s", after, before)
		}
	})
}

// Over a real connection: a server that takes the request and cuts the connection leaves an unknown outcome.
func TestCutConnection(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		io.Copy(io.Discard, r.Body)
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/v1/tasks/"+taskID)
		if len(keys) == 1 {
			panic(http.ErrAbortHandler)
		}
		if len(keys) == 2 {
			w.Header().Set("Content-Length", "1000")
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, receipt)
	}))
	defer srv.Close()
	c, err := client.New(srv.URL, "orb_k")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Submit(t.Context(), "order-1", client.Submission{Queue: "mail", Type: "mail.welcome"})
	if err != nil || got.TaskID != taskID {
		t.Fatalf("Submit = %+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"order-1", "order-1", "order-1"}, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}
