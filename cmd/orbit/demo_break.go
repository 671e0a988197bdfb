package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// inFlight is how many tasks were running when something was killed. Without any, the demo has shown no recovery.
type inFlight struct {
	worker int // in the killed worker
	server int // in all workers, just before the server was killed
}

func (f inFlight) text() string {
	if f == (inFlight{}) {
		return "nothing was in flight, so no recovery was shown: take a directory with more files"
	}
	return fmt.Sprintf("%d in the worker, %d in all at the server's", f.worker, f.server)
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
	d.workers, d.hit.worker = d.workers[1:], held
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
	depth, err := d.depth(ctx)
	if err != nil {
		return err
	}
	before := d.server
	if err := before.kill(); err != nil {
		return err
	}
	d.hit.server = depth.Running.Count
	from := time.Now()
	if err := d.startServer(ctx); err != nil {
		return err
	}
	bar.say("server (pid %d) killed with SIGKILL; ready again, with pid %d, after %s", before.pid(), d.server.pid(), time.Since(from).Round(time.Millisecond))
	return nil
}
