package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/service"
)

// Process is a replica in a process of its own: the test binary, run again by Main. Its loops do not run. It ends with its test, and with
// the process that started it.
type Process struct {
	URL     string
	program string
	o       *Orbit
	ended   chan struct{}
	killed  bool // once ended is closed: by SIGKILL
}

// Kill is where a process kills itself, as kill -9 does: at a statement that it sends to its database, counted from 1, before it is sent or
// after it was answered. The zero value is nowhere. Readings of credentials are not counted: when one is due is a matter of time.
type Kill struct {
	Statement int
	After     bool
}

// String names the point.
func (k Kill) String() string {
	if k.After {
		return fmt.Sprint("after statement ", k.Statement)
	}
	return fmt.Sprint("before statement ", k.Statement)
}

// processVariable holds the processOptions of a run of the test binary that is a Process.
const processVariable = "ORBIT_TEST_PROCESS"

type processOptions struct {
	DSN     string
	Offset  time.Duration
	Program string
	Kill    Kill
}

// StartProcess starts a replica in a process of its own, on o's database and on o's clock as it is now.
func (o *Orbit) StartProcess(t testing.TB, kill Kill) *Process {
	t.Helper()
	p := &Process{program: "process-" + orbit.NewID(time.Now()).String(), o: o, ended: make(chan struct{})}
	options, err := json.Marshal(processOptions{DSN: o.DSN, Offset: o.Offset(), Program: p.program, Kill: kill})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary)
	command.Env = append(os.Environ(), processVariable+"="+string(options))
	command.Stderr = t.Output()
	alive, err := command.StdinPipe() // the process ends when this closes
	if err != nil {
		t.Fatal(err)
	}
	told, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(told).ReadString('\n')
	go func() {
		defer close(p.ended)
		_ = command.Wait() // how it ended is in the state
		status, ok := command.ProcessState.Sys().(syscall.WaitStatus)
		p.killed = ok && status.Signal() == syscall.SIGKILL
	}()
	t.Cleanup(func() {
		_ = alive.Close()
		<-p.ended
	})
	if readErr != nil {
		t.Fatalf("the process did not say where it listens: %v", readErr)
	}
	p.URL = strings.TrimSpace(line)
	return p
}

// Statements are what the process has sent to its database so far: names of queries, and BEGIN, COMMIT and ROLLBACK. Readings of credentials
// are left out.
func (p *Process) Statements(t testing.TB) []string {
	t.Helper()
	r, err := Do(t.Context(), p.URL, "", "GET", statementsPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	r.Want(t, 200).JSON(t, &names)
	return names
}

// AwaitParked waits until so many claims wait in the process for a task.
func (p *Process) AwaitParked(t testing.TB, claims int) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := Do(t.Context(), p.URL, "", "GET", parkedPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		var parked int
		if r.Want(t, 200).JSON(t, &parked); parked == claims {
			return
		}
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatalf("%d claims wait, want %d", parked, claims)
		}
	}
}

// AwaitKill waits until the process has killed itself.
func (p *Process) AwaitKill(t testing.TB) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		t.Fatal("the process lives on")
	}
	if !p.killed {
		t.Fatal("the process ended otherwise than by its kill")
	}
}

// AwaitSessions waits until the server has ended every session of the killed process, and with them its locks.
func (p *Process) AwaitSessions(t testing.TB) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for p.o.Count("performance_schema.session_connect_attrs WHERE ATTR_NAME = 'program_name' AND ATTR_VALUE = ?", p.program) > 0 {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatal("the server keeps sessions of a process that is gone")
		}
	}
}

const (
	statementsPath = "/statements"
	parkedPath     = "/parked"
)

// runProcess is the whole life of a Process: it says where it listens, and serves until its standard input closes or its kill comes.
func runProcess(encoded string) error {
	var options processOptions
	if err := json.Unmarshal([]byte(encoded), &options); err != nil {
		return err
	}
	counter := &statementCounter{kill: options.Kill}
	lane, err := schema.Open(options.DSN, schema.PoolOptions{MaxOpen: 16, Program: options.Program, Between: Around(counter.around)})
	if err != nil {
		return err
	}
	batches, err := schema.Open(options.DSN, schema.PoolOptions{MaxOpen: 32, LockWait: time.Second, Program: options.Program, Between: Around(counter.around)})
	if err != nil {
		return err
	}
	s, err := service.New(service.Options{
		DB: batches, Lane: lane, Version: "test", Host: options.Program, ClockOffset: func() time.Duration { return options.Offset },
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", s.Handler())
	mux.HandleFunc(statementsPath, counter.list)
	mux.HandleFunc(parkedPath, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(ParkedClaims()) // the test sees that it did not come
	})
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(listener, mux) }()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		failed <- nil
	}()
	return <-failed
}

// statementCounter counts what a process sends, and kills it at its point.
type statementCounter struct {
	kill  Kill
	mu    sync.Mutex
	names []string
}

func (c *statementCounter) around(s Statement, run func() error) error {
	if s.Name() == "AuthenticateCredential" {
		return run()
	}
	c.mu.Lock()
	c.names = append(c.names, s.Name())
	n := len(c.names)
	c.mu.Unlock()
	if n == c.kill.Statement && !c.kill.After {
		die()
	}
	err := run()
	if n == c.kill.Statement {
		die()
	}
	return err
}

func (c *statementCounter) list(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = json.NewEncoder(w).Encode(c.names) // the test sees that it did not come
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing more happens in this process
}
