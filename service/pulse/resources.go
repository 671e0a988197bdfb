package pulse

import (
	"context"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// Resources tells, by kind, whether a caller may see a thing as rights are now. A task that is gone, its time being past, is told
// to those who see all queues only.
func (s *Service) Resources() map[string]func(ctx context.Context, c platform.Caller, id orbit.ID) (bool, error) {
	return map[string]func(ctx context.Context, c platform.Caller, id orbit.ID) (bool, error){
		kindTask: func(ctx context.Context, c platform.Caller, id orbit.ID) (bool, error) {
			heads, err := pulsedb.New(s.Lane.DB).ListTaskHeads(ctx, pulsedb.ListTaskHeadsParams{NamespaceID: c.NamespaceID, Ids: []orbit.ID{id}})
			if err != nil || len(heads) == 0 {
				return c.SeesAllQueues(), err
			}
			return s.seesQueueID(ctx, c, heads[0].QueueID)
		},
		kindSchedule: func(ctx context.Context, c platform.Caller, id orbit.ID) (bool, error) {
			err := maySeeSchedule(ctx, pulsedb.New(s.Lane.DB), c, id)
			var missing *fault.Fault
			if errors.As(err, &missing) {
				return false, nil
			}
			return err == nil, err
		},
		kindQueue: s.seesQueueID,
		kindGate:  s.seesQueueID,
	}
}

func (s *Service) seesQueueID(ctx context.Context, c platform.Caller, id orbit.ID) (bool, error) {
	queues, err := findQueues(ctx, pulsedb.New(s.Lane.DB), c, []queueRef{{id: id}})
	return err == nil && queues[0] != nil, err
}
