package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/sdk/go/worker"
)

// fake speaks the server's side of the worker protocol from memory, and fails as a test scripts it. It is a transport rather
// than a listener, so that it works inside a synctest bubble, where every wait is exact and nothing sleeps.
type fake struct {
	t       *testing.T
	leaseMs int64
	beatMs  int64
	oneStep bool // claims start tasks at once where they ask for it

	mu       sync.Mutex
	arrived  chan struct{} // closed and replaced when a task becomes ready
	ready    []*fakeTask
	attempts map[string]*fakeAttempt
	sessions map[string]*fakeSession // by instance
	current  map[string]string       // worker name → instance
	faults   map[string][]fault      // by path, in order
	claiming bool                    // a claim is on its way, alone or with results
	calls    []call
	made     int
}

type fakeTask struct {
	id, taskType, payload string
	traceparent           string
	attempts              int
	end                   *api.FinishItem // what was accepted last
	ended                 bool
}

type fakeAttempt struct {
	id, token string
	task      *fakeTask
	instance  string
	seq       int64
	state     string // offered running ended released lost
	withClaim bool   // started by its claim
	beats     int
	cancel    bool
	progress  string
	finished  *api.FinishItem
	evidence  []api.FinishItem
	reason    string
}

type fakeSession struct {
	name      string
	epoch     int64
	abandoned int64
	claimed   int64
	closed    bool
}

// call is one request that reached the fake, faults included.
type call struct {
	path string
	at   time.Time
	body string
}

// fault changes what happens to one call.
type fault struct {
	before func()        // runs first
	wait   time.Duration // before the call is carried out
	back   time.Duration // on the way of the reply
	skip   bool          // the call is not carried out
	lose   bool          // the caller gets no reply
	late   bool          // the caller gets the reply even if its context has ended
	status int           // the caller gets this problem; implies skip
	code   string
	after  string                    // Retry-After, seconds
	item   func(i int) (int, string) // items that get this problem; implies skip of these
}

var errCut = errors.New("connection reset by peer")

const (
	pathOpen      = "/v1/worker-sessions"
	pathClose     = "/v1/worker-sessions:close"
	pathClaim     = "/v1/claims"
	pathStart     = "/v1/attempts:start"
	pathHeartbeat = "/v1/attempts:heartbeat"
	pathFinish    = "/v1/attempts:finish"
	pathRelease   = "/v1/attempts:release"
)

func newFake(t *testing.T) *fake {
	return &fake{
		t: t, leaseMs: 30_000, beatMs: 10_000,
		arrived:  make(chan struct{}),
		attempts: map[string]*fakeAttempt{}, sessions: map[string]*fakeSession{}, current: map[string]string{},
		faults: map[string][]fault{},
	}
}

// worker makes a worker of the fake; the zero Config is completed.
func (f *fake) worker(cfg worker.Config) *worker.Worker {
	f.t.Helper()
	c, err := client.New("http://orbit.test", "orb_key", client.WithHTTPClient(&http.Client{Transport: f, Timeout: time.Minute}))
	if err != nil {
		f.t.Fatal(err)
	}
	if cfg.Queues == nil {
		cfg.Queues = []string{"mail"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return worker.New(c, cfg)
}

// script makes the next calls of path fail, in order. A zero fault lets one pass.
func (f *fake) script(path string, faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[path] = append(f.faults[path], faults...)
}

// add makes a task ready.
func (f *fake) add(taskType, payload string) *fakeTask {
	f.mu.Lock()
	defer f.mu.Unlock()
	task := &fakeTask{id: f.newID(), taskType: taskType, payload: payload}
	f.makeReady(task)
	return task
}

func (f *fake) makeReady(task *fakeTask) {
	f.ready = append(f.ready, task)
	close(f.arrived)
	f.arrived = make(chan struct{})
}

func (f *fake) newID() string {
	f.made++
	return fmt.Sprintf("%032x", f.made)
}

// live gives the attempts in a state, as they are now.
func (f *fake) live(state string) []fakeAttempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []fakeAttempt
	for _, a := range f.attempts {
		if a.state == state {
			out = append(out, *a)
		}
	}
	return out
}

// lose ends running attempts as recovery does, and gives their tasks to nobody.
func (f *fake) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.attempts {
		if a.state == "running" {
			a.state = "lost"
		}
	}
}

