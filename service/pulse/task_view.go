package pulse

import (
	"context"
	"fmt"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// viewTask reads a task as it is shown, without its payload, in one statement; its Etag is the current tag. Inside a transaction
// it sees that transaction's own writes.
//
// Missing is answered for a task that does not exist and for one on a queue that was not granted.
func viewTask(ctx context.Context, q *pulsedb.Queries, c platform.Caller, id orbit.ID) (api.TaskSummary, error) {
	rows, err := q.ViewTasks(ctx, pulsedb.ViewTasksParams{NamespaceID: c.NamespaceID, Ids: []orbit.ID{id}})
	if err != nil {
		return api.TaskSummary{}, err
	}
	if len(rows) == 0 {
		return api.TaskSummary{}, fault.Missing("task")
	}
	if err := requireQueue(ctx, q, c, rows[0].QueueID, "task"); err != nil {
		return api.TaskSummary{}, err
	}
	return taskSummary(rows[0])
}

// taskTag is the strong tag of a task: revision, generation and the version of its live attempt. What a queued task waits for is not
// in it, so that a task that becomes due does not refuse an If-Match.
func taskTag(revision, generation int64, attemptVersion *int64) string {
	var v int64
	if attemptVersion != nil {
		v = *attemptVersion
	}
	return fmt.Sprintf(`"%d-%d-%d"`, revision, generation, v)
}

func taskSummary(r pulsedb.ViewTasksRow) (api.TaskSummary, error) {
	state, waiting, err := shownState(r)
	if err != nil {
		return api.TaskSummary{}, err
	}
	t := api.TaskSummary{
		ID: r.ID, QueueID: r.QueueID, Type: r.Type, State: state, Waiting: waiting,
		Priority: int(r.Priority), RunAt: r.RunAt, DeadlineAt: optTime(r.DeadlineAt),
		MaxAttempts: int(r.MaxAttempts), AttemptsUsed: int(r.AttemptsUsed), Generation: r.Generation,
		Origin: optOrigin(r.OriginKind, r.OriginID, r.OriginScheduleID, r.OriginFireAt), Failure: optFailure(r.FailureCode, r.FailureMessage), Etag: taskTag(r.Revision, r.Generation, r.AttemptVersion),
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, FinishedAt: optTime(r.FinishedAt), ExpiresAt: optTime(r.ExpiresAt),
	}
	if r.AttemptID.Valid {
		t.Generation++
		t.AttemptID.SetTo(r.AttemptID.ID)
		t.CancelRequested = r.CancelRequestedAt != nil
		t.UpdatedAt = latest(r.UpdatedAt, r.OfferedAt, r.StartedAt, r.CancelRequestedAt)
	}
	return t, nil
}

// shownState derives the state that is shown from where the task is. An open task is in exactly one place; anything else is a
// defect, and said instead of guessed at.
func shownState(r pulsedb.ViewTasksRow) (api.TaskState, api.OptWaiting, error) {
	if r.State != orbit.TaskOpen {
		return api.TaskState(r.State), api.OptWaiting{}, nil
	}
	places := 0
	var state api.TaskState
	var waiting api.OptWaiting
	if r.ReadyID.Valid {
		places++
		state = api.TaskStateQueued
		waiting = api.NewOptWaiting(api.Waiting{Kind: api.WaitingKindReady})
	}
	if r.ScheduledAt != nil {
		places++
		state = api.TaskStateQueued
		waiting = api.NewOptWaiting(api.Waiting{Kind: api.WaitingKindScheduled, Until: optTime(r.ScheduledAt)})
	}
	if r.BlockerKind != nil && r.BlockerID != nil {
		places++
		state = api.TaskStateQueued
		waiting = api.NewOptWaiting(api.Waiting{Kind: api.WaitingKindBlocked,
			Blocker: api.NewOptBlocker(api.Blocker{Kind: *r.BlockerKind, ID: api.NewOptString(*r.BlockerID)})})
	}
	if r.AttemptState == orbit.AttemptOffered || r.AttemptState == orbit.AttemptRunning {
		places++
		state = api.TaskState(r.AttemptState)
	}
	if places != 1 {
		return "", api.OptWaiting{}, fmt.Errorf("invariant broken: open task %s is in %d places, not one", r.ID, places)
	}
	return state, waiting, nil
}

// withoutPayload lets both forms of the view share one derivation.
func withoutPayload(r pulsedb.ViewTaskRow) pulsedb.ViewTasksRow {
	t := r.PulseTask
	return pulsedb.ViewTasksRow{
		ID: t.ID, QueueID: t.QueueID, Type: t.Type, PayloadVersion: t.PayloadVersion, Priority: t.Priority, RankUs: t.RankUs,
		RunAt: t.RunAt, DeadlineAt: t.DeadlineAt, MaxAttempts: t.MaxAttempts, AttemptsUsed: t.AttemptsUsed, Generation: t.Generation,
		OriginKind: t.OriginKind, OriginID: t.OriginID, OriginScheduleID: r.OriginScheduleID, OriginFireAt: r.OriginFireAt,
		State: t.State, FailureCode: t.FailureCode, FailureMessage: t.FailureMessage, Revision: t.Revision,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, FinishedAt: t.FinishedAt, ExpiresAt: t.ExpiresAt,
		ReadyID: r.ReadyID, ScheduledAt: r.ScheduledAt, BlockerKind: r.BlockerKind, BlockerID: r.BlockerID,
		AttemptID: r.AttemptID, AttemptState: r.AttemptState, AttemptVersion: r.AttemptVersion,
		CancelRequestedAt: r.CancelRequestedAt, OfferedAt: r.OfferedAt, StartedAt: r.StartedAt,
	}
}

func latest(t time.Time, others ...*time.Time) time.Time {
	for _, o := range others {
		if o != nil && o.After(t) {
			t = *o
		}
	}
	return t
}

func optTime(t *time.Time) api.OptDateTime {
	if t == nil {
		return api.OptDateTime{}
	}
	return api.NewOptDateTime(*t)
}

func optText(s string) api.OptString {
	if s == "" {
		return api.OptString{}
	}
	return api.NewOptString(s)
}

func optFailure(code, message string) api.OptFailure {
	if code == "" {
		return api.OptFailure{}
	}
	return api.NewOptFailure(api.Failure{Code: code, Message: message})
}
