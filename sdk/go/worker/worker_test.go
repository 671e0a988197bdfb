package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/sdk/go/worker"
)

// scenario runs one worker against one fake inside a bubble.
type scenario struct {
	*fake
	*worker.Worker
	t     *testing.T
	drain context.CancelFunc
	ctx   context.Context
	ended chan error
}

func play(t *testing.T, cfg worker.Config, do func(*scenario)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := &scenario{fake: f, Worker: f.worker(cfg), t: t, ended: make(chan error, 1)}
		s.ctx, s.drain = context.WithCancel(s.t.Context())
		do(s)
	})
}

// begin starts Run and waits until everything is at rest.
func (s *scenario) begin() {
	go func() { s.ended <- s.Run(s.ctx) }()
	synctest.Wait()
}

// pass lets time go by.
func (s *scenario) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// end drains and gives what Run returned.
func (s *scenario) end() error {
	s.drain()
	return <-s.ended
}

func (s *scenario) endCleanly() {
	s.t.Helper()
	if err := s.end(); err != nil {
		s.t.Errorf("Run = %v, want nil", err)
	}
}

func (s *scenario) wantOutcome(task *fakeTask, want string) {
	s.t.Helper()
	if got := s.outcome(task); got != want {
		s.t.Errorf("outcome of %s = %q, want %q", task.taskType, got, want)
	}
}

func (s *scenario) wantCalls(path string, want int) {
	s.t.Helper()
	if got := len(s.callsOf(path)); got != want {
		s.t.Errorf("%d calls of %s, want %d", got, path, want)
	}
}

// untilDone is a handler that ends with its context and tells why.
func untilDone(cause *error) worker.Handler {
	return func(ctx context.Context, _ *worker.Task) (any, error) {
		<-ctx.Done()
		*cause = context.Cause(ctx)
		return nil, ctx.Err()
	}
}

func echo(_ context.Context, t *worker.Task) (any, error) { return t.Payload, nil }

func TestDigitsComeBackAsSent(t *testing.T) {
	const payload = `{"n":3889108265204450030,"d":0.1000,"big":12345678901234567890123456789012345678,"html":"<&>"}`
	play(t, worker.Config{}, func(s *scenario) {
		task := s.add("echo", payload)
		s.Handle("echo", echo)
		s.begin()
		s.wantOutcome(task, "succeeded "+payload)
		s.endCleanly()
		s.wantCalls(pathClose, 1)
	})
}

func TestTaskShowsItsOffer(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		task := s.add("look", `{"a":1}`)
		var seen worker.Task
		s.Handle("look", func(_ context.Context, t *worker.Task) (any, error) {
			seen = *t
			return nil, nil
		})
		s.begin()
		s.wantOutcome(task, "succeeded")
		if seen.ID != task.id || seen.EffectKey() != task.id || seen.Attempt != 1 || string(seen.Payload) != `{"a":1}` || seen.Type != "look" {
			t.Errorf("the handler saw %+v", seen)
		}
		s.endCleanly()
	})
}

func TestNeverMoreThanConcurrency(t *testing.T) {
	play(t, worker.Config{Concurrency: 3}, func(s *scenario) {
		var now, most, ran atomic.Int32
		s.Handle("work", func(context.Context, *worker.Task) (any, error) {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-time.After(time.Second)
			now.Add(-1)
			ran.Add(1)
			return nil, nil
		})
		for range 10 {
			s.add("work", "null")
		}
		s.begin()
		s.pass(4 * time.Second)
		if most.Load() != 3 || ran.Load() != 10 {
			t.Errorf("at most %d at once and %d in all, want 3 and 10", most.Load(), ran.Load())
		}
		for _, c := range s.callsOf(pathClaim) {
			var claim struct{ Max int }
			if err := json.Unmarshal([]byte(c.body), &claim); err != nil || claim.Max > 3 {
				t.Errorf("claim %s, want at most 3", c.body)
			}
		}
		s.endCleanly()
	})
}

