package integration_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// The worker that docs/protocol.md shows to authors of workers ends every task exactly once, although the first request and the first reply
// of each of its calls are lost.
func TestTheWorkerOfTheProtocolPageLosesNothing(t *testing.T) {
	python, err := osexec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	page, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no worker")
	}
	program := filepath.Join(t.TempDir(), "worker.py")
	if err := os.WriteFile(program, shown[1], 0o600); err != nil {
		t.Fatal(err)
	}
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	var tasks []string
	for range 8 {
		tasks = append(tasks, submit(t, o, "mail", "type", "mail.welcome", "payload", rawJSON(`{"to":"ada@example.com"}`)))
	}
	way := newLossyWay(t, o.URL())

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	worker := osexec.CommandContext(ctx, python, program)
	worker.Env = append(os.Environ(), "ORBIT_SERVER="+way.url, "ORBIT_KEY="+o.Key)
	worker.Stdout, worker.Stderr = t.Output(), t.Output()
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	for received := 0; received < len(tasks); {
		select {
		case n := <-way.receipts:
			received += n
		case <-ctx.Done():
			t.Fatalf("the worker got %d receipts of %d in time", received, len(tasks))
		}
	}
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	o.Replica(0).Service.Drain() // ends the poll that the worker waits in
	if err := worker.Wait(); err != nil {
		t.Fatalf("the worker ended with %v", err)
	}
	for _, id := range tasks {
		if got := wantState(t, o, id, "succeeded"); got.AttemptsUsed != 1 {
			t.Errorf("task %s used %d attempts, want 1: what was lost was to be settled, not done again", id, got.AttemptsUsed)
		}
	}
	for _, path := range []string{"/v1/worker-sessions", "/v1/claims", "/v1/attempts:start", "/v1/attempts:finish", "/v1/worker-sessions:close"} {
		if n := way.count(path); n < 3 {
			t.Errorf("%s was called %d times: its first request and its first reply were not both lost and settled", path, n)
		}
	}
}

// lossyWay forwards calls to a server. Of each path it loses the first request before it is served, and the reply to the second.
type lossyWay struct {
	url      string
	receipts chan int // that arrived

	mu    sync.Mutex
	calls map[string]int
}

func newLossyWay(t *testing.T, server string) *lossyWay {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	way := &lossyWay{receipts: make(chan int, 100), calls: map[string]int{}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			if err != nil || r.Request.Context().Value(ordinal{}) == 2 {
				return http.ErrAbortHandler
			}
			way.receipts <- bytes.Count(body, []byte(`"receipt":`))
			r.Body = io.NopCloser(bytes.NewReader(body))
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := way.called(r.URL.Path)
		if n == 1 {
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ordinal{}, n)))
	}))
	t.Cleanup(proxy.Close)
	way.url = proxy.URL
	return way
}

func (w *lossyWay) called(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[path]++
	return w.calls[path]
}

func (w *lossyWay) count(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[path]
}

// ordinal is which call of its path a request is, from 1.
type ordinal struct{}
