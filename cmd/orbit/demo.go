package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/service"
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
	for _, step := range []func(context.Context) error{d.serve, d.openQueue, d.startWorkers, d.work, d.probe, d.stopWorkers} {
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
}

// demoState outlives a demo that was interrupted.
type demoState struct {
	Run string `json:"run"` // names this run's queue and is part of each key
	Dir string `json:"dir"`
}

func (d *demo) stateFile() string { return filepath.Join(d.RunDir, "demo.json") }
func (d *demo) keyFile() string   { return filepath.Join(d.RunDir, "key") }

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

// migrate makes the database ready and finds a key that works, or makes one.
func (d *demo) migrate(ctx context.Context) error {
	dsn, err := d.dsn()
	if err != nil {
		return err
	}
	d.env = []string{"ORBIT_DSN=" + dsn}
	if err := schema.Up(ctx, dsn, schema.UpOptions{Program: thisBuild().program()}); err != nil {
		return err
	}
	if _, err := os.Stat(d.keyFile()); err == nil {
		return nil
	}
	return d.makeKey(ctx)
}

// makeKey makes a credential that may do everything, and keeps its key.
func (d *demo) makeKey(ctx context.Context) error {
	var key string
	err := d.withHost(ctx, func(h service.Host) error {
		issued, err := h.Bootstrap(ctx, service.Bootstrap{})
		if err != nil { // there are credentials already: one more
			n, notFound := h.Namespace(ctx, "default/default")
			if notFound != nil {
				return errors.Join(err, notFound)
			}
			issued, err = h.CreateCredential(ctx, n.ID, service.NewCredential{Name: "demo", Actions: []string{"*"}, Queues: []string{"*"}})
		}
		if err == nil {
			key = issued.Key.Text()
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(d.keyFile(), []byte(key+"\n"), 0o600)
}

// serve starts the server at an address that it keeps when it is started again.
func (d *demo) serve(ctx context.Context) error {
	address, err := fixedAddress(ctx, d.Listen)
	if err != nil {
		return err
	}
	d.Listen, d.url = address, "http://"+address
	if err := d.startServer(ctx); err != nil {
		return err
	}
	err = d.connect(ctx)
	if client.HasCode(err, client.CodeUnauthenticated) {
		d.p.hint("the key in %s is of another database, or ended; making a new one", d.keyFile())
		err = errors.Join(d.makeKey(ctx), d.connect(ctx))
	}
	return err
}

// connect proves that the key works.
func (d *demo) connect(ctx context.Context) (err error) {
	if d.remote, err = (remoteSettings{Server: d.url, KeyFile: d.keyFile()}).client(); err != nil {
		return err
	}
	_, err = d.remote.Credential(ctx)
	return err
}

func (d *demo) startServer(ctx context.Context) (err error) {
	if d.server, err = startProcess(d.RunDir, "orbit", d.env, "serve", "--listen", d.Listen, "--drain-delay", "0s"); err != nil {
		return err
	}
	return d.server.awaitReady(ctx, d.url)
}

// fixedAddress is the address itself, or one with another port where that one is taken.
func fixedAddress(ctx context.Context, address string) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", freeAddress(address))
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func (d *demo) queueName() string { return "demo-" + d.state.Run }

func (d *demo) openQueue(ctx context.Context) error {
	queue, err := read(ctx, func(ctx context.Context) (*api.QueueHeaders, error) {
		return d.remote.API.CreateQueue(ctx, &api.CreateQueueRequest{
			Name:             d.queueName(),
			LeaseMs:          api.NewOptInt64(demoLease.Milliseconds()),
			OfferTimeoutMs:   api.NewOptInt64(demoLease.Milliseconds()),
			MaxAttempts:      api.NewOptInt(10),
			BackoffInitialMs: api.NewOptInt64(100),
			RetentionMs:      api.NewOptInt64((24 * time.Hour).Milliseconds()),
			UnknownOutcome:   api.NewOptCreateQueueRequestUnknownOutcome(api.CreateQueueRequestUnknownOutcomeRetry),
		}, api.CreateQueueParams{IdempotencyKey: api.NewOptString("queue-" + d.queueName())})
	})
	if err != nil {
		return fmt.Errorf("make the queue %s: %w", d.queueName(), err)
	}
	d.queueID = queue.Response.ID
	return nil
}

func (d *demo) startWorkers(context.Context) error {
	return errors.Join(d.startWorker(), d.startWorker())
}

func (d *demo) workerName(n int) string {
	return fmt.Sprintf("%s-%d-%d", d.queueName(), os.Getpid(), n)
}

func (d *demo) startWorker() error {
	d.started++
	w, err := startProcess(d.RunDir, fmt.Sprintf("demo-worker-%d", d.started),
		[]string{"ORBIT_SERVER=" + d.url, "ORBIT_KEY_FILE=" + d.keyFile()},
		"demo-worker", "--queue", d.queueName(), "--name", d.workerName(d.started),
		"--concurrency", formatInt(d.Concurrency), "--", d.state.Dir)
	if err == nil {
		d.workers = append(d.workers, w)
	}
	return err
}

func (d *demo) stopWorkers(context.Context) (err error) {
	for _, w := range d.workers {
		err = errors.Join(err, w.stop(time.Minute))
	}
	d.workers = nil
	return err
}

// leave ends the workers, and the server too where the demo did not come to its summary.
func (d *demo) leave(summarised bool) error {
	err := d.stopWorkers(context.Background())
	if summarised || d.server == nil {
		return err
	}
	return errors.Join(err, d.server.stop(time.Minute))
}

// submit has a task accepted for each file. The key comes from the path, so that a repeat makes no second task.
func (d *demo) submit(ctx context.Context) error {
	for from := 0; from < len(d.files.paths); from += demoBatch {
		paths := d.files.paths[from:min(from+demoBatch, len(d.files.paths))]
		items := make([]client.Item, len(paths))
		for i, path := range paths {
			items[i] = client.Item{Key: d.key(path), Submission: d.digestTask(path)}
		}
		results, err := d.remote.SubmitBatch(ctx, items)
		if err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		for i, r := range results {
			if r.Err != nil {
				return fmt.Errorf("submit %s: %w", paths[i], r.Err)
			}
			d.tasks[from+i] = r.Receipt.TaskID
		}
		d.sent.Add(int64(len(paths)))
	}
	return nil
}

func (d *demo) digestTask(path string) client.Submission {
	return client.Submission{Queue: d.queueName(), Type: demoTaskType, Payload: client.JSON(demoFile{path})}
}

// submission is the submitting of all tasks, under way or ended.
type submission struct {
	ended chan struct{} // closed when it has; then err says how
	err   error
}

// work submits, breaks and mends, until nothing is left to do.
func (d *demo) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := submission{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = d.submit(ctx)
	}()
	defer func() {
		cancel()
		<-s.ended
	}()

	total := len(d.files.paths)
	bar := newProgress(d.p.err, "tasks ended", total)
	breakages := []func(context.Context, *progress) error{d.killWorker, d.restartServer}
	last, lastDone := time.Now(), -1
	for {
		done, err := d.done(ctx)
		if err != nil {
			return err
		}
		bar.set(done)
		if done > lastDone {
			last, lastDone = time.Now(), done
		}
		if n := len(breakages); n > 0 && done >= total*(3-n)/3 {
			if err := breakages[0](ctx, bar); err != nil {
				return err
			}
			breakages, last = breakages[1:], time.Now()
			continue
		}
		if done == total {
			<-s.ended
			return s.err
		}
		if err := d.wait(ctx, &s, last); err != nil {
			return err
		}
	}
}

// wait lets a moment pass. It is an error if submitting has failed, or nothing has happened for too long.
func (d *demo) wait(ctx context.Context, s *submission, last time.Time) error {
	if time.Since(last) > demoPatience {
		return fmt.Errorf("no task has ended for %s; the logs are in %s", demoPatience, d.RunDir)
	}
	select {
	case <-s.ended:
		if s.err != nil {
			return s.err
		}
	default:
	}
	return moment(ctx)
}

// done is how many of the tasks sent so far have surely ended.
func (d *demo) done(ctx context.Context) (int, error) {
	sent := int(d.sent.Load())
	depth, err := read(ctx, func(ctx context.Context) (*api.QueueDepth, error) {
		return d.remote.API.GetQueueDepth(ctx, api.GetQueueDepthParams{QueueID: d.queueID})
	})
	if err != nil {
		return 0, err
	}
	left := 0
	for _, count := range []api.BoundedCount{depth.Ready, depth.Scheduled, depth.Blocked, depth.Offered, depth.Running, depth.Review} {
		if count.Capped {
			return 0, nil
		}
		left += count.Count
	}
	return max(sent-left, 0), nil
}

// probe submits tasks one by one to workers that have nothing to do, at a rate that they keep up with, and waits for their end: what
// the time from submission to start is where no backlog hides it.
func (d *demo) probe(ctx context.Context) error {
	due := time.NewTicker(demoProbeInterval)
	defer due.Stop()
	bar := newProgress(d.p.err, "one by one", demoProbes)
	for i := range demoProbes {
		receipt, err := d.remote.Submit(ctx, fmt.Sprintf("%s-one-by-one-%d", d.queueName(), i), d.digestTask(d.files.paths[i%len(d.files.paths)]))
		if err != nil {
			return fmt.Errorf("submit one by one: %w", err)
		}
		d.probes = append(d.probes, receipt.TaskID)
		bar.set(i + 1)
		select {
		case <-due.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	total := int(d.sent.Add(demoProbes))
	for last := time.Now(); ; {
		done, err := d.done(ctx)
		if err != nil || done == total {
			return err
		}
		if err := d.wait(ctx, &submission{}, last); err != nil {
			return err
		}
	}
}

// killWorker ends one worker in the middle of its work with SIGKILL, and starts another.
func (d *demo) killWorker(ctx context.Context, bar *progress) error {
	victim := d.workers[0]
	held, err := d.freezeAtWork(ctx, victim, d.workerName(1))
	if err != nil {
		return err
	}
	if err := victim.kill(); err != nil {
		return err
	}
	d.workers = d.workers[1:]
	bar.say("worker 1 (pid %d) killed with SIGKILL; tasks it was running: %d; worker 3 takes its place", victim.pid(), held)
	return d.startWorker()
}

// freezeAtWork stops a worker at an instant when it runs tasks, if there is one soon, and tells how many.
func (d *demo) freezeAtWork(ctx context.Context, w *process, name string) (held int, err error) {
	for range 30 {
		if err := w.freeze(); errors.Is(err, errors.ErrUnsupported) {
			return 0, nil
		} else if err != nil {
			return 0, err
		}
		err := moment(ctx) // for what it had already sent
		if err == nil {
			held, err = d.held(ctx, name)
		}
		if held > 0 && err == nil {
			return held, nil
		}
		if err := errors.Join(err, w.thaw(), moment(ctx)); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// moment lets a moment pass.
func moment(ctx context.Context) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// held is how many tasks a worker runs.
func (d *demo) held(ctx context.Context, name string) (n int, err error) {
	for task, err := range d.remote.Tasks(ctx, client.TaskFilter{QueueID: d.queueID, State: api.TaskStateRunning}) {
		if err != nil {
			return 0, err
		}
		id, live := task.AttemptID.Get()
		if !live {
			continue
		}
		attempt, err := read(ctx, func(ctx context.Context) (*api.Attempt, error) {
			return d.remote.API.GetAttempt(ctx, api.GetAttemptParams{AttemptID: id})
		})
		if err != nil {
			return 0, err
		}
		if attempt.WorkerName == name && attempt.State == api.AttemptStateRunning {
			n++
		}
	}
	return n, nil
}

// restartServer ends the server with SIGKILL and starts it again at the same address.
func (d *demo) restartServer(ctx context.Context, bar *progress) error {
	before := d.server
	if err := before.kill(); err != nil {
		return err
	}
	from := time.Now()
	if err := d.startServer(ctx); err != nil {
		return err
	}
	bar.say("server (pid %d) killed with SIGKILL; ready again, with pid %d, after %s", before.pid(), d.server.pid(), time.Since(from).Round(time.Millisecond))
	return nil
}

// verify counts the invariants that do not hold, and prints where.
func (d *demo) verify(ctx context.Context) (broken int, err error) {
	err = d.withService(ctx, func(replica *service.Service) error {
		found, err := replica.Verify(ctx)
		for _, f := range found[:min(len(found), mismatchesShown)] {
			d.p.hint("invariant broken: %s: %s: %s", f.Invariant, f.ID, f.Detail)
		}
		broken = len(found)
		return err
	})
	return broken, err
}

// introduce tells what the demo leaves behind.
func (d *demo) introduce() {
	key := d.keyFile()
	if here, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(here, key); err == nil && !strings.HasPrefix(relative, "..") {
			key = relative
		}
	}
	d.p.hint(`
Orbit goes on running at %[1]s (pid %[2]d, log %[3]s). Its API is described at %[1]s/docs.

  export ORBIT_SERVER=%[1]s ORBIT_KEY_FILE=%[4]s
  bin/orbit queue depth %[5]s
  bin/orbit task list --queue %[5]s`, d.url, d.server.pid(), filepath.Join(d.RunDir, "orbit.log"), key, d.queueName())
}