func TestHowHandlersEnd(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		h    worker.Handler
		want string
	}{
		{"value", func(context.Context, *worker.Task) (any, error) { return map[string]int{"n": 1}, nil }, `succeeded {"n":1}`},
		{"nothing", func(context.Context, *worker.Task) (any, error) { return nil, nil }, "succeeded"},
		{"error", func(context.Context, *worker.Task) (any, error) { return 1, boom }, "failed handler_error: boom retry=true"},
		{"permanent", func(context.Context, *worker.Task) (any, error) {
			return nil, fmt.Errorf("no: %w", worker.Permanent(boom))
		}, "failed handler_error: no: boom retry=false"},
		{"later", func(context.Context, *worker.Task) (any, error) {
			return nil, worker.RetryAfter(boom, 1500*time.Millisecond)
		}, "failed handler_error: boom retry=true after=1500"},
		{"code", func(context.Context, *worker.Task) (any, error) { return nil, worker.Fail("no_stock", "none left") }, "failed no_stock: none left retry=true"},
		{"permanent-code", func(context.Context, *worker.Task) (any, error) {
			return nil, worker.Permanent(worker.Fail("no stock!", "x"))
		}, "failed no_stock_: x retry=false"},
		{"own-timeout", func(ctx context.Context, _ *worker.Task) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}, "failed handler_error: context deadline exceeded retry=true"},
		{"panic", func(context.Context, *worker.Task) (any, error) { panic("at the disco") }, "failed panic: at the disco retry=true"},
		{"goexit", func(context.Context, *worker.Task) (any, error) { runtime.Goexit(); return nil, nil }, "failed panic: the handler ended its goroutine retry=true"},
		{"not-json", func(context.Context, *worker.Task) (any, error) { return make(chan int), nil }, "failed result_refused: the result cannot be encoded: orbit: json: unsupported type: chan int retry=false"},
		{"not-raw-json", func(context.Context, *worker.Task) (any, error) { return json.RawMessage("{"), nil }, "failed result_refused: the result cannot be encoded: orbit: the raw message is not JSON retry=false"},
		{"too-large", func(context.Context, *worker.Task) (any, error) { return strings.Repeat("x", 8<<20), nil }, "failed result_refused: the result has 8388610 bytes, more than 8388608 retry=false"},
		{"long-message", func(context.Context, *worker.Task) (any, error) {
			return nil, errors.New(strings.Repeat("é", 5000) + "\xff")
		}, "failed handler_error: " + strings.Repeat("é", 4096) + " retry=true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			play(t, worker.Config{}, func(s *scenario) {
				task := s.add(tt.name, "null")
				s.Handle(tt.name, tt.h)
				s.begin()
				s.pass(2 * time.Second)
				s.wantOutcome(task, tt.want)
				s.endCleanly()
			})
		})
	}
}

func TestHandleJSON(t *testing.T) {
	type in struct{ N json.Number }
	play(t, worker.Config{}, func(s *scenario) {
		good, bad := s.add("twice", `{"N":0.10}`), s.add("twice", `{"N":[]}`)
		worker.HandleJSON(s.Worker, "twice", func(_ context.Context, _ *worker.Task, v in) (string, error) {
			return v.N.String() + v.N.String(), nil
		})
		s.begin()
		s.wantOutcome(good, `succeeded "0.100.10"`)
		if got := s.outcome(bad); !strings.HasPrefix(got, "failed bad_payload: ") || !strings.HasSuffix(got, "retry=false") {
			t.Errorf("outcome of a payload that does not fit = %q", got)
		}
		s.endCleanly()
	})
}