func (f *fake) requestCancel() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.attempts {
		a.cancel = true
	}
}

// supersede opens a session of another incarnation.
func (f *fake) supersede(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	epoch := f.sessions[f.current[name]].epoch
	f.current[name] = "other"
	f.sessions["other"] = &fakeSession{name: name, epoch: epoch + 1}
}

func (f *fake) callsOf(path string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []call
	for _, c := range f.calls {
		if c.path == path {
			out = append(out, c)
		}
	}
	return out
}

// outcome is what was accepted for a task: "outcome result" or "outcome code: message retry=…".
func (f *fake) outcome(task *fakeTask) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if task.end == nil {
		return "none"
	}
	return describe(*task.end)
}

func describe(it api.FinishItem) string {
	out := string(it.Outcome)
	if len(it.Result) > 0 {
		out += " " + string(it.Result)
	}
	if it.Error.Set {
		out += fmt.Sprintf(" %s: %s", it.Error.Value.Code, it.Error.Value.Message.Value)
		out += fmt.Sprintf(" retry=%t", it.Retry.Value)
	}
	if it.RetryAfterMs.Set {
		out += fmt.Sprintf(" after=%d", it.RetryAfterMs.Value)
	}
	return out
}

// RoundTrip carries the call out even if the caller leaves meanwhile, as a server does.
func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	req.Body.Close()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.calls = append(f.calls, call{path: req.URL.Path, at: time.Now(), body: string(body)})
	var now fault
	if q := f.faults[req.URL.Path]; len(q) > 0 {
		now, f.faults[req.URL.Path] = q[0], q[1:]
	}
	f.mu.Unlock()
	if req.URL.Path == pathClaim || bytes.Contains(body, []byte(`"claim":`)) {
		defer f.oneClaim()()
	}

	reply := make(chan *http.Response, 1)
	go func() {
		if now.before != nil {
			now.before()
		}
		if now.wait > 0 {
			<-time.After(now.wait)
		}
		if now.skip {
			reply <- nil
			return
		}
		rec := httptest.NewRecorder()
		rec.Header().Set("X-Request-Id", "r-1")
		if now.status > 0 {
			rec.Header().Set("Retry-After", now.after)
			writeProblem(rec, now.status, now.code)
		} else {
			f.serve(rec, req.Context(), req.URL.Path, body, now.item)
		}
		if now.back > 0 {
			<-time.After(now.back)
		}
		reply <- rec.Result()
	}()
	left := req.Context().Done()
	if now.late {
		left = nil
	}
	select {
	case resp := <-reply:
		if now.lose || resp == nil {
			return nil, errCut
		}
		return resp, nil
	case <-left:
		return nil, req.Context().Err()
	}
}

// oneClaim checks that a claim does not overlap another, until the function it gives is called.
func (f *fake) oneClaim() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claiming {
		f.t.Error("two claims at once")
	}
	f.claiming = true
	return func() {
		f.mu.Lock()
		f.claiming = false
		f.mu.Unlock()
	}
}

func (f *fake) serve(rec *httptest.ResponseRecorder, ctx context.Context, path string, body []byte, item func(int) (int, string)) {
	var reply any
	var refusal *api.Problem
	switch path {
	case pathOpen:
		reply, refusal = with(body, f.open)
	case pathClose:
		reply, refusal = with(body, f.close)
	case pathClaim:
		reply, refusal = with(body, func(r *api.ClaimTasksRequest) (any, *api.Problem) { return f.claim(ctx, r) })
	case pathStart:
		reply, refusal = with(body, func(r *api.StartAttemptsRequest) (any, *api.Problem) { return f.start(r, item) })
	case pathHeartbeat:
		reply, refusal = with(body, func(r *api.HeartbeatAttemptsRequest) (any, *api.Problem) { return f.heartbeat(r, item) })
	case pathFinish:
		reply, refusal = with(body, func(r *api.FinishAttemptsRequest) (any, *api.Problem) { return f.finish(r, item) })
	case pathRelease:
		reply, refusal = with(body, f.release)
	default:
		refusal = problem(404, "not_found")
	}
	if refusal != nil {
		writeProblem(rec, refusal.Status, refusal.Code)
		return
	}
	rec.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(rec)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(reply); err != nil {
		f.t.Errorf("encode the reply of %s: %v", path, err)
	}
}

