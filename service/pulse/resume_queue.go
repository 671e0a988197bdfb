package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
)

// ResumeQueue opens the gate of a queue; what waited for it becomes ready. A repeat gets the first reply; a queue that is not
// paused stays as it is.
func (s *Service) ResumeQueue(ctx context.Context, req api.OptResumeQueueRequest, params api.ResumeQueueParams) (*api.ResumeQueueOKHeaders, error) {
	move := gateMove{operation: "resumeQueue", verb: "resume", event: "gate.opened", to: orbit.GateOpen}
	reply, err := s.moveQueueGate(ctx, params.QueueID, params.IdempotencyKey, move, req.Value.Reason.Or(""))
	if err != nil {
		return nil, err
	}
	return &api.ResumeQueueOKHeaders{IdempotencyReplayed: replayed(reply), Response: reply.Body}, nil
}
