package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// benchJob is load in a closed loop: each caller sends its next call when it has the answer to the last.
type benchJob struct {
	Servers []string `json:"servers"`
	Key     string   `json:"key"`
	QueueID string   `json:"queue_id"`
	Callers int      `json:"callers"`
	Batch   int      `json:"batch"`   // tasks in a call
	Execute bool     `json:"execute"` // claim, start and finish what was submitted
	// ClaimAlone claims by a call of its own each time; otherwise results are reported with a claim.
	ClaimAlone bool `json:"claim_alone"`

	Payload json.RawMessage `json:"payload"`
	Length  time.Duration   `json:"length"` // after it callers send nothing new and only finish what is under way
}

// benchResult is what became of load. The time of what was under way at the end is in Elapsed.
type benchResult struct {
	Tasks    int64                             `json:"tasks"` // submitted, or with Execute finished
	Elapsed  time.Duration                     `json:"elapsed"`
	Failures int64                             `json:"failures"`
	First    string                            `json:"first,omitempty"`
	CPU      float64                           `json:"cpu"` // seconds that the process with the callers used
	Calls    map[string]*hdrhistogram.Snapshot `json:"calls"`
}

// benchDrain is how long callers may take to finish what is under way.
const benchDrain = 30 * time.Second

// recorder takes times in microseconds, by name.
type recorder struct {
	mu       sync.Mutex
	times    map[string]*hdrhistogram.Histogram
	tasks    int64
	failures int64
	first    error
}

func newRecorder() *recorder { return &recorder{times: map[string]*hdrhistogram.Histogram{}} }

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, (5 * time.Minute).Microseconds(), 3)
}

func (r *recorder) took(name string, d time.Duration, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times[name] == nil {
		r.times[name] = newHistogram()
	}
	_ = r.times[name].RecordValues(max(d.Microseconds(), 1), int64(times)) // nothing lasts as long as its range
}

func (r *recorder) done(tasks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks += int64(tasks)
}

func (r *recorder) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures++
	if r.first == nil {
		r.first = err
	}
}

func (r *recorder) result() benchResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := benchResult{Tasks: r.tasks, Failures: r.failures, Calls: map[string]*hdrhistogram.Snapshot{}}
	if r.first != nil {
		out.First = r.first.Error()
	}
	for name, h := range r.times {
		out.Calls[name] = h.Export()
	}
	return out
}

// join adds a result of another process that worked at the same time.
func (r *benchResult) join(other benchResult) {
	r.Tasks += other.Tasks
	r.Failures += other.Failures
	r.CPU += other.CPU
	r.Elapsed = max(r.Elapsed, other.Elapsed)
	if r.First == "" {
		r.First = other.First
	}
	if r.Calls == nil {
		r.Calls = map[string]*hdrhistogram.Snapshot{}
	}
	for name, calls := range other.Calls {
		sum := hdrhistogram.Import(calls)
		if r.Calls[name] != nil {
			sum.Merge(hdrhistogram.Import(r.Calls[name]))
		}
		r.Calls[name] = sum.Export()
	}
}

// run gets all callers ready, calls begin, which may wait, and loads.
func (j benchJob) run(ctx context.Context, begin func() error) (benchResult, error) {
	callers := make([]*benchCaller, j.Callers)
	r := newRecorder()
	remotes, err := benchClients(j.Servers, j.Key, j.Callers)
	if err != nil {
		return benchResult{}, err
	}
	var ready sync.WaitGroup
	failed := make([]error, j.Callers)
	for i := range callers {
		callers[i] = &benchCaller{benchJob: j, recorder: r, submits: remotes[i%len(remotes)].API}
		ready.Go(func() {
			callers[i].worker, failed[i] = openBenchWorker(ctx, remotes[(i+1)%len(remotes)].API, j.QueueID, j.Batch)
		})
	}
	ready.Wait()
	if err := errors.Join(failed...); err != nil {
		return benchResult{}, err
	}
	if err := begin(); err != nil {
		return benchResult{}, err
	}
	cpu, from := ownCPU(), time.Now()
	drained, cancel := context.WithTimeout(ctx, j.Length+benchDrain)
	defer cancel()
	var group sync.WaitGroup
	for _, c := range callers {
		group.Go(func() { c.loop(drained, from.Add(j.Length)) })
	}
	group.Wait()
	result := r.result()
	result.Elapsed, result.CPU = time.Since(from), ownCPU()-cpu
	return result, ctx.Err()
}

