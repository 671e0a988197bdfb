package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/sdk/go/worker"
)

// claims gives the claims that went with results, in order; nil for a call without one.
func (s *scenario) claims() (claims []*api.FinishClaim) {
	s.t.Helper()
	for _, c := range s.callsOf(pathFinish) {
		var req api.FinishAttemptsRequest
		if err := req.UnmarshalJSON([]byte(c.body)); err != nil {
			s.t.Fatal(err)
		}
		if c, ok := req.Claim.Get(); ok {
			claims = append(claims, &c)
		} else {
			claims = append(claims, nil)
		}
	}
	return claims
}

func TestABusyWorkerClaimsWithItsResults(t *testing.T) {
	for _, tt := range []struct {
		oneStep bool
		starts  int
	}{{false, 10}, {true, 0}} {
		t.Run(fmt.Sprint("one step: ", tt.oneStep), func(t *testing.T) {
			play(t, worker.Config{Concurrency: 1}, func(s *scenario) {
				s.oneStep = tt.oneStep
				var tasks []*fakeTask
				for i := range 10 {
					tasks = append(tasks, s.add("echo", fmt.Sprint(i)))
				}
				s.Handle("echo", echo)
				s.begin()
				for i, task := range tasks {
					s.wantOutcome(task, fmt.Sprint("succeeded ", i))
				}
				s.wantCalls(pathClaim, 2) // the first one, and the one that waits now
				s.wantCalls(pathStart, tt.starts)
				s.wantCalls(pathFinish, 10)
				for _, c := range s.claims() {
					if c == nil || c.Max != 1 || !c.Start.Value {
						t.Errorf("a result took the claim %+v along, want one for its slot", c)
					}
				}
				s.endCleanly()
			})
		})
	}
}

func TestResultsThatEndTogetherClaimTogether(t *testing.T) {
	play(t, worker.Config{Concurrency: 4}, func(s *scenario) {
		s.oneStep = true
		gate := make(chan struct{})
		for range 6 {
			s.add("gated", "null")
		}
		s.Handle("gated", func(context.Context, *worker.Task) (any, error) { <-gate; return nil, nil })
		s.begin()
		s.script(pathFinish, fault{wait: time.Second})
		gate <- struct{}{}
		synctest.Wait()
		for range 3 {
			gate <- struct{}{} // these wait for the call that is under way
		}
		synctest.Wait()
		close(gate)
		s.pass(2 * time.Second)
		got := s.claims()
		if len(got) < 2 || got[0].Max != 1 || got[1].Max != 3 || got[1].ClaimSeq != got[0].ClaimSeq+1 {
			b, _ := json.Marshal(got)
			t.Errorf("claims %s, want one for 1 slot and then one for 3", b)
		}
		if n := len(s.live("ended")); n != 6 {
			t.Errorf("%d tasks ended, want 6", n)
		}
		s.endCleanly()
	})
}

func TestResultsOfAnIdleWorkerClaimNothing(t *testing.T) {
	play(t, worker.Config{Concurrency: 2}, func(s *scenario) {
		s.Handle("echo", echo)
		s.begin()
		s.add("echo", "1")
		synctest.Wait()
		if diff := cmp.Diff([]*api.FinishClaim{nil}, s.claims()); diff != "" {
			t.Errorf("claims beside the one that waits (-want +got):\n%s", diff)
		}
		s.endCleanly()
		for _, c := range s.claims() {
			if c != nil {
				t.Error("a worker that stops claimed")
			}
		}
	})
}

