package pulse

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/platform"
)

// ArchiveSchedule ends a schedule for good; what waits is skipped. A repeat gets the first reply; an archived schedule stays as it is.
func (s *Service) ArchiveSchedule(ctx context.Context, req *api.ArchiveScheduleRequest, params api.ArchiveScheduleParams) (*api.ArchiveScheduleOKHeaders, error) {
	reply, err := s.onSchedule(ctx, "archiveSchedule", "archive", params.ScheduleID, params.IdempotencyKey, func(ctx context.Context, tx *dbtx.Tx, c platform.Caller, h *heldSchedule) (platform.Reply, error) {
		if h.ArchivedAt == nil {
			if err := s.skipBuffered(ctx, tx, h, c.ActorID.Null(), codeArchived); err != nil {
				return platform.Reply{}, err
			}
			h.ArchivedAt, h.NextFireAt, h.PausedAt, h.PauseReason = &tx.Now, nil, nil, ""
			if err := h.change(ctx, tx); err != nil {
				return platform.Reply{}, err
			}
			if err := recordSchedule(ctx, tx, c, h.PulseSchedule, "archiveSchedule", "schedule.archived", facts{"reason": req.Reason}); err != nil {
				return platform.Reply{}, err
			}
		}
		return scheduleReply(200, h.PulseSchedule, h.version)
	})
	if err != nil {
		return nil, err
	}
	return &api.ArchiveScheduleOKHeaders{ETag: reply.ETag, IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}