func TestLostReplyOfOpenMakesOneIncarnation(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		task := s.add("echo", "1")
		s.Handle("echo", echo)
		s.script(pathOpen, fault{skip: true}, fault{lose: true}, fault{status: 503, code: "outcome_unknown"})
		s.begin()
		s.pass(5 * time.Second)
		s.wantOutcome(task, "succeeded 1")
		ids := map[string]bool{}
		for _, c := range s.callsOf(pathOpen) {
			var open struct{ InstanceID string }
			json.Unmarshal([]byte(strings.ReplaceAll(c.body, "instance_id", "InstanceID")), &open)
			ids[open.InstanceID] = true
		}
		if len(ids) != 1 || len(s.callsOf(pathOpen)) != 4 || s.sessions[s.current[s.name()]].epoch != 1 {
			t.Errorf("%d calls with %d instance ids", len(s.callsOf(pathOpen)), len(ids))
		}
		s.endCleanly()
	})
}

// name is the one worker name that the fake knows.
func (f *fake) name() string {
	for name := range f.current {
		return name
	}
	return ""
}

func TestLostReplyOfClaimIsGivenBack(t *testing.T) {
	for _, f := range []fault{{lose: true}, {status: 503, code: "outcome_unknown"}, {status: 502, code: ""}} {
		play(t, worker.Config{}, func(s *scenario) {
			task := s.add("echo", "1")
			s.Handle("echo", echo)
			s.script(pathClaim, f)
			s.script(pathRelease, fault{lose: true})
			s.begin()
			s.pass(5 * time.Second)
			s.wantOutcome(task, "succeeded 1")
			if task.attempts != 1 {
				t.Errorf("%d attempts used, want 1", task.attempts)
			}
			s.wantCalls(pathRelease, 2)
			for _, c := range s.callsOf(pathRelease) {
				if !strings.Contains(c.body, `"claim_seq":1`) {
					t.Errorf("released %s, want claim_seq 1", c.body)
				}
			}
			if got := len(s.live("offered")); got != 0 {
				t.Errorf("%d offers left behind", got)
			}
			s.endCleanly()
		})
	}
}

func TestLostReplyOfStartIsRepeated(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		task := s.add("echo", "1")
		var ran atomic.Int32
		var lease time.Duration
		s.Handle("echo", func(_ context.Context, t *worker.Task) (any, error) {
			ran.Add(1)
			lease = t.LeaseRemaining()
			return nil, nil
		})
		s.script(pathStart, fault{wait: 2 * time.Second, lose: true}, fault{wait: 3 * time.Second})
		s.begin()
		s.pass(10 * time.Second)
		s.wantOutcome(task, "succeeded")
		if ran.Load() != 1 || task.attempts != 1 {
			t.Errorf("ran %d times with %d attempts, want once", ran.Load(), task.attempts)
		}
		if lease > 25*time.Second || lease < 24*time.Second {
			t.Errorf("%v of the lease left; it counts from before the first try, 5 s and a short wait ago", lease)
		}
		s.endCleanly()
	})
}

func TestStartRefusedFreesItsSlot(t *testing.T) {
	for _, code := range []string{"start_refused", "stale_attempt", "lease_lost", "not_found"} {
		play(t, worker.Config{Concurrency: 1}, func(s *scenario) {
			refused, next := s.add("echo", "1"), s.add("echo", "2")
			s.Handle("echo", echo)
			s.script(pathStart, fault{item: func(int) (int, string) { return 409, code }})
			s.begin()
			s.pass(time.Second)
			s.wantOutcome(refused, "none")
			s.wantOutcome(next, "succeeded 2")
			s.endCleanly()
		})
	}
}

func TestStartItemUnknownIsRepeatedAlone(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		one, two := s.add("echo", "1"), s.add("echo", "2")
		s.Handle("echo", echo)
		s.script(pathStart, fault{item: func(i int) (int, string) {
			if i == 0 {
				return 503, "outcome_unknown"
			}
			return 0, ""
		}})
		s.begin()
		s.wantOutcome(one, "none")
		s.wantOutcome(two, "succeeded 2")
		s.pass(time.Second)
		s.wantOutcome(one, "succeeded 1")
		s.endCleanly()
	})
}

