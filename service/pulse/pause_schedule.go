package pulse

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/platform"
)

// PauseSchedule stops a schedule: once it has returned no instant fires and nothing that waits begins, on any replica. A repeat gets the first
// reply; a schedule that is paused already stays as it is, with its first reason.
func (s *Service) PauseSchedule(ctx context.Context, req *api.PauseScheduleRequest, params api.PauseScheduleParams) (*api.PauseScheduleOKHeaders, error) {
	reply, err := s.onSchedule(ctx, "pauseSchedule", "pause", params.ScheduleID, params.IdempotencyKey, func(ctx context.Context, tx *dbtx.Tx, c platform.Caller, h *heldSchedule) (platform.Reply, error) {
		if err := h.refuseArchived(); err != nil {
			return platform.Reply{}, err
		}
		if h.PausedAt == nil {
			h.PausedAt, h.PauseReason, h.NextFireAt = &tx.Now, req.Reason, nil
			if err := h.change(ctx, tx); err != nil {
				return platform.Reply{}, err
			}
			if err := recordSchedule(ctx, tx, c, h.PulseSchedule, "pauseSchedule", "schedule.paused", facts{"reason": req.Reason}); err != nil {
				return platform.Reply{}, err
			}
		}
		return scheduleReply(200, h.PulseSchedule, h.version)
	})
	if err != nil {
		return nil, err
	}
	return &api.PauseScheduleOKHeaders{ETag: reply.ETag, IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}
