package pulse

import (
	"cmp"
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

const (
	// backfillLimit bounds the instants of one backfill.
	backfillLimit = 1000
	// backfillBytes bounds the payloads of one backfill together.
	backfillBytes = 32 << 20
)

// BackfillSchedule makes occurrences for the instants of a past time that have none, or one that was skipped or missed. A repeat does nothing and
// gets the first reply; an instant that two backfills name fires once.
func (s *Service) BackfillSchedule(ctx context.Context, req *api.BackfillScheduleRequest, params api.BackfillScheduleParams) (*api.BackfillScheduleOKHeaders, error) {
	from, to := req.From.UTC().Truncate(time.Microsecond), req.To.UTC().Truncate(time.Microsecond)
	switch {
	case !storable(from) || !storable(to):
		return nil, fault.Invalid("/from", "out_of_range", "the year must be between 1970 and 9999")
	case to.Before(from):
		return nil, fault.Invalid("/to", "before_from", "to must not be before from")
	}
	reply, err := s.onSchedule(ctx, "backfillSchedule", "backfill", params.ScheduleID, params.IdempotencyKey, func(ctx context.Context, tx *dbtx.Tx, c platform.Caller, h *heldSchedule) (platform.Reply, error) {
		if err := h.refuseArchived(); err != nil {
			return platform.Reply{}, err
		}
		if to.After(tx.Now) || h.NextFireAt != nil && !h.NextFireAt.After(to) {
			return platform.Reply{}, fault.Invalid("/to", "not_past", "a backfill is of instants that are past and were dealt with; what comes after them fires by itself")
		}
		wishes, report, err := pastWishes(ctx, pulsedb.New(tx), h, from, to)
		if err != nil {
			return platform.Reply{}, err
		}
		o := &occasion{schedule: h, source: orbit.SourceBackfill, actor: c.ActorID.Null(), wishes: wishes,
			overlap: cmp.Or(orbit.RunOverlap(req.RunOverlap.Or("")), h.version.RunOverlap)}
		if err := s.occur(ctx, tx, h.NamespaceID, []*occasion{o}); err != nil {
			return platform.Reply{}, err
		}
		for _, w := range wishes {
			switch w.occurrence.Outcome {
			case orbit.OccurrenceFired:
				report.Fired++
			case orbit.OccurrenceBuffered:
				report.Buffered++
			default:
				report.Skipped++
			}
		}
		return platform.Reply{Status: 200, Body: encode(&report)}, platform.Audit(ctx, tx, c, platform.Act{Action: "backfillSchedule", TargetKind: kindSchedule, TargetID: h.ID,
			Detail: map[string]any{"reason": req.Reason.Or(""), "from": from, "to": to, "fired": report.Fired, "buffered": report.Buffered, "skipped": report.Skipped}})
	})
	if err != nil {
		return nil, err
	}
	return &api.BackfillScheduleOKHeaders{IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}

// pastWishes gives the instants of a span that were not fired and do not wait, and counts the others.
func pastWishes(ctx context.Context, q *pulsedb.Queries, h *heldSchedule, from, to time.Time) ([]*wish, api.BackfillReport, error) {
	var report api.BackfillReport
	var instants []time.Time
	for at, ok := h.table.Next(from.Add(-time.Microsecond)); ok && !at.After(to); at, ok = h.table.Next(at) {
		instants = append(instants, at)
		if len(instants) > backfillLimit || len(instants)*len(h.version.Payload) > backfillBytes {
			return nil, report, fault.Invalid("/to", "too_many_instants", "a backfill is of at most 1,000 instants, and of 32 MiB of payloads; this one passes that at %s: divide it", at.Format(time.RFC3339))
		}
	}
	if len(instants) == 0 {
		return nil, report, nil
	}
	rows, err := q.ListOccurrencesBetween(ctx, pulsedb.ListOccurrencesBetweenParams{NamespaceID: h.NamespaceID, ScheduleID: h.ID,
		FromAt: instants[0], ToAt: instants[len(instants)-1]})
	if err != nil {
		return nil, report, err
	}
	known := map[int64]*pulsedb.ListOccurrencesBetweenRow{}
	for i := range rows {
		known[rows[i].FireAt.UnixMicro()] = &rows[i]
	}
	var wishes []*wish
	for _, at := range instants {
		o := known[at.UnixMicro()]
		if o != nil && (o.Outcome == orbit.OccurrenceFired || o.Outcome == orbit.OccurrenceBuffered) {
			report.Known++
			continue
		}
		wishes = append(wishes, &wish{instant: instant{at: at}, known: o})
	}
	return wishes, report, nil
}
