package pulse

import (
	"context"

	"github.com/go-faster/jx"
	"go.opentelemetry.io/otel/propagation"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/combine"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// MaxItems is the largest number of tasks in one batch.
const MaxItems = 1000

// SubmitTasks accepts each item exactly as SubmitTask would, and answers them in order; a bad item harms no other. A key that stands twice
// is one task: the later item is judged as a repeat of the earlier.
func (s *Service) SubmitTasks(ctx context.Context, req *api.SubmitTasksRequest) (jx.Raw, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksSubmit)
	if err != nil {
		return nil, err
	}
	if n := len(req.Items); n < 1 || n > MaxItems {
		return nil, fault.Invalid("/items", "length", "a batch has 1 to %d items, this one has %d", MaxItems, n)
	}
	calls := make([]*submitCall, len(req.Items))
	var open []*submitCall
	trace := traceOf(ctx)
	for i, raw := range req.Items {
		calls[i] = decodeSubmit(ctx, caller, trace, raw, i)
		if calls[i].err == nil {
			open = append(open, calls[i])
		}
	}
	s.submitChunks(ctx, caller.NamespaceID, open)
	return s.encodeSubmits(ctx, calls), nil
}

// submitChunks submits as many items together as fit in a transaction, in their order, with those of other calls, and what could not be judged
// so one by one.
func (s *Service) submitChunks(ctx context.Context, ns orbit.ID, calls []*submitCall) {
	for len(calls) > 0 {
		n, size := 0, 0
		for n < len(calls) && n < combine.MaxItems {
			more := len(calls[n].req.Payload)
			if n > 0 && size+more > combine.MaxBytes {
				break
			}
			n, size = n+1, size+more
		}
		s.joinSubmits(ns, calls[:n], size)
		away := false
		for _, c := range calls[:n] {
			switch {
			case !c.alone:
			case away:
				c.err = errUntried
			default:
				s.submitAlone(ctx, c)
				away = c.err != nil && dbtx.IsAway(c.err) && !dbtx.IsLockWait(c.err)
			}
		}
		calls = calls[n:]
	}
}

// decodeSubmit reads an item as a single submit is read.
func decodeSubmit(ctx context.Context, caller platform.Caller, trace propagation.MapCarrier, raw jx.Raw, place int) *submitCall {
	var in api.SubmitItem
	if err := decodeItem(ctx, raw, place, &in); err != nil {
		return &submitCall{err: err}
	}
	c := &submitCall{
		caller: caller, trace: trace, try: platform.Try{Key: in.IdempotencyKey, Digest: body.From(ctx).Items[place].Digest},
		req: &api.SubmitTaskRequest{
			QueueID: in.QueueID, Queue: in.Queue, Type: in.Type, Payload: in.Payload, PayloadVersion: in.PayloadVersion, Priority: in.Priority,
			RunAt: in.RunAt, DelayMs: in.DelayMs, DeadlineAt: in.DeadlineAt, MaxAttempts: in.MaxAttempts,
		},
	}
	if f := platform.CheckKey(c.try.Key); f != nil {
		c.err = f
	} else if f := c.check(); f != nil {
		c.err = f
	}
	return c
}

// encodeSubmits writes the reply by hand, because a receipt's stored bytes go into it unchanged.
func (s *Service) encodeSubmits(ctx context.Context, calls []*submitCall) jx.Raw {
	var e jx.Encoder
	e.ObjStart()
	e.FieldStart("items")
	e.ArrStart()
	for _, o := range calls {
		e.ObjStart()
		if o.err != nil {
			p := s.Problem(ctx, o.err)
			e.FieldStart("status")
			e.Int(p.Status)
			e.FieldStart("problem")
			p.Encode(&e)
		} else {
			e.FieldStart("status")
			e.Int(o.reply.Status)
			e.FieldStart("receipt")
			e.Raw(o.reply.Body)
		}
		e.FieldStart("replayed")
		e.Bool(o.reply.Replayed)
		e.ObjEnd()
	}
	e.ArrEnd()
	e.ObjEnd()
	return e.Bytes()
}
