package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// benchWorker is a worker of its own name, by the protocol.
type benchWorker struct {
	api      *api.Client
	instance string
	epoch    int64
	seq      int64
}

func openBenchWorker(ctx context.Context, to *api.Client, queueID string, slots int) (*benchWorker, error) {
	w := &benchWorker{api: to, instance: client.NewKey()}
	session, err := read(ctx, func(ctx context.Context) (*api.WorkerSession, error) {
		return to.OpenWorkerSession(ctx, &api.OpenWorkerSessionRequest{
			WorkerName: "bench-" + w.instance, InstanceID: w.instance, Queues: []string{queueID}, Types: []string{"bench"}, Slots: slots,
		}, api.OpenWorkerSessionParams{})
	})
	if err != nil {
		return nil, fmt.Errorf("open a worker: %w", err)
	}
	w.epoch = session.Epoch
	return w, nil
}

func (w *benchWorker) claim(ctx context.Context, r *recorder, most int, wait time.Duration) ([]api.Offer, error) {
	w.seq++
	from := time.Now()
	reply, err := w.api.ClaimTasks(ctx, &api.ClaimTasksRequest{
		InstanceID: w.instance, Epoch: w.epoch, ClaimSeq: w.seq, Max: most, WaitMs: api.NewOptInt64(wait.Milliseconds()),
	}, api.ClaimTasksParams{})
	if err != nil {
		return nil, err
	}
	r.took("claim", time.Since(from), 1)
	return reply.Offers, nil
}

// execute starts and finishes; the work itself is nothing. It claims up to so many with the results, and answers what it was offered.
func (w *benchWorker) execute(ctx context.Context, r *recorder, offers []api.Offer, claim int) []api.Offer {
	from := time.Now()
	started, err := w.start(ctx, r, offers)
	if err != nil {
		r.failed(err)
		return nil
	}
	r.took("start", time.Since(from), 1)
	from = time.Now()
	n, more, err := w.finish(ctx, r, started, claim)
	if err != nil {
		r.failed(err)
		return nil
	}
	r.took("finish", time.Since(from), 1)
	r.done(n)
	return more
}

func (w *benchWorker) start(ctx context.Context, r *recorder, offers []api.Offer) (started []api.Offer, err error) {
	req := &api.StartAttemptsRequest{InstanceID: w.instance, Epoch: w.epoch}
	for _, o := range offers {
		req.Items = append(req.Items, api.StartItem{AttemptID: o.AttemptID, Token: o.Token})
	}
	reply, err := w.api.StartAttempts(ctx, req, api.StartAttemptsParams{})
	if err != nil {
		return nil, err
	}
	for i, item := range reply.Items {
		if item.Attempt.Set {
			started = append(started, offers[i])
		} else {
			r.failed(client.ItemError(item.Problem))
		}
	}
	return started, nil
}

func (w *benchWorker) finish(ctx context.Context, r *recorder, started []api.Offer, claim int) (finished int, more []api.Offer, err error) {
	if len(started) == 0 {
		return 0, nil, nil
	}
	req := &api.FinishAttemptsRequest{InstanceID: w.instance, Epoch: w.epoch}
	for _, o := range started {
		req.Items = append(req.Items, api.FinishItem{AttemptID: o.AttemptID, Token: o.Token, Outcome: api.OutcomeSucceeded})
	}
	if claim > 0 {
		w.seq++
		req.Claim = api.NewOptFinishClaim(api.FinishClaim{ClaimSeq: w.seq, Max: claim})
	}
	reply, err := w.api.FinishAttempts(ctx, req, api.FinishAttemptsParams{})
	if err != nil {
		return 0, nil, err
	}
	for _, item := range reply.Items {
		if item.Receipt.Set {
			finished++
		} else {
			r.failed(client.ItemError(item.Problem))
		}
	}
	if p := reply.Claim.Value.Problem; p.Set {
		r.failed(client.ItemError(p))
	}
	return finished, reply.Claim.Value.Offers, nil
}

// openLoad sends one task at each tick of a fixed rate, whether or not earlier ones are answered, and has one worker run them. Times count
// from the tick at which a task was to be sent, so that a server which stalls cannot slow its own measurement.
func openLoad(ctx context.Context, submits, works *api.Client, queueID string, rate int, length time.Duration) (benchResult, error) {
	w, err := openBenchWorker(ctx, works, queueID, 100)
	if err != nil {
		return benchResult{}, err
	}
	r := newRecorder()
	total := max(int(float64(rate)*length.Seconds()), 1)
	interval := time.Second / time.Duration(rate)
	working, stop := context.WithTimeout(ctx, length+benchDrain)
	defer stop()
	var group sync.WaitGroup
	from := time.Now()
	group.Go(func() {
		w.poll(working, r, total, func(tick int) time.Time { return from.Add(time.Duration(tick) * interval) })
	})
	cpu := ownCPU()
	ticker := time.NewTimer(0)
	defer ticker.Stop()
	for tick := range total {
		at := from.Add(time.Duration(tick) * interval)
		ticker.Reset(time.Until(at))
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		group.Go(func() {
			_, err := submits.SubmitTask(ctx, &api.SubmitTaskRequest{QueueID: api.NewOptString(queueID), Type: "bench", Payload: fmt.Appendf(nil, "%d", tick)},
				api.SubmitTaskParams{IdempotencyKey: api.NewOptString(client.NewKey())})
			if err != nil {
				r.failed(err)
				return
			}
			r.took("submit", time.Since(at), 1)
		})
	}
	group.Wait()
	result := r.result()
	result.Elapsed, result.CPU = time.Since(from), ownCPU()-cpu
	if lost := int64(total) - result.Tasks; lost > 0 && result.Failures == 0 {
		result.Failures, result.First = lost, "tasks that did not end in time"
	}
	return result, ctx.Err()
}

// poll claims and waits, as workers of the SDK do, until as many tasks have ended. The payload of a task is its tick.
func (w *benchWorker) poll(ctx context.Context, r *recorder, total int, due func(tick int) time.Time) {
	var group sync.WaitGroup
	defer group.Wait()
	for taken := 0; taken < total && ctx.Err() == nil; {
		offers, err := w.claim(ctx, r, claimLimit, 30*time.Second)
		if err != nil {
			if ctx.Err() == nil {
				r.failed(err)
			}
			continue
		}
		taken += len(offers)
		if len(offers) == 0 {
			continue
		}
		group.Go(func() {
			offered := time.Now()
			started, err := w.start(ctx, r, offers)
			now := time.Now()
			if err != nil {
				r.failed(err)
				return
			}
			ticks := make([]int, len(started))
			for i, o := range started {
				_ = json.Unmarshal(o.Payload, &ticks[i])
				r.took("submit to offer", offered.Sub(due(ticks[i])), 1)
				r.took("submit to start", now.Sub(due(ticks[i])), 1)
			}
			n, _, err := w.finish(ctx, r, started, 0)
			now = time.Now()
			if err != nil {
				r.failed(err)
				return
			}
			for _, tick := range ticks {
				r.took("submit to finish", now.Sub(due(tick)), 1)
			}
			r.done(n)
		})
	}
}