// benchClients makes a client for each server, whose connections are enough for all callers.
func benchClients(servers []string, key string, callers int) ([]*client.Client, error) {
	remotes := make([]*client.Client, len(servers))
	for i, url := range servers {
		transport := &http.Transport{MaxIdleConns: 2 * callers, MaxIdleConnsPerHost: 2 * callers}
		remote, err := client.New(url, key, client.WithHTTPClient(&http.Client{Transport: transport, Timeout: time.Minute}))
		if err != nil {
			return nil, err
		}
		remotes[i] = remote
	}
	return remotes, nil
}

// benchCaller submits to one server and works for another, where there are two.
type benchCaller struct {
	benchJob
	*recorder
	submits *api.Client
	worker  *benchWorker
	offers  []api.Offer // to be executed
	owed    int         // tasks that somebody must still take for those that this caller submitted
	begun   []time.Time // when calls of this caller submitted what has not ended
}

func (c *benchCaller) loop(ctx context.Context, end time.Time) {
	for (time.Now().Before(end) || c.owed+len(c.offers) > 0) && ctx.Err() == nil {
		if from := time.Now(); from.Before(end) {
			n, err := c.submit(ctx)
			if err != nil {
				c.failed(err)
				continue
			}
			c.took("submit", time.Since(from), 1)
			if !c.Execute {
				c.done(n)
				continue
			}
			c.owed += n
			c.begun = append(c.begun, from)
		}
		c.work(ctx)
	}
}

// work executes what is offered. The next offers come with the results, for tasks that were submitted meanwhile, or by a call of their own.
func (c *benchCaller) work(ctx context.Context) {
	if len(c.offers) == 0 {
		c.claim(ctx)
		if !c.ClaimAlone {
			return
		}
	}
	if len(c.offers) == 0 {
		return
	}
	claim := 0
	if !c.ClaimAlone {
		claim = min(c.owed, c.Batch)
	}
	c.offers = c.worker.execute(ctx, c.recorder, c.offers, claim)
	c.owed -= len(c.offers)
	if len(c.begun) > 0 { // others may execute what this one submitted; they are alike
		c.took("life", time.Since(c.begun[0]), 1)
		c.begun = c.begun[1:]
	}
}

func (c *benchCaller) claim(ctx context.Context) {
	offers, err := c.worker.claim(ctx, c.recorder, min(c.owed, c.Batch), 500*time.Millisecond)
	if err != nil {
		c.failed(err)
		return
	}
	c.offers = offers
	c.owed -= len(offers)
}

// submit answers how many were accepted.
func (c *benchCaller) submit(ctx context.Context) (int, error) {
	if c.Batch == 1 {
		_, err := c.submits.SubmitTask(ctx, &api.SubmitTaskRequest{QueueID: api.NewOptString(c.QueueID), Type: "bench", Payload: []byte(c.Payload)},
			api.SubmitTaskParams{IdempotencyKey: api.NewOptString(client.NewKey())})
		return 1, err
	}
	req := &api.SubmitTasksRequest{Items: make([]api.SubmitItem, c.Batch)}
	for i := range req.Items {
		req.Items[i] = api.SubmitItem{IdempotencyKey: client.NewKey(), QueueID: api.NewOptString(c.QueueID), Type: "bench", Payload: []byte(c.Payload)}
	}
	reply, err := c.submits.SubmitTasks(ctx, req, api.SubmitTasksParams{})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, item := range reply.Items {
		if item.Receipt.Set {
			n++
		} else {
			c.failed(client.ItemError(item.Problem))
		}
	}
	return n, nil
}

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
