package pulse

import (
	"context"
	"fmt"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/finding"
	"github.com/orbit-run/orbit/service/internal/timetable"
)

const (
	// verifyStretch is the number of rows of one statement of the verification.
	verifyStretch = 1000
	// maxFindings is where the verification stops: more would say nothing new.
	maxFindings = 1000
)

// Verify checks the invariants of the module, over all namespaces, while the service works. It reads in short statements, each of them one
// snapshot of the rows that must agree; a row that breaks an invariant is read again by itself before it is reported. At most
// 1,000 findings are answered; with that many, not everything was read.
func (s *Service) Verify(ctx context.Context) ([]finding.Finding, error) {
	v := &verification{q: s.reads(), tableOf: s.tableOf}
	for _, check := range []func(context.Context) error{v.rootGates, v.namespaces, v.ready, v.scheduled, v.blocked, v.deadlines} {
		if err := check(ctx); err != nil {
			return v.findings, err
		}
	}
	return v.findings, nil
}

type verification struct {
	q        *pulsedb.Queries
	tableOf  func(pulsedb.PulseScheduleVersion) (*timetable.Timetable, error)
	findings []finding.Finding
}

func (v *verification) full() bool { return len(v.findings) >= maxFindings }

// defect is a broken invariant of a row that is being judged.
type defect struct{ invariant, detail string }

func broken(invariant, format string, args ...any) defect {
	return defect{invariant, fmt.Sprintf(format, args...)}
}

// place is a position in the order that a table is read in; each table uses the parts its key has.
type place struct {
	at          int64 // a time in microseconds since 1970, or a rank
	namespaceID orbit.ID
	id          orbit.ID
}

func (p place) time() time.Time { return time.UnixMicro(p.at).UTC() }

// previous is the place just before p, after which p comes next.
func (p place) previous() place {
	for i := len(p.id) - 1; i >= 0; i-- {
		p.id[i]--
		if p.id[i] != 0xff {
			break
		}
	}
	return p
}

// table is how one table is read and judged.
type table[R any] struct {
	read  func(ctx context.Context, after place, limit int32) ([]R, error)
	place func(R) place
	judge func(R) []defect
}

// sweep reads a table from its beginning and reports what is broken both when it is met and when it is read again.
func sweep[R any](ctx context.Context, v *verification, t table[R]) error {
	after := place{}
	for !v.full() {
		rows, err := t.read(ctx, after, verifyStretch)
		if err != nil {
			return err
		}
		for _, r := range rows {
			after = t.place(r)
			if len(t.judge(r)) == 0 || v.full() {
				continue
			}
			again, err := t.read(ctx, after.previous(), 1)
			if err != nil {
				return err
			}
			if len(again) == 1 && t.place(again[0]) == after {
				v.report(after, t.judge(again[0]))
			}
		}
		if len(rows) < verifyStretch {
			return nil
		}
	}
	return nil
}

func (v *verification) report(p place, defects []defect) {
	for _, d := range defects {
		v.findings = append(v.findings, finding.Finding{Invariant: d.invariant, NamespaceID: p.namespaceID, ID: p.id, Detail: d.detail})
	}
}

// rootGates: a namespace has its root gate from its first moment, or no close of a gate would stop starts; and it
// counts the closed ones, or starts would not look for them.
func (v *verification) rootGates(ctx context.Context) error {
	return sweep(ctx, v, table[pulsedb.HostVerifyNamespacesRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.HostVerifyNamespacesRow, error) {
			return v.q.HostVerifyNamespaces(ctx, pulsedb.HostVerifyNamespacesParams{AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.HostVerifyNamespacesRow) place { return place{namespaceID: r.ID, id: r.ID} },
		judge: func(r pulsedb.HostVerifyNamespacesRow) []defect {
			if r.RootGate == "" {
				return []defect{broken("pulse.namespace.root_gate", "the namespace has no root gate")}
			}
			if r.KeptClosed != r.Closed {
				return []defect{broken("pulse.namespace.closed_gates", "the root gate counts %d closed gates, and %d are", r.KeptClosed, r.Closed)}
			}
			return nil
		},
	})
}

// namespaces checks what each namespace holds.
func (v *verification) namespaces(ctx context.Context) error {
	for after := (orbit.ID{}); ; {
		rows, err := v.q.HostVerifyNamespaces(ctx, pulsedb.HostVerifyNamespacesParams{AfterID: after, Limit: verifyStretch})
		if err != nil {
			return err
		}
		for _, r := range rows {
			after = r.ID
			for _, check := range []func(context.Context, orbit.ID) error{v.queues, v.schedules, v.occurrences, v.sessions, v.instances, v.tasks, v.attempts} {
				if err := check(ctx, r.ID); err != nil {
					return err
				}
			}
		}
		if len(rows) < verifyStretch {
			return nil
		}
	}
}

// history is what is left of the events of one aggregate, and what the namespace's retention may have taken.
type history struct {
	count, first, last int64
	trimmedBelow       *int64
	oldest             *time.Time // when the oldest event of the namespace that is left was written
}

// retentionSlack is more than a transaction lasts: events are trimmed in the order of their commits, not of their times.
const retentionSlack = time.Minute

// judge compares the events of an aggregate with its version: each version from 1 on has its event, except those that retention has taken.
func (h history) judge(invariant string, version int64, created, updated time.Time) []defect {
	if h.last > version {
		return []defect{broken(invariant, "there is an event of version %d, but the row is at version %d", h.last, version)}
	}
	complete := h.count == version && h.first == 1 && h.last == version
	if complete || version == 0 {
		return nil
	}
	if h.mayLack(updated) && h.count == 0 {
		return nil
	}
	unbroken := h.last == version && h.count == h.last-h.first+1
	if unbroken && h.mayLack(created) {
		return nil
	}
	return []defect{broken(invariant, "versions 1 to %d should have one event each; there are %d, from %d to %d", version, h.count, h.first, h.last)}
}

// mayLack tells whether an event of that time may have been removed.
func (h history) mayLack(at time.Time) bool {
	if h.trimmedBelow == nil || *h.trimmedBelow <= 1 {
		return false
	}
	return h.oldest == nil || at.Before(h.oldest.Add(retentionSlack))
}
