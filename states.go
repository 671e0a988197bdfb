package orbit

import (
	"database/sql/driver"
	"fmt"
	"slices"
)

// Each state is a closed set of strings. The zero value "" is SQL NULL both ways, so that an optional filter and the
// missing side of an outer join need no type of their own; it is never Valid. Scan takes what the column holds: that
// the column holds a member of the set is the schema's CHECK.

// TaskState is the state of a task as its row holds it. An open task is queued, offered or running: which one follows from
// where its working row or live attempt is, and is not stored with the task.
type TaskState string

// The values of TaskState.
const (
	TaskOpen      TaskState = "open"      // has exactly one working row or live attempt
	TaskReview    TaskState = "review"    // the outcome of an execution is unknown; a person decides
	TaskSucceeded TaskState = "succeeded" // final
	TaskFailed    TaskState = "failed"    // final, but for a manual retry
	TaskCancelled TaskState = "cancelled" // final
)

// Valid reports whether t is one of the values of TaskState.
func (t TaskState) Valid() bool {
	return oneOf(t, TaskOpen, TaskReview, TaskSucceeded, TaskFailed, TaskCancelled)
}

// Value gives the text, or NULL for "".
func (t TaskState) Value() (driver.Value, error) { return textValue(t) }

// Scan reads a text column; NULL becomes "".
func (t *TaskState) Scan(src any) error { return scanText(t, src) }

// AttemptState is the state of one execution generation of a task.
type AttemptState string

// The values of AttemptState.
const (
	AttemptOffered   AttemptState = "offered"   // given to a worker, not started; uses no budget
	AttemptRunning   AttemptState = "running"   // started, under a lease
	AttemptSucceeded AttemptState = "succeeded" // ended with its result accepted
	AttemptFailed    AttemptState = "failed"    // ended in failure
	AttemptCancelled AttemptState = "cancelled" // ended on request
	AttemptLost      AttemptState = "lost"      // its lease or its worker's epoch was lost after the start
	AttemptExpired   AttemptState = "expired"   // its offer ran out
	AttemptReleased  AttemptState = "released"  // given back, or refused, before the start
)

// Valid reports whether a is one of the values of AttemptState.
func (a AttemptState) Valid() bool {
	return oneOf(a, AttemptOffered, AttemptRunning, AttemptSucceeded, AttemptFailed, AttemptCancelled, AttemptLost, AttemptExpired, AttemptReleased)
}

// Value gives the text, or NULL for "".
func (a AttemptState) Value() (driver.Value, error) { return textValue(a) }

// Scan reads a text column; NULL becomes "".
func (a *AttemptState) Scan(src any) error { return scanText(a, src) }

// InstanceState is the state of one incarnation of a worker.
type InstanceState string

// The values of InstanceState.
const (
	InstanceLive       InstanceState = "live"       // its epoch is current and it reports
	InstanceSuperseded InstanceState = "superseded" // a later incarnation has the epoch
	InstanceClosed     InstanceState = "closed"     // ended by itself
	InstanceExpired    InstanceState = "expired"    // reports no more; lives again if it reports while its epoch is current
)

// Valid reports whether i is one of the values of InstanceState.
func (i InstanceState) Valid() bool {
	return oneOf(i, InstanceLive, InstanceSuperseded, InstanceClosed, InstanceExpired)
}

// Value gives the text, or NULL for "".
func (i InstanceState) Value() (driver.Value, error) { return textValue(i) }

// Scan reads a text column; NULL becomes "".
func (i *InstanceState) Scan(src any) error { return scanText(i, src) }

// GateState is the state of an execution gate.
type GateState string

// The values of GateState.
const (
	GateOpen   GateState = "open"   // starts pass
	GateClosed GateState = "closed" // no start passes
)

// Valid reports whether g is one of the values of GateState.
func (g GateState) Valid() bool { return oneOf(g, GateOpen, GateClosed) }

// Value gives the text, or NULL for "".
func (g GateState) Value() (driver.Value, error) { return textValue(g) }

// Scan reads a text column; NULL becomes "".
func (g *GateState) Scan(src any) error { return scanText(g, src) }

// GateScope is what an execution gate stands before.
type GateScope string

// The values of GateScope.
const (
	GateScopeNamespace GateScope = "namespace" // every start of the namespace: its root gate
	GateScopeQueue     GateScope = "queue"     // one queue
	GateScopeTaskType  GateScope = "task_type" // one type of task
	GateScopeInstance  GateScope = "instance"  // one incarnation of a worker
)

// Valid reports whether g is one of the values of GateScope.
func (g GateScope) Valid() bool {
	return oneOf(g, GateScopeNamespace, GateScopeQueue, GateScopeTaskType, GateScopeInstance)
}

// Value gives the text, or NULL for "".
func (g GateScope) Value() (driver.Value, error) { return textValue(g) }

// Scan reads a text column; NULL becomes "".
func (g *GateScope) Scan(src any) error { return scanText(g, src) }

// CredentialState is the state of a credential. Expiry is a time and not a state.
type CredentialState string

// The values of CredentialState.
const (
	CredentialActive  CredentialState = "active"  // may be used until it expires
	CredentialRevoked CredentialState = "revoked" // final
)

// Valid reports whether c is one of the values of CredentialState.
func (c CredentialState) Valid() bool { return oneOf(c, CredentialActive, CredentialRevoked) }

// Value gives the text, or NULL for "".
func (c CredentialState) Value() (driver.Value, error) { return textValue(c) }

// Scan reads a text column; NULL becomes "".
func (c *CredentialState) Scan(src any) error { return scanText(c, src) }

// KeyState is the state of an idempotency key.
type KeyState string

