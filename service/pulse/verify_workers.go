package pulse

import (
	"context"
	"strconv"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

func (v *verification) queues(ctx context.Context, namespaceID orbit.ID) error {
	return sweep(ctx, v, table[pulsedb.VerifyQueuesRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.VerifyQueuesRow, error) {
			return v.q.VerifyQueues(ctx, pulsedb.VerifyQueuesParams{NamespaceID: namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.VerifyQueuesRow) place { return place{namespaceID: namespaceID, id: r.ID} },
		judge: func(r pulsedb.VerifyQueuesRow) []defect {
			events := history{count: r.EventCount, first: r.EventFirst, last: r.EventLast, trimmedBelow: r.TrimmedBelow, oldest: r.OldestEventAt}
			defects := events.judge("pulse.queue.events", r.Revision, r.CreatedAt, r.UpdatedAt)
			gate := history{count: r.GateEventCount, first: r.GateEventFirst, last: r.GateEventLast, trimmedBelow: r.TrimmedBelow, oldest: r.OldestEventAt}
			return append(defects, gate.judge("pulse.gate.events", valueOf(r.ControlVersion), r.CreatedAt, latest(r.CreatedAt, r.GateUpdatedAt))...)
		},
	})
}

// sessions: the current incarnation of an open session exists and has its epoch; that of a closed one may have been forgotten.
func (v *verification) sessions(ctx context.Context, namespaceID orbit.ID) error {
	return sweep(ctx, v, table[pulsedb.VerifySessionsRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.VerifySessionsRow, error) {
			return v.q.VerifySessions(ctx, pulsedb.VerifySessionsParams{NamespaceID: namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.VerifySessionsRow) place { return place{namespaceID: namespaceID, id: r.ID} },
		judge: func(r pulsedb.VerifySessionsRow) []defect {
			switch {
			case !r.InstanceSession.Valid && r.ClosedAt == nil:
				return []defect{broken("pulse.session.current", "the session is open and its current incarnation does not exist")}
			case r.InstanceSession.Valid && (r.InstanceSession.ID != r.ID || valueOf(r.InstanceEpoch) != r.Epoch):
				return []defect{broken("pulse.session.current", "the session is at epoch %d, its current incarnation has epoch %s of session %s", r.Epoch, shown(r.InstanceEpoch), r.InstanceSession.ID)}
			}
			return nil
		},
	})
}

// instances: only the current incarnation of a session lives, so that there is at most one; none has an epoch to come.
func (v *verification) instances(ctx context.Context, namespaceID orbit.ID) error {
	return sweep(ctx, v, table[pulsedb.VerifyInstancesRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.VerifyInstancesRow, error) {
			return v.q.VerifyInstances(ctx, pulsedb.VerifyInstancesParams{NamespaceID: namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.VerifyInstancesRow) place { return place{namespaceID: namespaceID, id: r.ID} },
		judge: func(r pulsedb.VerifyInstancesRow) []defect {
			var defects []defect
			if r.SessionEpoch == nil || r.Epoch > *r.SessionEpoch {
				defects = append(defects, broken("pulse.instance.epoch", "the instance has epoch %d, its session is at %s", r.Epoch, shown(r.SessionEpoch)))
			}
			if (r.State == orbit.InstanceLive || r.State == orbit.InstanceExpired) && r.CurrentID.ID != r.ID {
				defects = append(defects, broken("pulse.instance.current", "the instance is %s, but the session's current one is %s", r.State, r.CurrentID.ID))
			}
			return defects
		},
	})
}

func valueOf(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func shown(n *int64) string {
	if n == nil {
		return "none"
	}
	return strconv.FormatInt(*n, 10)
}
