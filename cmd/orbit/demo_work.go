package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

func (d *demo) queueName() string { return "demo-" + d.state.Run }

// demoDefaultQueue stays when the demo ends, for tasks made by hand.
const demoDefaultQueue = "default"

func (d *demo) openQueues(ctx context.Context) error {
	return errors.Join(d.openQueue(ctx), d.openDefaultQueue(ctx))
}

// openDefaultQueue leaves one that is there as it is. Its key is new each time, since that of an earlier run may have expired.
func (d *demo) openDefaultQueue(ctx context.Context) error {
	key := client.NewKey()
	_, err := read(ctx, func(ctx context.Context) (*api.QueueHeaders, error) {
		return d.remote.API.CreateQueue(ctx, &api.CreateQueueRequest{Name: demoDefaultQueue}, api.CreateQueueParams{IdempotencyKey: api.NewOptString(key)})
	})
	if err != nil && !client.HasCode(err, client.CodeStateConflict) {
		return fmt.Errorf("make the queue %s: %w", demoDefaultQueue, err)
	}
	return nil
}

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
	depth, err := d.depth(ctx)
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

func (d *demo) depth(ctx context.Context) (*api.QueueDepth, error) {
	return read(ctx, func(ctx context.Context) (*api.QueueDepth, error) {
		return d.remote.API.GetQueueDepth(ctx, api.GetQueueDepthParams{QueueID: d.queueID})
	})
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

// moment lets a moment pass.
func moment(ctx context.Context) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
