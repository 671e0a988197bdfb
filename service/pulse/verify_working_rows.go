package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

// judgeWorking: a working row, or a deadline, belongs to an open task that agrees with it.
func judgeWorking(invariant string, state orbit.TaskState, agrees int64) []defect {
	switch {
	case state == "":
		return []defect{broken(invariant, "the task does not exist")}
	case state != orbit.TaskOpen:
		return []defect{broken(invariant, "the task is %s", state)}
	case agrees != 1:
		return []defect{broken(invariant, "the task is open, but its row says another place or time")}
	}
	return nil
}

func (v *verification) ready(ctx context.Context) error {
	groups, err := v.q.HostVerifyReadyGroups(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		err := sweep(ctx, v, table[pulsedb.VerifyReadyRow]{
			read: func(ctx context.Context, after place, limit int32) ([]pulsedb.VerifyReadyRow, error) {
				return v.q.VerifyReady(ctx, pulsedb.VerifyReadyParams{NamespaceID: g.NamespaceID, QueueID: g.QueueID, Priority: g.Priority,
					AfterRank: after.at, AfterID: after.id, Limit: limit})
			},
			place: func(r pulsedb.VerifyReadyRow) place {
				return place{at: r.RankUs, namespaceID: g.NamespaceID, id: r.TaskID}
			},
			judge: func(r pulsedb.VerifyReadyRow) []defect { return judgeWorking("pulse.ready.task", r.State, r.Agrees) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *verification) scheduled(ctx context.Context) error {
	return sweep(ctx, v, table[pulsedb.HostVerifyScheduledRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.HostVerifyScheduledRow, error) {
			return v.q.HostVerifyScheduled(ctx, pulsedb.HostVerifyScheduledParams{
				AfterDue: after.time(), AfterNamespace: after.namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.HostVerifyScheduledRow) place {
			return place{at: r.DueAt.UnixMicro(), namespaceID: r.NamespaceID, id: r.TaskID}
		},
		judge: func(r pulsedb.HostVerifyScheduledRow) []defect {
			return judgeWorking("pulse.scheduled.task", r.State, r.Agrees)
		},
	})
}

func (v *verification) blocked(ctx context.Context) error {
	return sweep(ctx, v, table[pulsedb.HostVerifyBlockedRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.HostVerifyBlockedRow, error) {
			return v.q.HostVerifyBlocked(ctx, pulsedb.HostVerifyBlockedParams{AfterNamespace: after.namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.HostVerifyBlockedRow) place { return place{namespaceID: r.NamespaceID, id: r.TaskID} },
		judge: func(r pulsedb.HostVerifyBlockedRow) []defect {
			return judgeWorking("pulse.blocked.task", r.State, r.Agrees)
		},
	})
}

func (v *verification) deadlines(ctx context.Context) error {
	return sweep(ctx, v, table[pulsedb.HostVerifyDeadlinesRow]{
		read: func(ctx context.Context, after place, limit int32) ([]pulsedb.HostVerifyDeadlinesRow, error) {
			return v.q.HostVerifyDeadlines(ctx, pulsedb.HostVerifyDeadlinesParams{
				AfterDeadline: after.time(), AfterNamespace: after.namespaceID, AfterID: after.id, Limit: limit})
		},
		place: func(r pulsedb.HostVerifyDeadlinesRow) place {
			return place{at: r.DeadlineAt.UnixMicro(), namespaceID: r.NamespaceID, id: r.TaskID}
		},
		judge: func(r pulsedb.HostVerifyDeadlinesRow) []defect {
			return judgeWorking("pulse.deadline.task", r.State, r.Agrees)
		},
	})
}
