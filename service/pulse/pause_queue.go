package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
)

// PauseQueue closes the gate of a queue: once it has returned, no attempt of the queue starts on any replica. What runs goes on.
// A repeat gets the first reply; a queue that is paused already stays as it is, with its first reason.
func (s *Service) PauseQueue(ctx context.Context, req *api.PauseQueueRequest, params api.PauseQueueParams) (*api.PauseQueueOKHeaders, error) {
	move := gateMove{operation: "pauseQueue", verb: "pause", event: "gate.closed", to: orbit.GateClosed}
	reply, err := s.moveQueueGate(ctx, params.QueueID, params.IdempotencyKey, move, req.Reason)
	if err != nil {
		return nil, err
	}
	return &api.PauseQueueOKHeaders{IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}