// The values of KeyState.
const (
	KeyReserved KeyState = "reserved" // its first try is under way; never visible in a committed row
	KeyDone     KeyState = "done"     // its effect and its reply are stored
	KeyVoid     KeyState = "void"     // made unusable; nothing was done under it and nothing will be
	KeyExpired  KeyState = "expired"  // its time is over; nothing more will be done under it
)

// Valid reports whether k is one of the values of KeyState.
func (k KeyState) Valid() bool { return oneOf(k, KeyReserved, KeyDone, KeyVoid, KeyExpired) }

// Value gives the text, or NULL for "".
func (k KeyState) Value() (driver.Value, error) { return textValue(k) }

// Scan reads a text column; NULL becomes "".
func (k *KeyState) Scan(src any) error { return scanText(k, src) }

// Outcome is how a worker says an attempt ended.
type Outcome string

// The values of Outcome.
const (
	OutcomeSucceeded Outcome = "succeeded" // with a result
	OutcomeFailed    Outcome = "failed"    // with an error
	OutcomeCancelled Outcome = "cancelled" // it stopped because it was asked to
)

// Valid reports whether o is one of the values of Outcome.
func (o Outcome) Valid() bool { return oneOf(o, OutcomeSucceeded, OutcomeFailed, OutcomeCancelled) }

// Value gives the text, or NULL for "".
func (o Outcome) Value() (driver.Value, error) { return textValue(o) }

// Scan reads a text column; NULL becomes "".
func (o *Outcome) Scan(src any) error { return scanText(o, src) }

// UnknownOutcome is a queue's policy for attempts of which nobody can know how they ended.
type UnknownOutcome string

// The values of UnknownOutcome.
const (
	UnknownReview UnknownOutcome = "review" // park the task for a person
	UnknownRetry  UnknownOutcome = "retry"  // queue it again while it has budget
)

// Valid reports whether u is one of the values of UnknownOutcome.
func (u UnknownOutcome) Valid() bool { return oneOf(u, UnknownReview, UnknownRetry) }

// Value gives the text, or NULL for "".
func (u UnknownOutcome) Value() (driver.Value, error) { return textValue(u) }

// Scan reads a text column; NULL becomes "".
func (u *UnknownOutcome) Scan(src any) error { return scanText(u, src) }

// RunOverlap is what an instant of a schedule does while a task of an earlier one has not ended.
type RunOverlap string

// The values of RunOverlap.
const (
	RunSkip          RunOverlap = "skip"           // nothing: it is skipped
	RunBufferOne     RunOverlap = "buffer_one"     // waits for the end, if none waits yet
	RunBufferAll     RunOverlap = "buffer_all"     // waits for the end, and for those that wait already
	RunAllow         RunOverlap = "allow"          // makes its task beside it
	RunCancelRunning RunOverlap = "cancel_running" // cancels it, and waits for its end
)

// Valid reports whether r is one of the values of RunOverlap.
func (r RunOverlap) Valid() bool {
	return oneOf(r, RunSkip, RunBufferOne, RunBufferAll, RunAllow, RunCancelRunning)
}

// Value gives the text, or NULL for "".
func (r RunOverlap) Value() (driver.Value, error) { return textValue(r) }

// Scan reads a text column; NULL becomes "".
func (r *RunOverlap) Scan(src any) error { return scanText(r, src) }

// OccurrenceSource is what brought an occurrence of a schedule about.
type OccurrenceSource string

// The values of OccurrenceSource.
const (
	SourceTimetable OccurrenceSource = "timetable" // an instant came
	SourceTrigger   OccurrenceSource = "trigger"   // somebody asked for one now
	SourceBackfill  OccurrenceSource = "backfill"  // somebody asked for those of a time that is past
)

// Valid reports whether o is one of the values of OccurrenceSource.
func (o OccurrenceSource) Valid() bool {
	return oneOf(o, SourceTimetable, SourceTrigger, SourceBackfill)
}

// Value gives the text, or NULL for "".
func (o OccurrenceSource) Value() (driver.Value, error) { return textValue(o) }

// Scan reads a text column; NULL becomes "".
func (o *OccurrenceSource) Scan(src any) error { return scanText(o, src) }

// OccurrenceOutcome is what became of an instant of a schedule.
type OccurrenceOutcome string

// The values of OccurrenceOutcome.
const (
	OccurrenceFired    OccurrenceOutcome = "fired"    // has a task
	OccurrenceBuffered OccurrenceOutcome = "buffered" // waits for an earlier task to end
	OccurrenceSkipped  OccurrenceOutcome = "skipped"  // the policy for overlapping runs forbade it
	OccurrenceMissed   OccurrenceOutcome = "missed"   // too late, or one too many, to be made up for
)

// Valid reports whether o is one of the values of OccurrenceOutcome.
func (o OccurrenceOutcome) Valid() bool {
	return oneOf(o, OccurrenceFired, OccurrenceBuffered, OccurrenceSkipped, OccurrenceMissed)
}

// Value gives the text, or NULL for "".
func (o OccurrenceOutcome) Value() (driver.Value, error) { return textValue(o) }

// Scan reads a text column; NULL becomes "".
func (o *OccurrenceOutcome) Scan(src any) error { return scanText(o, src) }

func oneOf[S ~string](s S, set ...S) bool { return slices.Contains(set, s) }

func textValue[S ~string](s S) (driver.Value, error) {
	if s == "" {
		return nil, nil
	}
	return string(s), nil
}

func scanText[S ~string](dst *S, src any) error {
	switch v := src.(type) {
	case nil:
		*dst = ""
	case []byte:
		*dst = S(v)
	case string:
		*dst = S(v)
	default:
		return fmt.Errorf("%T: cannot scan %T", *dst, src)
	}
	return nil
}
