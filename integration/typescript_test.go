package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/openapi"
	"github.com/orbit-run/orbit/service"
)

// The same texts stand in typescript/src/drive.ts: neither side believes the other.
const (
	typescriptPayload  = `{"id":3889108265204450030,"amount":0.1000,"balance":12345678901234567890.123456789012345678}`
	typescriptResult   = `{"seen":[3889108265204450030,0.1000,12345678901234567890.123456789012345678],"note":"0.1000"}`
	typescriptProgress = `{"done":0.1000,"of":12345678901234567890.123456789012345678}`
)

func TestAGeneratedTypeScriptClientDrivesATaskToItsEnd(t *testing.T) {
	needNode(t)
	program := compileTypeScript(t)
	o := harness.Start(t, harness.Options{})
	runLoops(t, o)
	seen := &tap{next: o.Replica(0).Service.Handler()}
	server := httptest.NewServer(seen)
	t.Cleanup(server.Close)

	t.Log(command(t, filepath.Dir(program), []string{"ORBIT_SERVER=" + server.URL, "ORBIT_KEY=" + o.Key}, "node", program))

	submits := seen.of(t, "POST /v1/tasks", 5)
	wantMember(t, submits[0].request, typescriptPayload, "payload")
	if first, repeat := submits[0], submits[1]; !bytes.Equal(first.reply, repeat.reply) || !bytes.Equal(first.request, repeat.request) {
		t.Errorf("a repeated submit got %s, the first %s", repeat.reply, first.reply)
	}
	wantMember(t, seen.of(t, "POST /v1/claims", 1)[0].reply, typescriptPayload, "offers", "payload")
	wantMember(t, seen.of(t, "POST /v1/attempts:heartbeat", 1)[0].request, typescriptProgress, "items", "progress")
	finishes := seen.of(t, "POST /v1/attempts:finish", 2)
	wantMember(t, finishes[0].request, typescriptResult, "items", "result")
	receipt := member(t, finishes[0].reply, "items", "receipt")
	wantMember(t, finishes[1].reply, receipt, "items", "receipt")

	var ended struct {
		TaskID    string `json:"task_id"`
		AttemptID string `json:"attempt_id"`
	}
	if err := json.Unmarshal([]byte(receipt), &ended); err != nil {
		t.Fatal(err)
	}
	task := o.Call("GET", "/v1/tasks/"+ended.TaskID, nil).Want(t, 200).Body
	wantMember(t, task, typescriptPayload, "payload")
	wantMember(t, task, typescriptResult, "result")
	attempt := o.Call("GET", "/v1/attempts/"+ended.AttemptID, nil).Want(t, 200).Body
	wantMember(t, attempt, receipt, "receipt")
	wantMember(t, attempt, typescriptResult, "result")
	wantMember(t, attempt, typescriptProgress, "progress")
}

// needNode skips the test where Node is missing, and fails it there if the environment says that this is CI.
func needNode(t *testing.T) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		_, err := osexec.LookPath(program)
		switch {
		case err == nil:
		case os.Getenv("CI") != "":
			t.Fatalf("%s is missing: install Node 18 or later with npm (Debian: nodejs npm)", program)
		default:
			t.Skipf("THE TYPESCRIPT CLIENT IS NOT TESTED: %s is missing; install Node 18 or later with npm (Debian: nodejs npm)", program)
		}
	}
}

// compileTypeScript generates the client from the document, compiles it with the program that uses it, and answers the program's file.
// It works on a copy: nothing that was installed or generated before has a part in it.
func compileTypeScript(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "openapi/orbit.yaml"), openapi.Document)
	dir := filepath.Join(root, "integration/typescript")
	for _, name := range []string{".npmrc", "package.json", "package-lock.json", "tsconfig.json", "src/exact.ts", "src/drive.ts"} {
		content, err := os.ReadFile(filepath.Join("typescript", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), content)
	}
	t.Log(command(t, dir, nil, "npm", "ci", "--prefer-offline"))
	t.Log(command(t, dir, nil, "npm", "run", "generate"))
	t.Log(command(t, dir, nil, "npm", "run", "compile"))
	return filepath.Join(dir, "build/drive.js")
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// command runs a program to its end and answers what it printed. It fails t if the program fails or takes longer than 5 minutes.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := osexec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 5 * time.Second
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, printed)
	}
	return string(printed)
}

// runLoops runs the loops of the first replica until the test ends.
func runLoops(t *testing.T, o *harness.Orbit) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.Replica(0).Service.RunLoops(ctx, service.Roles{API: true, Engine: true})
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// tap keeps what passes between a client and a service.
type tap struct {
	next      http.Handler
	mu        sync.Mutex
	exchanges []*exchange
}

// exchange is a call, such as "POST /v1/tasks", with the bytes of its request and of its reply.
type exchange struct {
	call           string
	request, reply []byte
}

func (s *tap) ServeHTTP(to http.ResponseWriter, req *http.Request) {
	request, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(request))
	e := &exchange{call: req.Method + " " + req.URL.Path, request: request}
	s.mu.Lock()
	s.exchanges = append(s.exchanges, e)
	s.mu.Unlock()
	s.next.ServeHTTP(&tapped{ResponseWriter: to, tap: s, exchange: e}, req)
}

// tapped keeps each part of a reply before it is sent, so that whatever a client has seen is there.
type tapped struct {
	http.ResponseWriter
	tap      *tap
	exchange *exchange
}

func (r *tapped) Write(part []byte) (int, error) {
	r.tap.mu.Lock()
	r.exchange.reply = append(r.exchange.reply, part...)
	r.tap.mu.Unlock()
	return r.ResponseWriter.Write(part)
}

func (r *tapped) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// of is the exchanges of a call in the order in which they began; there must be n.
func (s *tap) of(t *testing.T, call string, n int) []exchange {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []exchange
	for _, e := range s.exchanges {
		if e.call == call {
			found = append(found, *e)
		}
	}
	if len(found) != n {
		t.Fatalf("%d exchanges of %s, want %d", len(found), call, n)
	}
	return found
}

// member is the bytes of a member of a JSON text, found by its names; of a list on the way the first item counts.
func member(t *testing.T, text []byte, names ...string) string {
	t.Helper()
	found := json.RawMessage(text)
	for _, name := range names {
		var list []json.RawMessage
		if json.Unmarshal(found, &list) == nil && len(list) > 0 {
			found = list[0]
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(found, &object); err != nil || object[name] == nil {
			t.Fatalf("no %s in %s (%v)", strings.Join(names, "."), text, err)
		}
		found = object[name]
	}
	return string(found)
}

func wantMember(t *testing.T, text []byte, want string, names ...string) {
	t.Helper()
	if got := member(t, text, names...); got != want {
		t.Errorf("%s is %s, want %s", strings.Join(names, "."), got, want)
	}
}
