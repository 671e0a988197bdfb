package pulse

import (
	"encoding/binary"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

// The deciders are pure: from the rows as they are held, and the transaction's clock, they say what becomes of an attempt
// and its task. settle carries it out.

// textDeadlineExceeded is codeDeadlineExceeded for people.
const textDeadlineExceeded = "the deadline passed before the task ended"

// fate is what becomes of a task whose live attempt ends.
type fate uint8

const (
	fateSucceed fate = iota // open → succeeded
	fateFail                // open → failed
	fateCancel              // open → cancelled
	fateRequeue             // open → open: ready, scheduled or blocked
	fatePark                // open → review
)

// ending is the verdict on one live attempt.
type ending struct {
	actor   orbit.NullID // who caused it; null is the system
	attempt pulsedb.PulseAttempt
	task    pulsedb.ListTaskHeadsRow
	queue   pulsedb.PulseQueue

	state         orbit.AttemptState // what the attempt becomes
	code, message string             // why, of attempt and task

	fate    fate
	used    bool // the attempt counts against the budget
	idle    bool // the offer counts as one more unstarted in a row
	delay   time.Duration
	blocker string // with fateRequeue: the gate that is waited for; empty means none
}

// The codes of endings that are Orbit's own.
const (
	codeOfferExpired     = "offer_expired"
	codeLeaseLost        = "lease_lost"
	codeSuperseded       = "session_superseded"
	codeDeadlineExceeded = "deadline_exceeded"
	codeCancelled        = "cancelled"
	codeGateClosed       = "gate_closed"
	codeReleased         = "released"
	codeShutdown         = "shutdown"
	codeAbandoned        = "claim_abandoned"
	codeFailed           = "failed" // the worker named no code
)

// decideUnstarted: an offer that was never started uses no attempt. From the second in a row on it backs off, so that a worker
// that dies before starting cannot spin; a shutdown's release neither counts nor waits. What its claim had started may have been asked to stop.
func decideUnstarted(e ending, state orbit.AttemptState, code string, counts bool) ending {
	e.state, e.code, e.fate, e.idle = state, code, fateRequeue, counts
	if e.attempt.CancelRequestedAt != nil {
		e.fate = fateCancel
	}
	if counts && e.task.IdleOffers > 0 {
		e.delay = backoff(e.queue, int(e.task.IdleOffers), e.attempt.ID)
	}
	return e
}

// decideRefused: a gate closed between offer and start. The task waits for the gate; no budget is used and nothing is counted.
func decideRefused(e ending, gate string) ending {
	e.state, e.code, e.fate, e.blocker = orbit.AttemptReleased, codeGateClosed, fateRequeue, gate
	return e
}

// decideLost: a started attempt lost its lease or its epoch, and nobody knows what it did.
func decideLost(e ending, code string) ending {
	e.state, e.code, e.used = orbit.AttemptLost, code, true
	e.message = "the worker was lost while it ran the attempt"
	switch {
	case e.queue.UnknownOutcome == orbit.UnknownReview:
		e.fate = fatePark
	case e.attempt.CancelRequestedAt != nil:
		e.fate = fateCancel
	case e.task.AttemptsUsed+1 >= e.task.MaxAttempts:
		e.fate = fateFail
	default:
		e.fate, e.delay = fateRequeue, backoff(e.queue, int(e.task.AttemptsUsed)+1, e.attempt.ID)
	}
	return e
}

// submission is what a worker says of an attempt.
type submission struct {
	outcome       orbit.Outcome
	result        *string
	code, message string
	retry         bool
	retryAfter    time.Duration
}

// decideFinished: success counts even when a cancellation was asked for; what would be retried is cancelled then.
func decideFinished(e ending, s submission) ending {
	e.used, e.code, e.message = true, s.code, s.message
	asked := e.attempt.CancelRequestedAt != nil
	switch {
	case s.outcome == orbit.OutcomeSucceeded:
		e.state, e.fate = orbit.AttemptSucceeded, fateSucceed
	case s.outcome == orbit.OutcomeCancelled:
		e.state, e.fate = orbit.AttemptCancelled, fateCancel
	case s.retry && asked:
		e.state, e.fate = orbit.AttemptFailed, fateCancel
	case !s.retry || e.task.AttemptsUsed+1 >= e.task.MaxAttempts:
		e.state, e.fate = orbit.AttemptFailed, fateFail
	default:
		e.state, e.fate = orbit.AttemptFailed, fateRequeue
		e.delay = backoff(e.queue, int(e.task.AttemptsUsed)+1, e.attempt.ID)
		if s.retryAfter > 0 {
			e.delay = s.retryAfter
		}
	}
	return e
}

// decideOver: the task ends by a deadline or a cancellation, and its live attempt with it.
func decideOver(e ending, f fate, code, message string) ending {
	e.fate, e.code, e.message = f, code, message
	e.used = e.attempt.State == orbit.AttemptRunning
	e.state = orbit.AttemptFailed
	if f == fateCancel {
		e.state = orbit.AttemptCancelled
	}
	return e
}

// backoff doubles from the queue's initial delay up to its bound; a fifth of it is taken off at random, where the random
// number is the attempt's id, so that the same rows give the same decision.
func backoff(q pulsedb.PulseQueue, failures int, seed orbit.ID) time.Duration {
	bound := time.Duration(q.BackoffMaxMs) * time.Millisecond
	d := time.Duration(q.BackoffInitialMs) * time.Millisecond
	for i := 1; i < failures && d < bound; i++ {
		d *= 2
	}
	d = min(d, bound)
	return d - time.Duration(binary.BigEndian.Uint32(seed[12:])%1000)*d/5000
}
