package worker

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// Task is one attempt of a task, as its handler sees it.
type Task struct {
	ID             string
	AttemptID      string
	QueueID        string
	Type           string
	Payload        json.RawMessage // as it was sent, digit by digit; "null" if there was none
	PayloadVersion int64           // the submitter's own
	Priority       int             // 1 goes first, 9 last
	Attempt        int             // which of the task's attempts this is, from 1; a manual retry counts anew
	Generation     int64           // the same with offers that were never started; never counted anew
	RunAt          time.Time       // from when on it could run
	DeadlineAt     time.Time       // when the server fails it if it has not ended; zero if never

	run *execution // nil in a Task made by hand, as in a test of a handler
}

// EffectKey is the same for every attempt of the task and differs between tasks. Give it, as idempotency key, to whatever the
// handler changes in the outside world: an attempt whose outcome got lost may be followed by another.
func (t *Task) EffectKey() string { return t.ID }

// Decode is [json.Unmarshal] of the payload.
func (t *Task) Decode(into any) error { return json.Unmarshal(t.Payload, into) }

// Progress tells how far the handler is: any JSON of at most 64 KiB. It returns at once; the latest value goes with the next
// heartbeat, and the ones before it are dropped.
func (t *Task) Progress(value any) error {
	raw, err := client.Encode(value)
	if err != nil {
		return err
	}
	if len(raw) > maxProgressBytes {
		return fmt.Errorf("worker: a progress of %d bytes, more than %d", len(raw), maxProgressBytes)
	}
	if t.run != nil {
		t.run.setProgress(raw)
	}
	return nil
}

// LeaseRemaining is how long the attempt is surely still this worker's: measured on this process's monotonic clock from when
// the lease began or was renewed, or a little before. At or below 0 it may already have been given to somebody else, or may still be
// renewed: only the server knows.
func (t *Task) LeaseRemaining() time.Duration {
	if t.run == nil {
		return 0
	}
	return t.run.leaseRemaining()
}

func taskOf(o *api.Offer, run *execution) *Task {
	return &Task{
		ID:             o.TaskID,
		AttemptID:      o.AttemptID,
		QueueID:        o.QueueID,
		Type:           o.Type,
		Payload:        json.RawMessage(o.Payload),
		PayloadVersion: o.PayloadVersion,
		Priority:       o.Priority,
		Attempt:        o.AttemptNumber,
		Generation:     o.Generation,
		RunAt:          o.RunAt,
		DeadlineAt:     o.DeadlineAt.Value,
		run:            run,
	}
}
