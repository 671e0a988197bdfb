package pulse

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/platform"
)

// SubmitTask accepts one task exactly once for its key. A repeat gets the first receipt byte for byte, singly or in a batch;
// other content is idempotency_conflict; of many at once one is accepted and all get its receipt.
func (s *Service) SubmitTask(ctx context.Context, req *api.SubmitTaskRequest, params api.SubmitTaskParams) (*api.SubmitTaskCreatedHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksSubmit)
	if err != nil {
		return nil, err
	}
	c := &submitCall{caller: caller, req: req, trace: traceOf(ctx), try: platform.Try{Key: params.IdempotencyKey.Or(""), Digest: body.From(ctx).Digest}}
	if f := platform.CheckKey(c.try.Key); f != nil {
		return nil, f
	}
	if f := c.check(); f != nil {
		return nil, f
	}
	s.joinSubmits(caller.NamespaceID, []*submitCall{c}, len(req.Payload))
	if c.alone {
		s.submitAlone(ctx, c)
	}
	if c.err != nil {
		return nil, c.err
	}
	return &api.SubmitTaskCreatedHeaders{
		IdempotencyReplayed: replayed(c.reply),
		Location:            "/v1/tasks/" + c.taskID.String(),
		Response:            c.reply.Body,
	}, nil
}

// replayed is the header of a repeat; a first answer does not carry it.
func replayed(r platform.Reply) api.OptBool {
	if !r.Replayed {
		return api.OptBool{}
	}
	return api.NewOptBool(true)
}
