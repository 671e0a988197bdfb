package main

import (
	"context"
	"encoding/json"
	"errors"
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