func TestResultIsSentUntilThereIsAReceipt(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		task := s.add("echo", "1")
		s.Handle("echo", echo)
		s.script(pathFinish, fault{lose: true})
		for range 40 { // about three minutes away
			s.script(pathFinish, fault{skip: true, lose: true})
		}
		s.script(pathFinish, fault{status: 503, code: "unavailable", after: "7"}, fault{status: 401, code: "unauthenticated"},
			fault{item: func(int) (int, string) { return 503, "outcome_unknown" }}, fault{lose: true})
		s.begin()
		beats := len(s.callsOf(pathHeartbeat))
		s.pass(10 * time.Minute)
		s.wantOutcome(task, "succeeded 1")
		s.wantCalls(pathFinish, 46)
		calls := s.callsOf(pathFinish)
		if waited := calls[42].at.Sub(calls[41].at); waited < 7*time.Second {
			t.Errorf("sent again after %v, asked for 7 s", waited)
		}
		var renewed int
		for _, c := range s.callsOf(pathHeartbeat)[beats:] {
			if c.at.Before(calls[len(calls)-1].at) && strings.Contains(c.body, "attempt_id") {
				renewed++
			}
		}
		if renewed < 5 {
			t.Errorf("the lease was renewed %d times while the result found no answer", renewed)
		}
		if err := s.end(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func TestResultsReadyTogetherGoInOneCall(t *testing.T) {
	play(t, worker.Config{Concurrency: 250}, func(s *scenario) {
		gate := make(chan struct{})
		s.Handle("gated", func(context.Context, *worker.Task) (any, error) {
			<-gate
			return nil, nil
		})
		for range 250 {
			s.add("gated", "null")
		}
		s.begin()
		// The first result is alone in its call, and while that takes a second the others gather.
		s.script(pathFinish, fault{wait: time.Second})
		gate <- struct{}{}
		synctest.Wait()
		close(gate)
		s.pass(2 * time.Second)
		var sizes []int
		for _, c := range s.callsOf(pathFinish) {
			sizes = append(sizes, strings.Count(c.body, "attempt_id"))
		}
		if diff := cmp.Diff([]int{1, 100, 100, 49}, sizes); diff != "" {
			t.Errorf("results per call (-want +got):\n%s", diff)
		}
		s.endCleanly()
	})
}

func TestRefusedResultBecomesAFailure(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		task := s.add("echo", `"\ud800"`)
		s.Handle("echo", echo)
		s.script(pathFinish, fault{item: func(int) (int, string) { return 400, "invalid_request" }})
		s.begin()
		s.pass(time.Second)
		if got := s.outcome(task); !strings.HasPrefix(got, "failed result_refused: the server refused the result: orbit: 400 invalid_request") || !strings.HasSuffix(got, "retry=false") {
			t.Errorf("outcome = %q", got)
		}
		s.endCleanly()
	})
}

func TestRefusedCallIsTakenApart(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		gate := make(chan struct{})
		var tasks []*fakeTask
		for range 3 {
			tasks = append(tasks, s.add("gated", "null"))
		}
		s.Handle("gated", func(context.Context, *worker.Task) (any, error) { <-gate; return 1, nil })
		s.begin()
		s.script(pathFinish, fault{wait: time.Second}, fault{status: 413, code: "payload_too_large"}) // one, then the other two
		gate <- struct{}{}
		synctest.Wait()
		close(gate)
		s.pass(5 * time.Second)
		for _, task := range tasks {
			s.wantOutcome(task, "succeeded 1")
		}
		s.wantCalls(pathFinish, 4)
		s.endCleanly()
	})
}

func TestCancelRequestEndsTheHandler(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		var cause error
		obeys, ignores := s.add("obeys", "null"), s.add("ignores", "null")
		s.Handle("obeys", untilDone(&cause))
		s.Handle("ignores", func(ctx context.Context, _ *worker.Task) (any, error) {
			<-ctx.Done()
			return "done anyway", nil
		})
		s.begin()
		s.requestCancel()
		s.pass(10 * time.Second)
		if cause != worker.ErrCancelled {
			t.Errorf("cause = %v, want ErrCancelled", cause)
		}
		s.wantOutcome(obeys, "cancelled")
		s.wantOutcome(ignores, `succeeded "done anyway"`)
		s.endCleanly()
	})
}

