package pulse

import (
	"cmp"
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/platform"
)

// TriggerSchedule makes an occurrence now, paused or not, beside those of the timetable. A repeat triggers nothing and gets the first reply.
func (s *Service) TriggerSchedule(ctx context.Context, req api.OptTriggerScheduleRequest, params api.TriggerScheduleParams) (*api.TriggerScheduleOKHeaders, error) {
	reply, err := s.onSchedule(ctx, "triggerSchedule", "trigger", params.ScheduleID, params.IdempotencyKey, func(ctx context.Context, tx *dbtx.Tx, c platform.Caller, h *heldSchedule) (platform.Reply, error) {
		if err := h.refuseArchived(); err != nil {
			return platform.Reply{}, err
		}
		at, err := triggerInstant(ctx, pulsedb.New(tx), h, tx.Now)
		if err != nil {
			return platform.Reply{}, err
		}
		w := &wish{instant: instant{at: at}}
		o := &occasion{schedule: h, source: orbit.SourceTrigger, actor: c.ActorID.Null(), wishes: []*wish{w},
			overlap: cmp.Or(orbit.RunOverlap(req.Value.RunOverlap.Or("")), h.version.RunOverlap)}
		if err := s.occur(ctx, tx, h.NamespaceID, []*occasion{o}); err != nil {
			return platform.Reply{}, err
		}
		view := viewOccurrence(w.occurrence)
		return platform.Reply{Status: 200, Body: encode(&view)}, platform.Audit(ctx, tx, c, platform.Act{Action: "triggerSchedule", TargetKind: kindSchedule, TargetID: h.ID,
			Detail: map[string]any{"reason": req.Value.Reason.Or(""), "occurrence_id": w.occurrence.ID, "outcome": w.occurrence.Outcome}})
	})
	if err != nil {
		return nil, err
	}
	return &api.TriggerScheduleOKHeaders{IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}

// triggerInstant is now, or the last microsecond before it that no other trigger has. Whole milliseconds belong to timetables, so that the two never
// meet.
func triggerInstant(ctx context.Context, q *pulsedb.Queries, h *heldSchedule, now time.Time) (time.Time, error) {
	rows, err := q.ListOccurrencesBetween(ctx, pulsedb.ListOccurrencesBetweenParams{NamespaceID: h.NamespaceID, ScheduleID: h.ID, FromAt: now.Add(-time.Second), ToAt: now})
	taken := map[int64]bool{}
	for _, r := range rows {
		taken[r.FireAt.UnixMicro()] = true
	}
	at := now
	for at.UnixMicro()%1000 == 0 || taken[at.UnixMicro()] {
		at = at.Add(-time.Microsecond)
	}
	return at, err
}
