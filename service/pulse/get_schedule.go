package pulse

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/platform"
)

// GetSchedule reads one schedule with its current version.
func (s *Service) GetSchedule(ctx context.Context, params api.GetScheduleParams) (*api.ScheduleHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesRead)
	if err != nil {
		return nil, err
	}
	row, err := s.visibleSchedule(ctx, caller, params.ScheduleID)
	if err != nil {
		return nil, err
	}
	view, err := viewSchedule(row.PulseSchedule, row.PulseScheduleVersion)
	return &api.ScheduleHeaders{ETag: revisionTag(row.PulseSchedule.Revision), Response: view}, err
}