func TestLostLeaseEndsTheHandlerAndTheResultBecomesEvidence(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		var cause error
		s.add("work", "null")
		s.Handle("work", untilDone(&cause))
		s.begin()
		s.lose()
		s.pass(10 * time.Second)
		if cause != worker.ErrLeaseLost {
			t.Errorf("cause = %v, want ErrLeaseLost", cause)
		}
		var kept []string
		for _, a := range s.live("lost") {
			for _, it := range a.evidence {
				kept = append(kept, describe(it))
			}
		}
		if diff := cmp.Diff([]string{"failed lease_lost: context canceled retry=true"}, kept); diff != "" {
			t.Errorf("evidence (-want +got):\n%s", diff)
		}
		s.endCleanly()
	})
}

func TestSupersededWorkerStops(t *testing.T) {
	away := slices.Repeat([]fault{{status: 503, code: "unavailable"}}, 1000)
	for _, tt := range []struct {
		first string // the call that meets it first
		away  []string
	}{
		{first: "heartbeat", away: []string{pathClaim, pathRelease}},
		{first: "claim"},
		{first: "release", away: []string{pathHeartbeat, pathClaim}},
		{first: "result", away: []string{pathHeartbeat, pathClaim, pathRelease}},
	} {
		t.Run(tt.first, func(t *testing.T) {
			play(t, worker.Config{Name: "w", Concurrency: 3}, func(s *scenario) {
				var cause error
				gate := make(chan struct{})
				s.add("work", "null")
				s.add("gated", "null")
				s.Handle("work", untilDone(&cause))
				s.Handle("gated", func(context.Context, *worker.Task) (any, error) { <-gate; return "in time", nil })
				s.begin()
				s.supersede("w")
				for _, path := range tt.away {
					s.script(path, away...)
				}
				switch tt.first {
				case "claim", "release":
					s.add("gated", "null") // wakes the long poll, which finds the epoch gone
				case "result":
					gate <- struct{}{}
				}
				if tt.first == "heartbeat" {
					s.pass(10 * time.Second)
				}
				from := time.Now()
				s.pass(3 * time.Second)
				close(gate)
				err := <-s.ended
				if !errors.Is(err, worker.ErrSuperseded) || cause != worker.ErrSuperseded {
					t.Errorf("Run = %v, cause = %v, want ErrSuperseded for both", err, cause)
				}
				if took := time.Since(from); took > 4*time.Second {
					t.Errorf("stopped after %v", took)
				}
				s.wantCalls(pathClose, 0)
				for _, a := range s.live("running") {
					if len(a.evidence) != 1 {
						t.Errorf("the result of %s was sent %d times as evidence, want once", a.task.taskType, len(a.evidence))
					}
				}
			})
		})
	}
}

func TestNoHandler(t *testing.T) {
	play(t, worker.Config{Concurrency: 1}, func(s *scenario) {
		s.add("strange", "null")
		task := s.add("echo", "1")
		s.Handle("echo", echo)
		s.begin()
		s.wantOutcome(task, "succeeded 1")
		if a := s.live("released"); len(a) != 1 || a[0].reason != "no_handler" {
			t.Errorf("released %+v, want one with reason no_handler", a)
		}
		s.endCleanly()
	})
}