// with decodes and validates a request as the document says.
func with[T any, P interface {
	*T
	json.Unmarshaler
	Validate() error
}](body []byte, do func(P) (any, *api.Problem)) (any, *api.Problem) {
	req := P(new(T))
	if err := req.UnmarshalJSON(body); err != nil {
		return nil, problem(400, "invalid_request")
	}
	if err := req.Validate(); err != nil {
		return nil, problem(400, "invalid_request")
	}
	return do(req)
}

func problem(status int, code string) *api.Problem {
	return &api.Problem{Type: "/docs/problems/" + code, Title: code, Status: status, Code: code, RequestID: "r-1"}
}

func itemProblem(status int, code string) (o api.OptProblem) {
	o.SetTo(*problem(status, code))
	return o
}

func writeProblem(rec *httptest.ResponseRecorder, status int, code string) {
	rec.Header().Set("Content-Type", "application/problem+json")
	rec.WriteHeader(status)
	json.NewEncoder(rec).Encode(problem(status, code))
}

func (f *fake) open(r *api.OpenWorkerSessionRequest) (any, *api.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[r.InstanceID]
	if s == nil {
		epoch := int64(1)
		if before := f.sessions[f.current[r.WorkerName]]; before != nil {
			epoch = before.epoch + 1
		}
		s = &fakeSession{name: r.WorkerName, epoch: epoch}
		f.sessions[r.InstanceID], f.current[r.WorkerName] = s, r.InstanceID
	}
	if f.current[s.name] != r.InstanceID {
		return nil, problem(409, "session_superseded")
	}
	return &api.WorkerSession{
		SessionID: strings.Repeat("5", 32), InstanceID: r.InstanceID, Epoch: s.epoch,
		OpenedAt: time.Now(), HeartbeatIntervalMs: f.beatMs,
	}, nil
}

// session checks instance and epoch as every call but finish does. The caller holds the lock.
func (f *fake) session(instance string, epoch int64) (*fakeSession, *api.Problem) {
	s := f.sessions[instance]
	switch {
	case s == nil:
		return nil, problem(404, "not_found")
	case f.current[s.name] != instance || s.epoch != epoch:
		return s, problem(409, "session_superseded")
	}
	return s, nil
}

func (f *fake) close(r *api.CloseWorkerSessionRequest) (any, *api.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, refusal := f.session(r.InstanceID, r.Epoch)
	if refusal != nil {
		return nil, refusal
	}
	s.closed = true
	return &api.ClosedWorkerSession{InstanceID: r.InstanceID, Epoch: r.Epoch, State: api.WorkerStateClosed}, nil
}

// admit judges a claim. The caller holds the lock.
func (f *fake) admit(instance string, epoch, seq int64) *api.Problem {
	s, refusal := f.session(instance, epoch)
	if refusal == nil && seq <= s.abandoned {
		refusal = problem(409, "state_conflict")
	}
	if refusal != nil {
		return refusal
	}
	if seq < s.claimed {
		f.t.Errorf("claim_seq %d after %d", seq, s.claimed)
	}
	s.claimed = seq
	return nil
}

func (f *fake) claim(ctx context.Context, r *api.ClaimTasksRequest) (any, *api.Problem) {
	patience := time.After(time.Duration(r.WaitMs.Value) * time.Millisecond)
	for {
		f.mu.Lock()
		if refusal := f.admit(r.InstanceID, r.Epoch, r.ClaimSeq); refusal != nil {
			f.mu.Unlock()
			return nil, refusal
		}
		if len(f.ready) > 0 {
			defer f.mu.Unlock()
			return &api.ClaimTasksResponse{ClaimSeq: r.ClaimSeq, Offers: f.offer(r.InstanceID, r.ClaimSeq, r.Max, r.Start.Value)}, nil
		}
		arrived := f.arrived
		f.mu.Unlock()
		select {
		case <-arrived:
		case <-patience:
			return &api.ClaimTasksResponse{ClaimSeq: r.ClaimSeq, Offers: []api.Offer{}}, nil
		case <-ctx.Done():
			return &api.ClaimTasksResponse{ClaimSeq: r.ClaimSeq, Offers: []api.Offer{}}, nil
		}
	}
}

