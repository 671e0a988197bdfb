package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orbit-run/orbit/sdk/go/client"
)

// demoCommand puts real work through everything, breaks what it runs on in the middle, and compares each result with its own.
//
// It makes the database ready, starts `orbit serve` and two worker processes, submits one task for each regular file, kills one
// worker and then the server with SIGKILL, and starts both again. The server stays when it ends.
//
// A demo that was interrupted goes on where it was when it is started again for the same directory: the keys of its tasks come from
// their paths.
type demoCommand struct {
	databaseSettings
	Dir         string `type:"existingdir" placeholder:"DIR" help:"Directory whose regular files are the tasks; Go's own source tree where it is missing. Symbolic links are not followed."`
	RunDir      string `type:"path" default:".run" placeholder:"DIR" help:"Where pids, logs, the credential key and the demo's state are kept (${default})."`
	Listen      string `default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Where to serve; another port of the same host where this one is taken (${default})."`
	Concurrency int    `default:"32" help:"Files that each of the two workers reads at once (${default})."`
}

const (
	demoLease = 5 * time.Second // short, so that what a killed worker held comes back soon
	// demoPatience is how long nothing may happen: longer than a lost lease and a restart take together.
	demoPatience = 90 * time.Second
	demoBatch    = 1000

	demoProbes        = 200
	demoProbeInterval = 20 * time.Millisecond
)

func (c *demoCommand) Run(ctx commandContext, p *printer) (err error) {
	d, err := c.prepare(ctx, p)
	if err != nil {
		return err
	}
	summarised := false
	defer func() { err = errors.Join(err, d.leave(summarised)) }()
	for _, step := range []func(context.Context) error{d.serve, d.openQueues, d.startWorkers, d.work, d.probe, d.stopWorkers} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	summary, err := d.compare(ctx)
	if err != nil {
		return err
	}
	if summary.Broken, err = d.verify(ctx); err != nil {
		return err
	}
	summarised = true
	if err := errors.Join(os.Remove(d.stateFile()), p.one(summary, summary.rows())); err != nil {
		return err
	}
	d.introduce()
	return summary.verdict()
}

// demo is one run.
type demo struct {
	*demoCommand
	p     *printer
	state demoState
	files demoFiles
	url   string
	env   []string // of the server

	remote  *client.Client
	queueID string
	tasks   []string     // ids, by the index of their file
	probes  []string     // ids of the tasks that were submitted to idle workers
	sent    atomic.Int64 // how many of them are accepted
	server  *process
	workers []*process // the one to be killed first
	started int        // worker processes so far
	hit     inFlight
}

// demoState outlives a demo that was interrupted.
type demoState struct {
	Run string `json:"run"` // names this run's queue and is part of each key
	Dir string `json:"dir"`
}

func (d *demo) stateFile() string { return filepath.Join(d.RunDir, "demo.json") }
func (d *demo) keyFile() string   { return filepath.Join(d.RunDir, "key") }
func (d *demo) dsnFile() string   { return filepath.Join(d.RunDir, "dsn") }

func (c *demoCommand) prepare(ctx context.Context, p *printer) (*demo, error) {
	d := &demo{demoCommand: c, p: p}
	dir, err := c.directory(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.RunDir, 0o755); err != nil {
		return nil, err
	}
	if pid := running(filepath.Join(c.RunDir, "orbit.pid")); pid != 0 {
		return nil, fmt.Errorf("a server of this run directory is running, with pid %d; end it first (make stop)", pid)
	}
	if d.files, err = listFiles(dir, c.RunDir); err != nil {
		return nil, err
	}
	if len(d.files.paths) == 0 {
		return nil, usagef("there is no regular file under %s", dir)
	}
	if d.state, err = loadState(d.stateFile(), dir); err != nil {
		return nil, err
	}
	d.tasks = make([]string, len(d.files.paths))
	p.hint("%d files under %s; run %s", len(d.files.paths), dir, d.state.Run)
	return d, d.migrate(ctx)
}

// directory is absolute and no symbolic link.
func (c *demoCommand) directory(ctx context.Context) (string, error) {
	if c.Dir != "" {
		return filepath.EvalSymlinks(c.Dir)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", usagef("name a directory with --dir: Go's source tree was not found: %w", err)
	}
	return filepath.EvalSymlinks(filepath.Join(strings.TrimSpace(string(root)), "src"))
}

// loadState takes up the run that was interrupted, or begins one.
func loadState(file, dir string) (demoState, error) {
	text, err := os.ReadFile(file)
	if err == nil {
		var before demoState
		if json.Unmarshal(text, &before) == nil && before.Dir == dir && before.Run != "" {
			return before, nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return demoState{}, err
	}
	state := demoState{Run: strings.ToLower(rand.Text()[:10]), Dir: dir}
	if text, err = json.Marshal(state); err != nil {
		return demoState{}, err
	}
	return state, os.WriteFile(file, text, 0o644)
}

// leave ends the workers, and the server too where the demo did not come to its summary.
func (d *demo) leave(summarised bool) error {
	err := d.stopWorkers(context.Background())
	if summarised || d.server == nil {
		return err
	}
	return errors.Join(err, d.server.stop(time.Minute))
}

// introduce tells what the demo leaves behind, in lines that can be run as they are.
func (d *demo) introduce() {
	key := besides(d.keyFile())
	d.p.hint(`
Orbit goes on running at %[1]s (pid %[2]d, log %[3]s).
Its API is described at %[1]s/docs. A task for its queue %[4]s:

  curl %[1]s/v1/tasks -H "Authorization: Bearer $(cat %[5]s)" -H 'Idempotency-Key: hello-%[6]s' \
    -H 'Content-Type: application/json' -d '{"queue": "%[4]s", "type": "hello", "payload": {"name": "world"}}'

What became of it and of the files:

  export ORBIT_SERVER=%[1]s ORBIT_KEY=$(cat %[5]s)
  bin/orbit task list --queue %[4]s
  bin/orbit queue depth %[7]s

Whether every invariant holds:

  ORBIT_DSN_FILE=%[8]s bin/orbit verify`, d.url, d.server.pid(), besides(filepath.Join(d.RunDir, "orbit.log")), demoDefaultQueue, key, d.state.Run, d.queueName(), besides(d.dsnFile()))
}

// besides is a file's name as short as the working directory makes it.
func besides(file string) string {
	here, err := os.Getwd()
	if err != nil {
		return file
	}
	if relative, err := filepath.Rel(here, file); err == nil && !strings.HasPrefix(relative, "..") {
		return relative
	}
	return file
}
