package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

func (v *verification) tasks(ctx context.Context, namespaceID orbit.ID) error {
	return sweep(ctx, v, table[pulsedb.VerifyTasksRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.VerifyTasksRow, error) {
			return v.q.VerifyTasks(ctx, pulsedb.VerifyTasksParams{NamespaceID: namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.VerifyTasksRow) place { return place{namespaceID: namespaceID, id: r.ID} },
		judge: judgeTask,
	})
}

func judgeTask(t pulsedb.VerifyTasksRow) []defect {
	defects := judgePlace(t)
	if due := t.State == orbit.TaskOpen && t.DeadlineAt != nil; due != t.DeadlineID.Valid {
		defects = append(defects, broken("pulse.task.deadline", "the task is %s, has a deadline: %t, and a deadline row: %t", t.State, t.DeadlineAt != nil, t.DeadlineID.Valid))
	}
	if t.State == orbit.TaskSucceeded {
		defects = append(defects, judgeResult(t)...)
	}
	if ended := t.State != orbit.TaskOpen && t.State != orbit.TaskReview; t.OriginKind == originSchedule && !ended && !t.LiveScheduleID.Valid {
		defects = append(defects, broken("pulse.task.occurrence", "the task is %s, but its schedule does not count it as running", t.State))
	}
	events := history{count: t.EventCount, first: t.EventFirst, last: t.EventLast, trimmedBelow: t.TrimmedBelow, oldest: t.OldestEventAt}
	return append(defects, events.judge("pulse.task.events", t.Revision, t.CreatedAt, t.UpdatedAt)...)
}

// judgePlace: an open task is in exactly one place, any other in none, and at most one attempt of it is live.
func judgePlace(t pulsedb.VerifyTasksRow) []defect {
	next := t.NextState == orbit.AttemptOffered || t.NextState == orbit.AttemptRunning
	places, live := count(t.ReadyID.Valid)+count(t.ScheduledID.Valid)+count(t.BlockedID.Valid)+count(next), count(next)
	want := count(t.State == orbit.TaskOpen)
	var defects []defect
	if places != want {
		defects = append(defects, broken("pulse.task.one_place", "the task is %s and is ready: %t, scheduled: %t, blocked: %t, with a live attempt: %t",
			t.State, t.ReadyID.Valid, t.ScheduledID.Valid, t.BlockedID.Valid, next))
	}
	if t.LiveAttempts != live {
		defects = append(defects, broken("pulse.task.live_attempts", "the task has %d live attempts; %d should be, of generation %d", t.LiveAttempts, live, t.Generation+1))
	}
	if t.NextState != "" && !next {
		defects = append(defects, broken("pulse.task.generation", "an attempt of generation %d has ended (%s), but the task counts %d ended generations", t.Generation+1, t.NextState, t.Generation))
	}
	return defects
}

// judgeResult: what succeeded has the receipt of its last generation, or evidence of its own that a person accepted.
func judgeResult(t pulsedb.VerifyTasksRow) []defect {
	if t.ResultEvidenceID.Valid {
		if t.EvidenceOutcome != orbit.OutcomeSucceeded || t.EvidenceTaskID.ID != t.ID {
			return []defect{broken("pulse.task.result", "the accepted evidence %s has outcome %q and belongs to task %s", t.ResultEvidenceID.ID, t.EvidenceOutcome, t.EvidenceTaskID.ID)}
		}
		return nil
	}
	if t.ReceiptOutcome != orbit.OutcomeSucceeded {
		return []defect{broken("pulse.task.result", "the task succeeded, but the receipt of generation %d has outcome %q", t.Generation, t.ReceiptOutcome)}
	}
	return nil
}

func (v *verification) attempts(ctx context.Context, namespaceID orbit.ID) error {
	return sweep(ctx, v, table[pulsedb.VerifyAttemptsRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.VerifyAttemptsRow, error) {
			return v.q.VerifyAttempts(ctx, pulsedb.VerifyAttemptsParams{NamespaceID: namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.VerifyAttemptsRow) place { return place{namespaceID: namespaceID, id: r.ID} },
		judge: judgeAttempt,
	})
}

func judgeAttempt(a pulsedb.VerifyAttemptsRow) []defect {
	live := a.State == orbit.AttemptOffered || a.State == orbit.AttemptRunning
	var defects []defect
	if (a.LeaseUntil != nil) != live || a.LiveInstanceID.Valid != live || a.LiveQueueID.Valid != live || (a.EndedAt == nil) != live {
		defects = append(defects, broken("pulse.attempt.lease", "the attempt is %s, and has a lease: %t, a live instance: %t, a live queue: %t, an end: %t",
			a.State, a.LeaseUntil != nil, a.LiveInstanceID.Valid, a.LiveQueueID.Valid, a.EndedAt != nil))
	}
	defects = append(defects, judgeGeneration(a, live)...)
	defects = append(defects, judgeReceipt(a)...)
	if a.SessionEpoch == nil || a.Epoch > *a.SessionEpoch {
		defects = append(defects, broken("pulse.attempt.epoch", "the attempt was offered in epoch %d, its session is at %s", a.Epoch, shown(a.SessionEpoch)))
	}
	if live && !a.FoundInstance.Valid {
		defects = append(defects, broken("pulse.attempt.instance", "the attempt is %s on an instance that does not exist", a.State))
	}
	events := history{count: a.EventCount, first: a.EventFirst, last: a.EventLast, trimmedBelow: a.TrimmedBelow, oldest: a.OldestEventAt}
	updated := latest(a.OfferedAt, a.StartedAt, a.CancelRequestedAt, a.EndedAt)
	return append(defects, events.judge("pulse.attempt.events", a.Version, a.OfferedAt, updated)...)
}

// judgeGeneration: a live attempt is the next generation of an open task, an ended one is among those the task counts.
func judgeGeneration(a pulsedb.VerifyAttemptsRow, live bool) []defect {
	switch {
	case a.TaskGeneration == nil:
		return []defect{broken("pulse.attempt.task", "the attempt's task %s does not exist", a.TaskID)}
	case live && (a.TaskState != orbit.TaskOpen || a.Generation != *a.TaskGeneration+1):
		return []defect{broken("pulse.attempt.generation", "the attempt is %s with generation %d, but task %s is %s and counts %d ended generations", a.State, a.Generation, a.TaskID, a.TaskState, *a.TaskGeneration)}
	case !live && a.Generation > *a.TaskGeneration:
		return []defect{broken("pulse.attempt.generation", "the attempt has ended (%s) with generation %d, but task %s counts %d ended generations", a.State, a.Generation, a.TaskID, *a.TaskGeneration)}
	}
	return nil
}

// judgeReceipt: a receipt says how the attempt ended, and an attempt succeeds by a receipt only.
func judgeReceipt(a pulsedb.VerifyAttemptsRow) []defect {
	if a.ReceiptOutcome == "" && a.State != orbit.AttemptSucceeded || string(a.ReceiptOutcome) == string(a.State) {
		return nil
	}
	return []defect{broken("pulse.attempt.receipt", "the attempt is %s, its receipt says %q", a.State, a.ReceiptOutcome)}
}
