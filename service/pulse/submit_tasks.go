package pulse

import (
	"context"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// MaxItems is the largest number of tasks in one batch.
const MaxItems = 1000

// A transaction takes at most this many items and bytes; a larger item travels alone.
const (
	maxTogether      = 256
	maxTogetherBytes = 4 << 20
)

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
	scanned := body.From(ctx).Items
	outcomes := make([]submitOutcome, len(req.Items))
	items := make([]submitItem, len(req.Items))
	first := map[string]int{}
	var later, fresh []int
	for i, raw := range req.Items {
		if scanned[i].Faults != nil {
			outcomes[i].err = scanned[i].Faults
			continue
		}
		item, err := decodeSubmit(raw)
		if err != nil {
			outcomes[i].err = err
			continue
		}
		item.try.Digest = scanned[i].Digest
		items[i] = item
		if _, twice := first[item.try.Key]; twice {
			later = append(later, i)
			continue
		}
		first[item.try.Key] = i
		fresh = append(fresh, i)
	}
	s.submitChunks(ctx, caller, items, fresh, outcomes)
	s.submitChunks(ctx, caller, items, later, outcomes)
	return s.encodeSubmits(ctx, outcomes), nil
}

// submitChunks submits the items at the given places, as many together as fit in a transaction. Among repeats of a key that stand
// more than twice, each goes in a transaction of its own order.
func (s *Service) submitChunks(ctx context.Context, c platform.Caller, items []submitItem, places []int, outcomes []submitOutcome) {
	for len(places) > 0 {
		n, size, seen := 0, 0, map[string]bool{}
		for n < len(places) && n < maxTogether {
			item := items[places[n]]
			size += len(item.req.Payload)
			if n > 0 && (size > maxTogetherBytes || seen[item.try.Key]) {
				break
			}
			seen[item.try.Key] = true
			n++
		}
		chunk := make([]submitItem, n)
		for k := range n {
			chunk[k] = items[places[k]]
		}
		for k, outcome := range s.submitTogether(ctx, c, chunk) {
			outcomes[places[k]] = outcome
		}
		places = places[n:]
	}
}

// decodeSubmit reads an item as a single submit is read.
func decodeSubmit(raw jx.Raw) (submitItem, error) {
	var in api.SubmitItem
	if err := in.Decode(jx.DecodeBytes(raw)); err != nil {
		return submitItem{}, badItem(err)
	}
	if err := in.Validate(); err != nil {
		return submitItem{}, err
	}
	item := submitItem{
		try: platform.Try{Key: in.IdempotencyKey},
		req: &api.SubmitTaskRequest{
			QueueID: in.QueueID, Queue: in.Queue, Type: in.Type, Payload: in.Payload, PayloadVersion: in.PayloadVersion, Priority: in.Priority,
			RunAt: in.RunAt, DelayMs: in.DelayMs, DeadlineAt: in.DeadlineAt, MaxAttempts: in.MaxAttempts,
		},
	}
	if f := platform.CheckKey(item.try.Key); f != nil {
		return item, f
	}
	if f := item.check(); f != nil {
		return item, f
	}
	return item, nil
}

// encodeSubmits writes the reply by hand, because a receipt's stored bytes go into it unchanged.
func (s *Service) encodeSubmits(ctx context.Context, outcomes []submitOutcome) jx.Raw {
	var e jx.Encoder
	e.ObjStart()
	e.FieldStart("items")
	e.ArrStart()
	for _, o := range outcomes {
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