func TestHeartbeats(t *testing.T) {
	beats := func(s *scenario, during time.Duration) (empty, full int) {
		before := len(s.callsOf(pathHeartbeat))
		s.pass(during)
		for _, c := range s.callsOf(pathHeartbeat)[before:] {
			if strings.Contains(c.body, "attempt_id") {
				full++
			} else {
				empty++
			}
		}
		return empty, full
	}
	play(t, worker.Config{}, func(s *scenario) {
		release := make(chan struct{})
		s.leaseMs = 6000
		s.Handle("work", func(context.Context, *worker.Task) (any, error) { <-release; return nil, nil })
		s.begin()
		if empty, full := beats(s, time.Minute); empty != 6 || full != 0 {
			t.Errorf("idle: %d and %d heartbeats a minute, want 6 signs of life", empty, full)
		}
		s.add("work", "null")
		s.add("work", "null")
		synctest.Wait()
		if empty, full := beats(s, time.Minute); empty != 0 || full != 30 {
			t.Errorf("two leases of 6 s: %d and %d heartbeats a minute, want 30 batched ones", empty, full)
		}
		close(release)
		s.endCleanly()
	})
}

func TestHeartbeatWithoutReplyIsRepeatedSoon(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		var left time.Duration
		s.add("work", "null")
		s.Handle("work", func(ctx context.Context, task *worker.Task) (any, error) {
			<-time.After(14 * time.Second)
			left = task.LeaseRemaining()
			<-ctx.Done()
			return nil, ctx.Err()
		})
		s.script(pathHeartbeat, fault{lose: true}, fault{status: 503, code: "unavailable"}, fault{wait: time.Second})
		s.begin()
		s.pass(15 * time.Second)
		var at []time.Duration
		calls := s.callsOf(pathHeartbeat)
		for _, c := range calls {
			at = append(at, c.at.Sub(s.callsOf(pathStart)[0].at))
		}
		if diff := cmp.Diff([]time.Duration{10 * time.Second, 11 * time.Second, 12 * time.Second}, at); diff != "" {
			t.Errorf("heartbeats (-want +got):\n%s", diff)
		}
		if left != 28*time.Second {
			t.Errorf("%v of the lease left, want 28 s: counted from before the heartbeat was sent", left)
		}
		s.requestCancel()
		s.pass(10 * time.Second)
		s.endCleanly()
	})
}

func TestProgressGoesWithTheNextHeartbeat(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		tell, told := make(chan any), make(chan error)
		s.add("work", "null")
		s.Handle("work", func(_ context.Context, task *worker.Task) (any, error) {
			for v := range tell {
				told <- task.Progress(v)
			}
			return nil, nil
		})
		say := func(v any) error { tell <- v; return <-told }
		s.begin()
		want := func(progress string) {
			t.Helper()
			s.pass(10 * time.Second)
			if got := s.live("running")[0].progress; got != progress {
				t.Errorf("progress = %s, want %s", got, progress)
			}
		}
		say(1)
		say(json.RawMessage("0.50"))
		want("0.50")
		s.script(pathHeartbeat, fault{skip: true})
		say("kept")
		want("0.50")
		want(`"kept"`)
		s.script(pathHeartbeat, fault{status: 400, code: "invalid_request"})
		say("refused")
		want(`"kept"`)
		if err := say(strings.Repeat("x", 64<<10)); err == nil {
			t.Error("a progress above 64 KiB was taken")
		}
		if err := say(func() {}); err == nil {
			t.Error("a progress that is not JSON was taken")
		}
		close(tell)
		s.endCleanly()
		if err := new(worker.Task).Progress(1); err != nil {
			t.Errorf("Progress of a task made by hand = %v", err)
		}
	})
}

