package pulse

import (
	"context"
	"database/sql"
	"errors"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// GetScheduleVersion reads one version of a schedule. Who may see the schedule as it is now may see what it was.
func (s *Service) GetScheduleVersion(ctx context.Context, params api.GetScheduleVersionParams) (*api.ScheduleVersion, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesRead)
	if err != nil {
		return nil, err
	}
	q := s.reads()
	if err := maySeeSchedule(ctx, q, caller, params.ScheduleID); err != nil {
		return nil, err
	}
	row, err := q.GetScheduleVersion(ctx, pulsedb.GetScheduleVersionParams{NamespaceID: caller.NamespaceID, ScheduleID: params.ScheduleID, Version: params.Version})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.Missing("schedule version")
	}
	if err != nil {
		return nil, err
	}
	view, err := viewScheduleVersion(row)
	return &view, err
}
