package pulse

import (
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// change writes a held schedule that was changed, one revision on.
func (h *heldSchedule) change(ctx context.Context, tx *dbtx.Tx) error {
	_, err := pulsedb.New(tx.Later(1)).ChangeSchedule(ctx, pulsedb.ChangeScheduleParams{
		CurrentVersion: h.CurrentVersion, PausedAt: h.PausedAt, PauseReason: h.PauseReason, ArchivedAt: h.ArchivedAt,
		Watermark: h.Watermark, NextFireAt: h.NextFireAt, NowAt: tx.Now, NamespaceID: h.NamespaceID, ID: h.ID, Revision: h.Revision})
	h.Revision, h.UpdatedAt = h.Revision+1, tx.Now
	return err
}

// passTo moves the watermark on: instants up to then do not fire by themselves any more.
func (h *heldSchedule) passTo(now time.Time) {
	if now.After(h.Watermark) {
		h.Watermark = now
	}
}

func (h *heldSchedule) refuseArchived() error {
	if h.ArchivedAt != nil {
		return fault.New(fault.StateConflict, "the schedule was archived at %s and ended with that; make a new one", h.ArchivedAt.Format(time.RFC3339))
	}
	return nil
}

// schedulePath is the path of a keyed act on a schedule.
func schedulePath(id orbit.ID, verb string) string {
	return "/v1/schedules/" + id.String() + ":" + verb
}

// onSchedule acts on a held schedule exactly once for a key. The caller's rights are judged as they are now, before any replay.
func (s *Service) onSchedule(ctx context.Context, operation, verb string, id orbit.ID, key api.OptString, act func(ctx context.Context, tx *dbtx.Tx, c platform.Caller, h *heldSchedule) (platform.Reply, error)) (platform.Reply, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesManage)
	if err != nil {
		return platform.Reply{}, err
	}
	if f := platform.CheckKey(key.Or("")); f != nil {
		return platform.Reply{}, f
	}
	if err := maySeeSchedule(ctx, pulsedb.New(s.Lane.DB), caller, id); err != nil {
		return platform.Reply{}, err
	}
	try := platform.Try{Key: key.Or(""), Digest: body.From(ctx).Digest, ResourceKind: kindSchedule, ResourceID: id}
	return s.Platform.Once(ctx, platform.ScopeOf(caller, operation, schedulePath(id, verb)), try, func(ctx context.Context, tx *dbtx.Tx) (platform.Reply, error) {
		h, err := s.holdSchedule(ctx, tx, caller, id)
		if err != nil {
			return platform.Reply{}, err
		}
		return act(ctx, tx, caller, h)
	})
}