func (f *fake) offer(instance string, seq int64, most int, start bool) []api.Offer {
	offers := []api.Offer{}
	n := min(most, len(f.ready))
	for _, task := range f.ready[:n] {
		a := &fakeAttempt{id: f.newID(), token: "token-" + task.id, task: task, instance: instance, seq: seq, state: "offered"}
		f.attempts[a.id] = a
		o := api.Offer{
			AttemptID: a.id, TaskID: task.id, QueueID: strings.Repeat("9", 32), Type: task.taskType, Generation: 1,
			AttemptNumber: task.attempts + 1, Token: a.token, OfferExpiresAt: time.Now(), LeaseMs: f.leaseMs,
			Payload: jx.Raw(task.payload), Priority: 5, RunAt: time.Now(),
		}
		if start && f.oneStep {
			a.state, a.withClaim = "running", true
			task.attempts++
			o.StartedAt.SetTo(time.Now())
			o.LeaseUntil.SetTo(time.Now().Add(time.Duration(f.leaseMs) * time.Millisecond))
		}
		if task.traceparent != "" {
			o.Traceparent.SetTo(task.traceparent)
		}
		offers = append(offers, o)
	}
	f.ready = f.ready[n:]
	return offers
}

// attempt finds by id and token. The caller holds the lock.
func (f *fake) attempt(id, token string) *fakeAttempt {
	if a := f.attempts[id]; a != nil && a.token == token {
		return a
	}
	f.t.Errorf("no attempt %s with token %s", id, token)
	return nil
}

func (f *fake) start(r *api.StartAttemptsRequest, item func(int) (int, string)) (any, *api.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, refusal := f.session(r.InstanceID, r.Epoch); refusal != nil {
		return nil, refusal
	}
	reply := &api.StartAttemptsResponse{}
	for i, it := range r.Items {
		a := f.attempt(it.AttemptID, it.Token)
		if status, code := faultOf(item, i); status > 0 {
			reply.Items = append(reply.Items, api.StartResult{Status: status, Problem: itemProblem(status, code)})
			continue
		}
		switch a.state {
		case "offered":
			a.state = "running"
			a.task.attempts++
			fallthrough
		case "running":
			res := api.StartResult{Status: 200}
			res.Attempt.SetTo(api.StartedAttempt{
				AttemptID: a.id, State: api.AttemptStateRunning, StartedAt: time.Now(), LeaseUntil: time.Now(), LeaseMs: f.leaseMs,
			})
			reply.Items = append(reply.Items, res)
		case "lost":
			reply.Items = append(reply.Items, api.StartResult{Status: 409, Problem: itemProblem(409, "lease_lost")})
		default:
			reply.Items = append(reply.Items, api.StartResult{Status: 409, Problem: itemProblem(409, "stale_attempt")})
		}
	}
	return reply, nil
}

func faultOf(item func(int) (int, string), i int) (int, string) {
	if item == nil {
		return 0, ""
	}
	return item(i)
}

func (f *fake) heartbeat(r *api.HeartbeatAttemptsRequest, item func(int) (int, string)) (any, *api.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, refusal := f.session(r.InstanceID, r.Epoch); refusal != nil {
		return nil, refusal
	}
	reply := &api.HeartbeatAttemptsResponse{Items: []api.HeartbeatResult{}}
	for i, it := range r.Items {
		a := f.attempt(it.AttemptID, it.Token)
		if status, code := faultOf(item, i); status > 0 {
			reply.Items = append(reply.Items, api.HeartbeatResult{Status: status, Problem: itemProblem(status, code)})
			continue
		}
		switch a.state {
		case "running":
			a.beats++
			if len(it.Progress) > 0 {
				a.progress = string(it.Progress)
			}
			res := api.HeartbeatResult{Status: 200}
			res.Attempt.SetTo(api.RenewedAttempt{AttemptID: a.id, LeaseUntil: time.Now(), CancelRequested: a.cancel})
			reply.Items = append(reply.Items, res)
		case "lost":
			reply.Items = append(reply.Items, api.HeartbeatResult{Status: 409, Problem: itemProblem(409, "lease_lost")})
		default:
			reply.Items = append(reply.Items, api.HeartbeatResult{Status: 409, Problem: itemProblem(409, "stale_attempt")})
		}
	}
	return reply, nil
}

