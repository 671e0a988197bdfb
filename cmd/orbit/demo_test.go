package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/sdk/go/api"
)

// tree makes files under a directory of the test's own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDigests(t *testing.T) {
	html := "<!doctype html>\n" + strings.Repeat("x", 2000) + "\n<p>"
	dir := tree(t, map[string]string{"empty": "", "abc": "abc", "page": html, "binary": "\x00\x01\n\xff"})
	for name, want := range map[string]fileDigest{
		"empty":  {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 0, 0, "text/plain; charset=utf-8"},
		"abc":    {"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 3, 0, "text/plain; charset=utf-8"},
		"page":   {"", int64(len(html)), 2, "text/html; charset=utf-8"},
		"binary": {"", 4, 1, "application/octet-stream"},
	} {
		whole, err := digestWhole(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if want.SHA256 == "" {
			want.SHA256 = whole.SHA256
		}
		if whole != want {
			t.Errorf("%s: whole %+v, want %+v", name, whole, want)
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if stream, err := digestStream(iotest.OneByteReader(bytes.NewReader(text))); err != nil || stream != want {
			t.Errorf("%s: in pieces %+v, %v, want %+v", name, stream, err, want)
		}
	}
}

func TestListFiles(t *testing.T) {
	dir := tree(t, map[string]string{"b": "", "a/c": "", "a/b/d e": "", "bad\xffname": "", ".run/log": "", "a/.run/kept": ""})
	for link, target := range map[string]string{"link": "b", "loop": ".", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got, err := listFiles(dir, filepath.Join(dir, ".run"))
	if err != nil {
		t.Fatal(err)
	}
	want := demoFiles{paths: []string{"a/.run/kept", "a/b/d e", "a/c", "b"}, irregular: 4, unnamed: 1}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(demoFiles{})); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestDigestUnderStaysUnder(t *testing.T) {
	dir := tree(t, map[string]string{"in/file": "x", "out": "secret"})
	if err := os.Symlink("../out", filepath.Join(dir, "in", "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if d, err := digestUnder(root, "file"); err != nil || d.Size != 1 {
		t.Errorf("file: %+v, %v", d, err)
	}
	for _, path := range []string{"../out", "link", "missing", "/etc/hosts"} {
		if d, err := digestUnder(root, path); err == nil || !strings.Contains(err.Error(), codeUnreadable) {
			t.Errorf("%s: %+v, %v, want a failure with code %s", path, d, err, codeUnreadable)
		}
	}
}

func TestDiffers(t *testing.T) {
	dir := tree(t, map[string]string{"abc": "abc"})
	file, missing := filepath.Join(dir, "abc"), filepath.Join(dir, "missing")
	right, err := digestWhole(file)
	if err != nil {
		t.Fatal(err)
	}
	wrong := right
	wrong.Lines++
	succeeded := func(d fileDigest) *api.Task {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return &api.Task{State: api.TaskStateSucceeded, Result: text}
	}
	failed := func(code string) *api.Task {
		return &api.Task{State: api.TaskStateFailed, Failure: api.NewOptFailure(api.Failure{Code: code})}
	}
	for _, tt := range []struct {
		name         string
		task         *api.Task
		file         string
		same, closed bool
	}{
		{"right", succeeded(right), file, true, false},
		{"wrong", succeeded(wrong), file, false, false},
		{"no result", &api.Task{State: api.TaskStateSucceeded}, file, false, false},
		{"failed", failed("panic"), file, false, false},
		{"unreadable there alone", failed(codeUnreadable), file, false, false},
		{"unreadable here alone", succeeded(right), missing, false, false},
		{"unreadable to both", failed(codeUnreadable), missing, true, true},
		{"not ended", &api.Task{State: api.TaskStateRunning}, file, false, false},
	} {
		if difference, closed := differs(tt.task, tt.file); (difference == "") != tt.same || closed != tt.closed {
			t.Errorf("%s: %q, %t", tt.name, difference, closed)
		}
	}
}

func TestQuantile(t *testing.T) {
	var waits []time.Duration
	if got := quantile(waits, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 200 {
		waits = append(waits, time.Duration(i+1)*time.Millisecond)
	}
	if p50, p99 := quantile(waits, 0.50), quantile(waits, 0.99); p50 != 100 || p99 != 198 {
		t.Errorf("p50 %v, p99 %v, want 100 and 198", p50, p99)
	}
	if got := quantile(waits[:1], 0.99); got != 1 {
		t.Errorf("of one: %v", got)
	}
}

func TestCountsOfAttempts(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(after time.Duration) api.OptDateTime { return api.NewOptDateTime(created.Add(after)) }
	s := &demoSummary{}
	wait, ok := s.count(taskStory{task: &api.Task{CreatedAt: created}, attempts: []api.AttemptSummary{
		{State: api.AttemptStateSucceeded, StartedAt: at(9 * time.Second)},
		{State: api.AttemptStateReleased},
		{State: api.AttemptStateLost, StartedAt: at(2 * time.Second)},
		{State: api.AttemptStateExpired},
	}})
	want := demoSummary{Attempts: 4, Started: 2, Retries: 1, Lost: 1, Unstarted: 2}
	if *s != want || wait != 2*time.Second || !ok {
		t.Errorf("%+v, wait %v, %t; want %+v and 2 s", *s, wait, ok, want)
	}
}

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		s  demoSummary
		ok bool
	}{{demoSummary{Tasks: 2, Agreed: 2}, true}, {demoSummary{Tasks: 2, Agreed: 1}, false}, {demoSummary{Tasks: 2, Agreed: 2, Broken: 1}, false}} {
		if err := tt.s.verdict(); (err == nil) != tt.ok {
			t.Errorf("verdict of %+v = %v", tt.s, err)
		}
	}
}

func TestProgressInLines(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "done", 30)
	for _, n := range []int{0, 1, 3, 2, 4, 15, 30, 30} {
		p.set(n)
	}
	p.say("said")
	want := "done         3 of 30\ndone         15 of 30\ndone         30 of 30\nsaid\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

func TestStateOfARun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.json")
	first, err := loadState(file, "/a")
	if err != nil || first.Run == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := loadState(file, "/a"); err != nil || again != first {
		t.Errorf("the same directory: %+v, %v, want to go on with %+v", again, err, first)
	}
	if other, err := loadState(file, "/b"); err != nil || other.Run == first.Run {
		t.Errorf("another directory goes on with the run of the first: %+v, %v", other, err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := loadState(file, "/b"); err != nil || s.Run == "" {
		t.Errorf("after a broken file: %+v, %v", s, err)
	}
}

// demoFixture lets children of this test binary be the program, and ends what a demo leaves running.
func demoFixture(t *testing.T) (dir, runDir string) {
	t.Helper()
	d := harness.New(t)
	t.Setenv("ORBIT_DSN", d.DSN)
	t.Setenv("ORBIT_ACCEPT_WEAK_DURABILITY", "true")
	t.Setenv(asProgram, "1")
	files := map[string]string{}
	for i := range 60 {
		files[fmt.Sprintf("%d/%d", i%7, i)] = strings.Repeat("line\n", i)
	}
	dir, runDir = tree(t, files), t.TempDir()
	if err := os.Symlink("0", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endServer(t, runDir) })
	return dir, runDir
}

func endServer(t *testing.T, runDir string) {
	t.Helper()
	pid := running(filepath.Join(runDir, "orbit.pid"))
	if pid == 0 {
		return
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	limit := time.After(patience)
	for running(filepath.Join(runDir, "orbit.pid")) != 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Error("the demo's server does not end")
			return
		}
	}
}

func TestDemo(t *testing.T) {
	dir, runDir := demoFixture(t)
	// A key that some other database gave: a new one takes its place.
	foreign := orbit.NewCredentialKey(orbit.NewID(time.Now()), orbit.NewID(time.Now())).Text()
	if err := os.WriteFile(filepath.Join(runDir, "key"), []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	var s demoSummary
	o := program("demo", "--dir", dir, "--run-dir", runDir, "--listen", "127.0.0.1:0", "-o", "json")
	o.json(t, &s)
	if s.Tasks != 60 || s.Agreed != 60 || s.Skipped != 1 || s.Broken != 0 || s.Started != s.Tasks+s.Retries || s.Retries < s.Lost {
		t.Errorf("%+v\n%s", s, o.err)
	}
	for _, told := range []string{"worker 1 (pid", "server (pid", "goes on running at"} {
		if !strings.Contains(o.err, told) {
			t.Errorf("%q was not told:\n%s", told, o.err)
		}
	}
	for _, secret := range []string{"key", "dsn"} {
		if info, err := os.Stat(filepath.Join(runDir, secret)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s file: %v, %v", secret, info, err)
		}
	}
	wantPrintedLinesToWork(t, runDir, o.err)
	left, err := filepath.Glob(filepath.Join(runDir, "*.pid"))
	if err != nil || len(left) != 1 {
		t.Errorf("pid files %v, %v, want the server's alone", left, err)
	}
	if o := program("demo", "--dir", dir, "--run-dir", runDir); o.code != exitFailed || !strings.Contains(o.err, strconv.Itoa(running(left[0]))) {
		t.Errorf("a second demo beside the first's server: exit code %d, %s", o.code, o.err)
	}
}

// What the demo prints at its end can be run as it is.
func wantPrintedLinesToWork(t *testing.T, runDir, printed string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err == nil {
		_, line, _ := strings.Cut(printed, "\n  curl ")
		line, _, _ = strings.Cut(line, "\n\n")
		reply, err := exec.Command("sh", "-c", "curl --silent "+line).Output()
		if !strings.Contains(string(reply), `{"task_id":"`) {
			t.Errorf("curl %s: %s, %v", line, reply, err)
		}
	}
	_, server, _ := strings.Cut(printed, "export ORBIT_SERVER=")
	server, _, _ = strings.Cut(server, " ")
	program("task", "submit", "-q", demoDefaultQueue, "-t", "hello", "--server", server, "--key-file", filepath.Join(runDir, "key")).want(t, 0)
	line := "ORBIT_DSN_FILE=" + filepath.Join(runDir, "dsn") + " bin/orbit verify"
	if !strings.Contains(printed, line) {
		t.Errorf("%q is not printed", line)
	}
	t.Setenv("ORBIT_DSN", "")
	t.Setenv("ORBIT_DSN_FILE", filepath.Join(runDir, "dsn"))
	program("verify").want(t, 0)
}

func TestInFlight(t *testing.T) {
	for f, want := range map[inFlight]string{
		{}:     "nothing was in flight, so no recovery was shown: take a directory with more files",
		{3, 7}: "3 in the worker, 7 in all at the server's",
		{0, 7}: "0 in the worker, 7 in all at the server's",
	} {
		if got := f.text(); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
}

func TestDemoGoesOnAfterAnInterruption(t *testing.T) {
	dir, runDir := demoFixture(t)
	p := launch(t, "demo", "--dir", dir, "--run-dir", runDir, "--listen", "127.0.0.1:0")
	first := p.line("; run ")
	p.line("tasks ended")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitFailed {
		t.Fatalf("interrupted: exit code %d", code)
	}
	if left, err := filepath.Glob(filepath.Join(runDir, "*.pid")); err != nil || len(left) != 0 {
		t.Fatalf("processes left by an interrupted demo: %v, %v", left, err)
	}
	var s demoSummary
	o := program("demo", "--dir", dir, "--run-dir", runDir, "--listen", "127.0.0.1:0", "-o", "json")
	o.json(t, &s)
	if !strings.Contains(o.err, first) {
		t.Errorf("not the run that was interrupted, %q:\n%s", first, o.err)
	}
	if s.Tasks != 60 || s.Agreed != 60 {
		t.Errorf("%+v", s)
	}
}

func TestDemoNeedsFiles(t *testing.T) {
	t.Setenv("ORBIT_DSN", "root@tcp(127.0.0.1:1)/orbit")
	if o := program("demo", "--dir", t.TempDir(), "--run-dir", t.TempDir()); o.code != exitUsage || !strings.Contains(o.err, "no regular file") {
		t.Errorf("exit code %d, %s", o.code, o.err)
	}
}
