package pulse

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"math"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/page"
	"github.com/orbit-run/orbit/service/platform"
)

// ListTaskAttempts lists the execution generations of a task, the latest first, offers that were never started included.
func (s *Service) ListTaskAttempts(ctx context.Context, params api.ListTaskAttemptsParams) (*api.AttemptList, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksRead)
	if err != nil {
		return nil, err
	}
	walk := page.Of("listTaskAttempts", params.TaskID.String())
	before, err := generationBefore(walk, params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	q := s.reads()
	queueID, err := q.GetTaskQueue(ctx, pulsedb.GetTaskQueueParams{NamespaceID: caller.NamespaceID, ID: params.TaskID})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.Missing(kindTask)
	}
	if err != nil {
		return nil, err
	}
	if err := requireQueue(ctx, q, caller, queueID, kindTask); err != nil {
		return nil, err
	}
	size := page.Size(params.Limit.Or(page.Default))
	rows, err := q.ListTaskAttempts(ctx, pulsedb.ListTaskAttemptsParams{
		NamespaceID: caller.NamespaceID, TaskID: params.TaskID, BeforeGeneration: before, Limit: int32(size) + 1})
	if err != nil {
		return nil, err
	}
	list := &api.AttemptList{}
	if len(rows) > size {
		rows = rows[:size]
		list.NextCursor.SetTo(walk.Cursor(binary.BigEndian.AppendUint64(nil, uint64(rows[size-1].Generation))))
	}
	list.Items = make([]api.AttemptSummary, len(rows))
	for i, r := range rows {
		list.Items[i] = attemptSummary(r)
	}
	return list, nil
}

func generationBefore(walk page.Walk, cursor string) (int64, error) {
	position, err := walk.Position(cursor, 8)
	if err != nil || position == nil {
		return math.MaxInt64, err
	}
	return int64(binary.BigEndian.Uint64(position)), nil
}
