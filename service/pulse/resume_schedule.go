package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/platform"
)

// ResumeSchedule lets a schedule go on from now; instants that passed meanwhile are not made up for. A repeat gets the first reply; a schedule
// that is not paused stays as it is.
func (s *Service) ResumeSchedule(ctx context.Context, req api.OptResumeScheduleRequest, params api.ResumeScheduleParams) (*api.ResumeScheduleOKHeaders, error) {
	reply, err := s.onSchedule(ctx, "resumeSchedule", "resume", params.ScheduleID, params.IdempotencyKey, func(ctx context.Context, tx *dbtx.Tx, c platform.Caller, h *heldSchedule) (platform.Reply, error) {
		if err := h.refuseArchived(); err != nil {
			return platform.Reply{}, err
		}
		if h.PausedAt != nil {
			h.passTo(tx.Now)
			h.PausedAt, h.PauseReason, h.NextFireAt = nil, "", nextFire(h.table, h.Watermark)
			s.wakeFor(tx, h.NextFireAt)
			if err := h.change(ctx, tx); err != nil {
				return platform.Reply{}, err
			}
			if err := recordSchedule(ctx, tx, c, h.PulseSchedule, "resumeSchedule", "schedule.resumed", facts{"reason": req.Value.Reason.Or("")}); err != nil {
				return platform.Reply{}, err
			}
			if _, err := s.beginWaiting(ctx, tx, h.NamespaceID, []orbit.ID{h.ID}); err != nil {
				return platform.Reply{}, err
			}
		}
		return scheduleReply(200, h.PulseSchedule, h.version)
	})
	if err != nil {
		return nil, err
	}
	return &api.ResumeScheduleOKHeaders{ETag: reply.ETag, IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}