func TestDrain(t *testing.T) {
	play(t, worker.Config{Concurrency: 2}, func(s *scenario) {
		task := s.add("slow", "null")
		s.Handle("slow", func(ctx context.Context, _ *worker.Task) (any, error) {
			select {
			case <-time.After(25 * time.Second):
				return "finished", nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		s.begin()
		s.wantCalls(pathClaim, 2) // the second one waits for work
		from := time.Now()
		s.endCleanly()
		s.wantOutcome(task, `succeeded "finished"`)
		if took := time.Since(from); took != 25*time.Second {
			t.Errorf("drained for %v, want 25 s", took)
		}
		s.wantCalls(pathClaim, 2)
		if r := s.callsOf(pathRelease); len(r) != 1 || !strings.Contains(r[0].body, `"claim_seq":2`) {
			t.Errorf("released %v, want the long poll's claim_seq", r)
		}
		if got := len(s.callsOf(pathHeartbeat)); got != 2 {
			t.Errorf("%d heartbeats during the drain, want 2", got)
		}
		s.wantCalls(pathClose, 1)
	})
}

func TestDrainGivesBackWhatIsNotBegun(t *testing.T) {
	for _, tt := range []struct {
		name  string
		path  string // of the call that claims while the drain begins
		fault fault
	}{
		{"offers under way", pathClaim, fault{wait: time.Second}},
		{"offers just here", pathClaim, fault{late: true}},
		{"offers that came with a receipt", pathFinish, fault{wait: time.Second}},
	} {
		for _, oneStep := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", started: ", oneStep), func(t *testing.T) {
				play(t, worker.Config{Concurrency: 2}, func(s *scenario) {
					s.oneStep = oneStep
					s.Handle("echo", echo)
					tt.fault.before = s.drain
					s.script(tt.path, tt.fault)
					var first []*fakeTask
					if tt.path == pathFinish {
						first = []*fakeTask{s.add("echo", "0"), s.add("echo", "0")}
					}
					one, two := s.add("echo", "1"), s.add("echo", "2")
					s.begin()
					if err := <-s.ended; err != nil {
						t.Errorf("Run = %v, want nil", err)
					}
					s.pass(2 * time.Second)
					if got := len(s.live("offered")) + len(s.live("running")); got != 0 || one.attempts+two.attempts != 0 {
						t.Errorf("%d attempts left, %d and %d used", got, one.attempts, two.attempts)
					}
					for _, task := range first {
						s.wantOutcome(task, "succeeded 0")
					}
					s.wantCalls(pathRelease, 1)
					if last := s.calls[len(s.calls)-1]; last.path != pathClose {
						t.Errorf("the last call was %s, want the session's close", last.path)
					}
				})
			})
		}
	}
}

func TestDrainCancelsWhatTakesTooLong(t *testing.T) {
	play(t, worker.Config{DrainTimeout: 5 * time.Second}, func(s *scenario) {
		var cause error
		task := s.add("slow", "null")
		s.Handle("slow", untilDone(&cause))
		s.begin()
		from := time.Now()
		s.endCleanly()
		if took := time.Since(from); took != 5*time.Second || cause != worker.ErrShutdown {
			t.Errorf("after %v with cause %v, want 5 s and ErrShutdown", took, cause)
		}
		s.wantOutcome(task, "failed shutdown: context canceled retry=true")
	})
}

func TestDrainGivesUp(t *testing.T) {
	play(t, worker.Config{DrainTimeout: time.Second}, func(s *scenario) {
		stubborn := make(chan struct{})
		s.add("stubborn", "null")
		s.add("quick", "null")
		s.Handle("stubborn", func(context.Context, *worker.Task) (any, error) { <-stubborn; return nil, nil })
		s.Handle("quick", echo)
		s.script(pathFinish, slices.Repeat([]fault{{status: 503, code: "unavailable"}}, 100)...)
		s.begin()
		err := s.end()
		var left *worker.DrainError
		if !errors.As(err, &left) || *left != (worker.DrainError{Handlers: 1, Results: 1}) {
			t.Errorf("Run = %v, want a DrainError of one handler and one result", err)
		}
		s.wantCalls(pathClose, 1)
		close(stubborn)
		synctest.Wait()
	})
}

func TestRunWithoutAServer(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		s.Handle("echo", echo)
		s.script(pathOpen, slices.Repeat([]fault{{skip: true}}, 1000)...)
		s.begin()
		s.pass(10 * time.Minute)
		if n := len(s.callsOf(pathOpen)); n < 100 || n > 300 {
			t.Errorf("%d tries in 10 minutes, want about one each 5 s", n)
		}
		s.endCleanly()
	})
}

