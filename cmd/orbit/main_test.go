package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// asProgram makes the test binary the program itself, for tests that send it signals.
const asProgram = "ORBIT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	// Settings of whoever runs the tests are not the tests'.
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "ORBIT_") && !strings.HasPrefix(name, "ORBIT_TEST_") {
			os.Unsetenv(name)
		}
	}
	harness.Main(m)
}

// outcome is what one command printed and how it ended.
type outcome struct {
	out, err string
	code     int
}

func program(args ...string) outcome {
	var out, err bytes.Buffer
	code := run(args, &out, &err)
	return outcome{out.String(), err.String(), code}
}

func (o outcome) want(t *testing.T, code int) outcome {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit code %d, want %d\n%s%s", o.code, code, o.out, o.err)
	}
	return o
}

func (o outcome) json(t *testing.T, into any) {
	t.Helper()
	o.want(t, 0)
	if err := json.Unmarshal([]byte(o.out), into); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, o.out)
	}
}

// launched is the program in a process of its own.
type launched struct {
	t       *testing.T
	command *exec.Cmd
	lines   chan string // of standard output and standard error
	ended   chan error
	mu      sync.Mutex
	printed []string
}

func launch(t *testing.T, args ...string) *launched {
	t.Helper()
	p := &launched{t: t, command: exec.Command(os.Args[0], args...), lines: make(chan string, 10_000), ended: make(chan error, 1)}
	p.command.Env = append(os.Environ(), asProgram+"=1")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.command.Stdout, p.command.Stderr = write, write
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.scan(read)
	}()
	go func() {
		<-drained
		p.ended <- p.command.Wait()
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		<-drained
		if t.Failed() {
			t.Logf("%s printed:\n%s", strings.Join(args, " "), p.all())
		}
	})
	return p
}

func (p *launched) scan(from io.ReadCloser) {
	defer from.Close()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		p.mu.Lock()
		p.printed = append(p.printed, lines.Text())
		p.mu.Unlock()
		p.lines <- lines.Text()
	}
	close(p.lines)
}

func (p *launched) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.printed, "\n")
}

const patience = 30 * time.Second

// line waits for one that contains a text.
func (p *launched) line(contains string) string {
	p.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the process ended without printing %q", contains)
			}
			if strings.Contains(line, contains) {
				return line
			}
		case <-limit:
			p.t.Fatalf("no line with %q came", contains)
		}
	}
}

// serving waits until a replica listens and gives its URL.
func (p *launched) serving() string {
	p.t.Helper()
	var entry struct{ Address string }
	if err := json.Unmarshal([]byte(p.line(`"msg":"serving"`)), &entry); err != nil {
		p.t.Fatal(err)
	}
	return "http://" + entry.Address
}

func (p *launched) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the end and gives the exit code; -1 after a signal that was not handled.
func (p *launched) wait() int {
	p.t.Helper()
	go func() {
		for range p.lines { // nobody else reads what comes now
		}
	}()
	select {
	case <-p.ended:
		return p.command.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatal("the process does not end")
		return 0
	}
}
