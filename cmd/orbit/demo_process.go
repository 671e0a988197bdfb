package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// process is another process of this program. Its pid is in <name>.pid and what it logs in <name>.log of the run directory.
type process struct {
	command *exec.Cmd
	pidFile string
	ended   chan struct{} // closed when it has ended; then err says how
	err     error
}

// ownVariables are settings that a child gets from its parent and not from the environment.
var ownVariables = []string{"ORBIT_DSN", "ORBIT_DSN_FILE", "ORBIT_SERVER", "ORBIT_KEY", "ORBIT_KEY_FILE", "ORBIT_LISTEN"}

// startProcess runs this program again, in a session of its own: what the terminal sends to this one does not reach it.
func startProcess(runDir, name string, env []string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(filepath.Join(runDir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	//nolint:noctx // it outlives this process, or is ended by signal
	command := exec.Command(self, args...)
	command.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool {
		variable, _, _ := strings.Cut(entry, "=")
		return slices.Contains(ownVariables, variable)
	}), env...)
	command.Stdout, command.Stderr = logFile, logFile
	command.SysProcAttr = detached()
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{command: command, pidFile: filepath.Join(runDir, name+".pid"), ended: make(chan struct{})}
	go func() {
		p.err = command.Wait()
		close(p.ended)
	}()
	if err := os.WriteFile(p.pidFile, []byte(strconv.Itoa(command.Process.Pid)+"\n"), 0o644); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// kill ends it at once, as kill -9 does, and waits until it is gone.
func (p *process) kill() error {
	err := p.command.Process.Kill()
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return errors.Join(err, os.Remove(p.pidFile))
}

// stop asks it to end in good order, and kills it where that takes too long.
func (p *process) stop(patience time.Duration) error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return errors.Join(p.err, os.Remove(p.pidFile))
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("process %d did not end within %s", p.pid(), patience), p.kill())
	}
}

// running is the pid in a pid file whose process is there, or 0.
func running(pidFile string) int {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	found, err := os.FindProcess(pid)
	if err != nil || found.Signal(syscall.Signal(0)) != nil {
		return 0
	}
	return pid
}

// awaitReady waits until a server says that it can serve.
func (p *process) awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		select {
		case <-p.ended:
			return struct{}{}, backoff.Permanent(fmt.Errorf("the server ended: %w", errors.Join(p.err, errors.New(lastLine(p.pidFile)))))
		default:
		}
		return struct{}{}, ready(ctx, url)
	}, backoff.WithBackOff(backoff.NewConstantBackOff(50*time.Millisecond)))
	return err
}

func ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s/readyz: %s", url, resp.Status)
	}
	return nil
}

// lastLine is what the process with that pid file logged last.
func lastLine(pidFile string) string {
	text, err := os.ReadFile(strings.TrimSuffix(pidFile, ".pid") + ".log")
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return lines[len(lines)-1]
}