func TestClaimsBackOffWhileTheServerIsAway(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		task := s.add("echo", "1")
		s.Handle("echo", echo)
		// Claims fail although releases are answered: nothing else slows the loop down.
		s.script(pathClaim, slices.Repeat([]fault{{status: 503, code: "unavailable"}}, 20)...)
		s.script(pathClaim, fault{status: 429, code: "rate_limited", after: "30"})
		s.begin()
		s.pass(5 * time.Minute)
		s.wantOutcome(task, "succeeded 1")
		calls := s.callsOf(pathClaim)
		if took := calls[20].at.Sub(calls[0].at); took < 40*time.Second {
			t.Errorf("21 claims within %v", took)
		}
		if waited := calls[21].at.Sub(calls[20].at); waited < 30*time.Second {
			t.Errorf("claimed again after %v, asked for 30 s", waited)
		}
		s.endCleanly()
	})
}

func TestRefusalsThatEndRun(t *testing.T) {
	for _, tt := range []struct {
		path string
		code string
	}{{pathOpen, "not_found"}, {pathOpen, "forbidden"}, {pathClaim, "not_found"}, {pathClaim, "unauthenticated"}} {
		play(t, worker.Config{}, func(s *scenario) {
			s.Handle("echo", echo)
			s.script(tt.path, fault{status: 404, code: tt.code})
			s.begin()
			if err := <-s.ended; !client.HasCode(err, tt.code) {
				t.Errorf("%s refused with %s: Run = %v", tt.path, tt.code, err)
			}
		})
	}
	play(t, worker.Config{}, func(s *scenario) {
		s.Handle("echo", echo)
		s.script(pathOpen, fault{status: 409, code: "session_superseded"})
		s.begin()
		if err := <-s.ended; err != worker.ErrSuperseded {
			t.Errorf("Run = %v, want ErrSuperseded", err)
		}
	})
}

func TestClaimsPauseWhileResultsPileUp(t *testing.T) {
	play(t, worker.Config{Concurrency: 2}, func(s *scenario) {
		s.Handle("echo", echo)
		s.script(pathFinish, slices.Repeat([]fault{{status: 503, code: "unavailable"}}, 5)...)
		for range 20 {
			s.add("echo", "1")
		}
		s.begin()
		if got := len(s.live("running")); got > 4 {
			t.Errorf("%d results gathered while none was taken, want at most 4", got)
		}
		s.pass(time.Minute)
		if got := len(s.live("ended")); got != 20 {
			t.Errorf("%d tasks ended, want 20", got)
		}
		s.endCleanly()
	})
}

func TestRunAgainIsANewIncarnation(t *testing.T) {
	play(t, worker.Config{Name: "w"}, func(s *scenario) {
		s.Handle("echo", echo)
		s.begin()
		if err := s.Run(s.ctx); err == nil {
			t.Error("two Runs at once were let through")
		}
		s.endCleanly()
		s.ctx, s.drain = context.WithCancel(s.t.Context())
		s.begin()
		if epoch := s.sessions[s.current["w"]].epoch; epoch != 2 {
			t.Errorf("epoch = %d, want 2", epoch)
		}
		s.endCleanly()
	})
}

func TestBadConfig(t *testing.T) {
	f := newFake(t)
	w := f.worker(worker.Config{Queues: []string{}})
	w.Handle("echo", echo)
	if err := w.Run(t.Context()); err == nil {
		t.Error("Run without queues was let through")
	}
	if err := f.worker(worker.Config{}).Run(t.Context()); err == nil {
		t.Error("Run without handlers was let through")
	}
	for name, bad := range map[string]func(){
		"twice": func() { w.Handle("echo", echo) },
		"type":  func() { w.Handle("no spaces", echo) },
		"nil":   func() { w.Handle("nil", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Handle did not panic", name)
				}
			}()
			bad()
		}()
	}
}
