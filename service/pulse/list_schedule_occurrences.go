package pulse

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// ListScheduleOccurrences lists what became of a schedule's instants, the latest instant first.
func (s *Service) ListScheduleOccurrences(ctx context.Context, params api.ListScheduleOccurrencesParams) (*api.OccurrenceList, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesRead)
	if err != nil {
		return nil, err
	}
	walk := page.Of("listScheduleOccurrences", params.ScheduleID.String())
	us, err := numberBefore(walk, params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	before := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	if params.Cursor.Set {
		before = time.UnixMicro(us).UTC()
	}
	q := s.reads()
	if err := maySeeSchedule(ctx, q, caller, params.ScheduleID); err != nil {
		return nil, err
	}
	size := page.Size(params.Limit.Or(page.Default))
	rows, err := q.PageOccurrences(ctx, pulsedb.PageOccurrencesParams{NamespaceID: caller.NamespaceID, ScheduleID: params.ScheduleID, BeforeAt: before, Limit: int32(size) + 1})
	if err != nil {
		return nil, err
	}
	list := &api.OccurrenceList{Items: make([]api.Occurrence, 0, len(rows))}
	for i, r := range rows {
		if i == size {
			list.NextCursor.SetTo(walk.Cursor(binary.BigEndian.AppendUint64(nil, uint64(rows[i-1].FireAt.UnixMicro()))))
			break
		}
		list.Items = append(list.Items, viewOccurrence(r))
	}
	return list, nil
}
