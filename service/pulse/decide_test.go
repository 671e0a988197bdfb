package pulse

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

func drawEnding(t *rapid.T) ending {
	budget := rapid.Uint32Range(1, 100).Draw(t, "budget")
	e := ending{
		attempt: pulsedb.PulseAttempt{ID: orbit.NewID(time.UnixMilli(rapid.Int64Range(0, 1<<40).Draw(t, "ms"))), State: orbit.AttemptRunning},
		task: pulsedb.ListTaskHeadsRow{MaxAttempts: budget, AttemptsUsed: rapid.Uint32Range(0, budget-1).Draw(t, "used"),
			IdleOffers: rapid.Uint32Range(0, 50).Draw(t, "idle"), State: orbit.TaskOpen},
		queue: pulsedb.PulseQueue{BackoffInitialMs: rapid.Uint32Range(0, 10_000).Draw(t, "initial"), RetentionMs: 1,
			UnknownOutcome: rapid.SampledFrom([]orbit.UnknownOutcome{orbit.UnknownReview, orbit.UnknownRetry}).Draw(t, "policy")},
	}
	e.queue.BackoffMaxMs = rapid.Uint32Range(e.queue.BackoffInitialMs, 1_000_000).Draw(t, "max")
	if rapid.Bool().Draw(t, "cancel asked") {
		now := time.Unix(0, 0)
		e.attempt.CancelRequestedAt = &now
	}
	return e
}

func TestNoDecisionGoesPastTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEnding(t)
		said := submission{outcome: rapid.SampledFrom([]orbit.Outcome{orbit.OutcomeSucceeded, orbit.OutcomeFailed, orbit.OutcomeCancelled}).Draw(t, "outcome"),
			retry: rapid.Bool().Draw(t, "retry")}
		for _, got := range []ending{decideFinished(e, said), decideLost(e, codeLeaseLost)} {
			if !got.used {
				t.Fatal("a started attempt that ended must count")
			}
			if got.fate == fateRequeue && got.task.AttemptsUsed+1 >= got.task.MaxAttempts {
				t.Fatalf("requeued with %d of %d attempts used", got.task.AttemptsUsed+1, got.task.MaxAttempts)
			}
		}
	})
}

func TestUnknownOutcomeIsNeverRetriedUnderReview(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEnding(t)
		e.queue.UnknownOutcome = orbit.UnknownReview
		if got := decideLost(e, codeLeaseLost); got.fate != fatePark || got.state != orbit.AttemptLost {
			t.Fatalf("a lost attempt under review gave fate %d, state %s", got.fate, got.state)
		}
	})
}

func TestSuccessCountsWhateverWasAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEnding(t)
		if got := decideFinished(e, submission{outcome: orbit.OutcomeSucceeded}); got.fate != fateSucceed {
			t.Fatalf("a success gave fate %d", got.fate)
		}
		failed := decideFinished(e, submission{outcome: orbit.OutcomeFailed, retry: true})
		if asked := e.attempt.CancelRequestedAt != nil; asked != (failed.fate == fateCancel) {
			t.Fatalf("cancellation asked: %v, fate of a retryable failure: %d", asked, failed.fate)
		}
		if final := decideFinished(e, submission{outcome: orbit.OutcomeFailed}); final.fate != fateFail {
			t.Fatalf("a final failure gave fate %d", final.fate)
		}
	})
}

func TestUnstartedOffersBackOffFromTheSecondOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEnding(t)
		e.queue.BackoffInitialMs = max(e.queue.BackoffInitialMs, 1)
		e.queue.BackoffMaxMs = max(e.queue.BackoffMaxMs, 1)
		counted := decideUnstarted(e, orbit.AttemptExpired, codeOfferExpired, true)
		if counted.used || !counted.idle {
			t.Fatal("an unstarted offer uses no attempt and is counted")
		}
		if asked := e.attempt.CancelRequestedAt != nil; counted.fate != map[bool]fate{false: fateRequeue, true: fateCancel}[asked] {
			t.Fatalf("cancellation asked: %v, fate of an unstarted offer: %d", asked, counted.fate)
		}
		if (counted.delay > 0) != (e.task.IdleOffers > 0) {
			t.Fatalf("after %d idle offers the delay is %s", e.task.IdleOffers, counted.delay)
		}
		if shutdown := decideUnstarted(e, orbit.AttemptReleased, codeShutdown, false); shutdown.idle || shutdown.delay != 0 {
			t.Fatal("a shutdown's release neither counts nor waits")
		}
	})
}

func TestBackoffIsBoundedAndRepeatable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEnding(t)
		failures := rapid.IntRange(1, 1000).Draw(t, "failures")
		got := backoff(e.queue, failures, e.attempt.ID)
		full := time.Duration(e.queue.BackoffMaxMs) * time.Millisecond
		if failures < 20 {
			full = min(full, time.Duration(e.queue.BackoffInitialMs)*time.Millisecond<<(failures-1))
		}
		if e.queue.BackoffInitialMs == 0 {
			full = 0
		}
		if got > full || got < full-full/5 {
			t.Fatalf("backoff %s is not within a fifth below %s", got, full)
		}
		if again := backoff(e.queue, failures, e.attempt.ID); again != got {
			t.Fatalf("the same rows gave %s and %s", got, again)
		}
	})
}
