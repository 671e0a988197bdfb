package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/platform"
)

// GetQueue reads one queue with its policy.
func (s *Service) GetQueue(ctx context.Context, params api.GetQueueParams) (*api.QueueHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionQueuesRead)
	if err != nil {
		return nil, err
	}
	q := s.reads()
	queue, err := grantedQueue(ctx, q, caller, params.QueueID, kindQueue)
	if err != nil {
		return nil, err
	}
	gate, err := queueGate(ctx, q, queue)
	if err != nil {
		return nil, err
	}
	return &api.QueueHeaders{ETag: revisionTag(queue.Revision), Response: viewQueue(queue, gate.State == orbit.GateClosed)}, nil
}