func (f *fake) finish(r *api.FinishAttemptsRequest, item func(int) (int, string)) (any, *api.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, refusal := f.session(r.InstanceID, r.Epoch)
	if refusal != nil && refusal.Code == "not_found" {
		return nil, refusal
	}
	reply := &api.FinishAttemptsResponse{}
	for i, it := range r.Items {
		a := f.attempt(it.AttemptID, it.Token)
		status, code := faultOf(item, i)
		switch {
		case status > 0:
			reply.Items = append(reply.Items, api.FinishResult{Status: status, Problem: itemProblem(status, code)})
		case refusal != nil:
			reply.Items = append(reply.Items, f.keep(a, it, refusal.Code))
		case a.state == "lost":
			reply.Items = append(reply.Items, f.keep(a, it, "lease_lost"))
		case a.finished != nil && describe(*a.finished) != describe(it):
			reply.Items = append(reply.Items, f.keep(a, it, "result_conflict"))
		default:
			res := api.FinishResult{Status: 200, Replayed: a.finished != nil}
			res.Receipt.SetTo(api.AttemptReceipt{
				AttemptID: a.id, TaskID: a.task.id, Outcome: it.Outcome, TaskState: api.TaskStateSucceeded, AcceptedAt: time.Now(),
			})
			a.state, a.finished, a.task.end, a.task.ended = "ended", &it, &it, true
			reply.Items = append(reply.Items, res)
		}
	}
	if c, ok := r.Claim.Get(); ok {
		res := api.FinishClaimResult{Status: 200, ClaimSeq: c.ClaimSeq, Offers: []api.Offer{}}
		if refused := f.admit(r.InstanceID, r.Epoch, c.ClaimSeq); refused != nil {
			res.Status, res.Problem = refused.Status, api.NewOptProblem(*refused)
		} else {
			res.Offers = f.offer(r.InstanceID, c.ClaimSeq, c.Max, c.Start.Value)
		}
		reply.Claim.SetTo(res)
	}
	return reply, nil
}

func (f *fake) keep(a *fakeAttempt, it api.FinishItem, code string) api.FinishResult {
	a.evidence = append(a.evidence, it)
	return api.FinishResult{Status: 409, Problem: itemProblem(409, code), EvidenceID: api.NewOptString(strings.Repeat("e", 32))}
}

// unbegun is what can be given back: an offer, or what came started and had no heartbeat.
func unbegun(a *fakeAttempt) bool {
	return a.state == "offered" || a.state == "running" && a.withClaim && a.beats == 0
}

func (f *fake) release(r *api.ReleaseAttemptsRequest) (any, *api.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, refusal := f.session(r.InstanceID, r.Epoch)
	if refusal != nil {
		return nil, refusal
	}
	reply := &api.ReleaseAttemptsResponse{Items: []api.ReleaseResult{}}
	give := func(a *fakeAttempt, reason string) {
		res := api.ReleaseResult{Status: 200}
		switch {
		case unbegun(a):
			if a.state == "running" {
				a.task.attempts--
			}
			a.state, a.reason = "released", reason
			if reason != "no_handler" {
				f.makeReady(a.task)
			}
			fallthrough
		case a.state == "released":
			res.Attempt.SetTo(api.ReleasedAttempt{AttemptID: a.id, TaskID: a.task.id, State: api.AttemptStateReleased})
		default:
			res = api.ReleaseResult{Status: 409, Problem: itemProblem(409, "state_conflict")}
		}
		reply.Items = append(reply.Items, res)
	}
	for _, it := range r.Items {
		give(f.attempt(it.AttemptID, it.Token), it.Reason.Value)
	}
	if seq, ok := r.ClaimSeq.Get(); ok {
		s.abandoned = max(s.abandoned, seq)
		for _, a := range f.attempts {
			if a.instance == r.InstanceID && a.seq == seq && unbegun(a) {
				give(a, "")
			}
		}
	}
	return reply, nil
}
