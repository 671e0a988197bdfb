package schema

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// StepState is what the database says of a step.
type StepState string

const (
	StepPending StepState = "pending" // not begun
	StepApplied StepState = "applied" // ended, with this program's text
	StepDirty   StepState = "dirty"   // begun and not ended: being run now, or its migrator died
	StepChanged StepState = "changed" // applied with another text
	StepUnknown StepState = "unknown" // applied by a newer program than this one
)

// StepStatus is one step of the migrations as the database has it.
type StepStatus struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	State     StepState  `json:"state"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Program   string     `json:"program,omitempty"`
}

// Status tells of every step, this program's and any that a newer one applied, by version. It only
// reads; on an empty database every step is pending.
func Status(ctx context.Context, db Querier) ([]StepStatus, error) {
	steps, err := loadSteps()
	if err != nil {
		return nil, err
	}
	runs, err := runsIfAny(ctx, db)
	if err != nil {
		return nil, err
	}
	all := make([]StepStatus, 0, len(steps))
	for _, s := range steps {
		r, begun := runs[s.version]
		delete(runs, s.version)
		state := StepPending
		switch {
		case !begun:
		case s.changed(r):
			state = StepChanged
		case r.endedAt == nil:
			state = StepDirty
		default:
			state = StepApplied
		}
		all = append(all, statusOf(s.version, s.name, state, r))
	}
	for version := int64(len(steps)) + 1; len(runs) > 0; version++ {
		if r, ok := runs[version]; ok {
			all = append(all, statusOf(version, "", StepUnknown, r))
			delete(runs, version)
		}
	}
	return all, nil
}

func statusOf(version int64, name string, state StepState, r run) StepStatus {
	status := StepStatus{Version: version, Name: name, State: state, EndedAt: r.endedAt, Program: r.program}
	if !r.startedAt.IsZero() {
		status.StartedAt = &r.startedAt
	}
	return status
}

func runsIfAny(ctx context.Context, db Querier) (map[int64]run, error) {
	present, err := tableExists(ctx, db, runsTable)
	if err != nil || !present {
		return nil, explain(err)
	}
	return readRuns(ctx, db)
}

// Errors of Check, to be compared with errors.Is.
var (
	ErrNotMigrated = errors.New("the database has no Orbit tables: run `orbit migrate up`")
	ErrBehind      = errors.New("the database is older than this program: run `orbit migrate up`")
	ErrDirty       = errors.New("a migration was begun and did not end: run `orbit migrate up`, which compares and goes on or says what to do")
	ErrChanged     = errors.New("the database was migrated by a program with other migrations")
)

// Check says whether this program can work on the database: every step it knows was applied, with
// its text. A newer database passes, for each migration leaves the program before it working. It
// only reads and never migrates.
func Check(ctx context.Context, db Querier) error {
	all, err := Status(ctx, db)
	if err != nil {
		return err
	}
	pending := 0
	for _, s := range all {
		switch s.State {
		case StepPending:
			pending++
		case StepDirty:
			return fmt.Errorf("step %05d_%s: %w", s.Version, s.Name, ErrDirty)
		case StepChanged:
			return fmt.Errorf("step %05d_%s: %w", s.Version, s.Name, ErrChanged)
		}
	}
	switch {
	case pending == 0:
		return nil
	case pending == int(Target()):
		return ErrNotMigrated
	default:
		return fmt.Errorf("%d of %d steps are missing: %w", pending, Target(), ErrBehind)
	}
}