func TestLostReplyOfResultsAndClaim(t *testing.T) {
	for _, f := range []fault{{skip: true}, {lose: true}, {status: 503, code: "outcome_unknown"}} {
		for _, oneStep := range []bool{false, true} {
			play(t, worker.Config{Concurrency: 1}, func(s *scenario) {
				s.oneStep = oneStep
				var ran atomic.Int32
				first, second := s.add("echo", "1"), s.add("echo", "2")
				s.Handle("echo", func(ctx context.Context, task *worker.Task) (any, error) {
					ran.Add(1)
					return echo(ctx, task)
				})
				s.script(pathFinish, f)
				s.script(pathRelease, fault{wait: 3 * time.Second})
				s.begin()
				s.pass(2 * time.Second)
				s.wantOutcome(first, "succeeded 1") // it does not wait for the claim to be given back
				s.wantOutcome(second, "none")
				s.pass(5 * time.Second)
				s.wantOutcome(second, "succeeded 2")
				if ran.Load() != 2 || first.attempts != 1 || second.attempts != 1 {
					t.Errorf("%d runs with %d and %d attempts, want one each", ran.Load(), first.attempts, second.attempts)
				}
				given, got := s.callsOf(pathRelease), s.claims()
				if len(given) != 1 || got[0] == nil || got[1] != nil {
					t.Fatalf("released %v; claims %v, want one that is released, and a repeat without", given, got)
				}
				var released struct {
					Seq int64 `json:"claim_seq"`
				}
				if err := json.Unmarshal([]byte(given[0].body), &released); err != nil || released.Seq != got[0].ClaimSeq {
					t.Errorf("released %s, want claim_seq %d", given[0].body, got[0].ClaimSeq)
				}
				s.endCleanly()
			})
		}
	}
}

func TestAClaimRefusedBesideResultsHarmsThemNot(t *testing.T) {
	play(t, worker.Config{Concurrency: 1}, func(s *scenario) {
		first, second := s.add("echo", "1"), s.add("echo", "2")
		s.Handle("echo", echo)
		s.script(pathFinish, fault{before: func() { s.sessions[s.current[s.name()]].abandoned = 2 }}) // its own number
		s.begin()
		s.pass(time.Second)
		s.wantOutcome(first, "succeeded 1")
		s.wantOutcome(second, "succeeded 2")
		s.wantCalls(pathFinish, 2)
		s.wantCalls(pathRelease, 0)
		s.endCleanly()
	})
}

func TestACallRefusedWithItsClaimIsTakenApart(t *testing.T) {
	play(t, worker.Config{Concurrency: 1}, func(s *scenario) {
		first, second := s.add("echo", "1"), s.add("echo", "2")
		s.Handle("echo", echo)
		s.script(pathFinish, fault{status: 413, code: client.CodePayloadTooLarge})
		s.begin()
		s.pass(time.Second)
		if got := s.outcome(first); len(got) < 22 || got[:22] != "failed result_refused:" {
			t.Errorf("outcome = %q", got)
		}
		s.wantOutcome(second, "succeeded 2")
		s.wantCalls(pathRelease, 0) // a refused call has claimed nothing
		s.endCleanly()
	})
}

func TestATaskThatCameStartedWithoutAHandlerIsGivenBack(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		s.oneStep = true
		strange, task := s.add("strange", "null"), s.add("echo", "1")
		s.Handle("echo", echo)
		s.begin()
		s.wantOutcome(task, "succeeded 1")
		if a := s.live("released"); len(a) != 1 || a[0].reason != "no_handler" || strange.attempts != 0 {
			t.Errorf("released %+v, want one with reason no_handler and no attempt used", a)
		}
		s.endCleanly()
	})
}

func TestTheLeaseOfATaskThatCameStarted(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		s.oneStep, s.leaseMs = true, 6000
		release := make(chan struct{})
		var left time.Duration
		s.Handle("work", func(_ context.Context, task *worker.Task) (any, error) {
			left = task.LeaseRemaining()
			<-release
			return nil, nil
		})
		s.script(pathClaim, fault{back: 2 * time.Second})
		s.begin()
		s.pass(19 * time.Second)
		s.add("work", "null")
		s.pass(2 * time.Second)
		if left != 4*time.Second {
			t.Errorf("%v of the lease left, want 4 s: it began 2 s before the reply came, not when the poll did", left)
		}
		before := len(s.callsOf(pathHeartbeat))
		s.pass(2 * time.Second)
		if got := len(s.callsOf(pathHeartbeat)) - before; got != 1 || s.live("running")[0].beats != 1 {
			t.Errorf("%d heartbeats in a third of the lease, want one", got)
		}
		close(release)
		s.endCleanly()
	})
}
