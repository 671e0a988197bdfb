package pulse

import (
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// updateLimit bounds the instants of the version before that a change deals with first.
const updateLimit = 1000

// UpdateSchedule publishes a new version, current from then on. What was due before is dealt with first, by the version before: the row is held, and
// the instants of the new version begin after the transaction's clock. If-Match settles a repeat, which gets revision_mismatch; of
// two with one tag, one wins.
func (s *Service) UpdateSchedule(ctx context.Context, req *api.UpdateScheduleRequest, params api.UpdateScheduleParams) (*api.ScheduleHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesManage)
	if err != nil {
		return nil, err
	}
	want, err := readMatch(params.IfMatch, true)
	if err != nil {
		return nil, err
	}
	d, err := define(req.Timetable, orbit.RunOverlap(req.RunOverlap.Or("")), req.CatchUpWindowMs, req.CatchUpMax, req.Task)
	if err != nil {
		return nil, err
	}
	var reply api.ScheduleHeaders
	err = s.Lane.Run(ctx, "updateSchedule", func(ctx context.Context, tx *dbtx.Tx) error {
		h, err := s.holdSchedule(ctx, tx, caller, params.ScheduleID)
		if err != nil {
			return err
		}
		if err := want.check(revisionTag(h.Revision)); err != nil {
			return err
		}
		if err := s.publishVersion(ctx, tx, caller, h, d); err != nil {
			return err
		}
		view, err := viewSchedule(h.PulseSchedule, h.version)
		reply = api.ScheduleHeaders{ETag: revisionTag(h.Revision), Response: view}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &reply, nil
}

func (s *Service) publishVersion(ctx context.Context, tx *dbtx.Tx, c platform.Caller, h *heldSchedule, d definition) error {
	if err := h.refuseArchived(); err != nil {
		return err
	}
	_, all, err := s.fireHeld(ctx, tx, c.NamespaceID, []*heldSchedule{h}, updateLimit)
	if err != nil {
		return err
	}
	if !all {
		return &fault.Fault{Code: fault.Unavailable, RetryAfter: time.Second, Detail: "the schedule makes up for many instants of the version before; try again"}
	}
	h.passTo(tx.Now)
	q := pulsedb.New(tx)
	next, err := d.complete(ctx, q, c, h.Watermark)
	if err != nil {
		return err
	}
	if err := d.publish(ctx, q, c, tx.Now, h.ID, h.CurrentVersion+1); err != nil {
		return err
	}
	h.CurrentVersion, h.version, h.table, h.NextFireAt = d.row.Version, d.row, d.table, next
	if h.PausedAt != nil {
		h.NextFireAt = nil
	}
	s.wakeFor(tx, h.NextFireAt)
	if err := h.change(ctx, tx); err != nil {
		return err
	}
	return recordSchedule(ctx, tx, c, h.PulseSchedule, "updateSchedule", "schedule.updated", facts{"version": h.CurrentVersion, "queue_id": d.row.QueueID})
}
