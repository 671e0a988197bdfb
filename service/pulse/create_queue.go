package pulse

import (
	"context"
	"encoding/json"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// CreateQueue makes a queue, open for work. A repeat gets the first reply; of two under different keys with one name, one
// makes the queue and the other gets state_conflict.
func (s *Service) CreateQueue(ctx context.Context, req *api.CreateQueueRequest, params api.CreateQueueParams) (*api.CreateQueueCreatedHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionQueuesManage)
	if err != nil {
		return nil, err
	}
	if err := checkQueueName(caller, req.Name); err != nil {
		return nil, err
	}
	queue := newQueue(req)
	if err := checkPolicy(queue); err != nil {
		return nil, err
	}
	now, err := s.Lane.Now(ctx)
	if err != nil {
		return nil, err
	}
	queue.NamespaceID, queue.ID, queue.Revision = caller.NamespaceID, orbit.NewID(now), 1
	try := platform.Try{Key: params.IdempotencyKey.Or(""), Digest: body.From(ctx).Digest, ResourceKind: kindQueue, ResourceID: queue.ID}
	reply, err := s.Platform.Once(ctx, platform.ScopeOf(caller, "createQueue", "/v1/queues"), try, func(ctx context.Context, tx *dbtx.Tx) (platform.Reply, error) {
		return createQueue(ctx, tx, caller, queue)
	})
	if err != nil {
		return nil, err
	}
	return &api.CreateQueueCreatedHeaders{
		ETag: reply.ETag, IdempotencyReplayed: replayed(reply), Location: "/v1/queues/" + storedID(reply.Body), Response: reply.Body,
	}, nil
}

func createQueue(ctx context.Context, tx *dbtx.Tx, c platform.Caller, queue pulsedb.PulseQueue) (platform.Reply, error) {
	queue.CreatedAt, queue.UpdatedAt = tx.Now, tx.Now
	err := pulsedb.New(tx).InsertQueue(ctx, pulsedb.InsertQueueParams{
		NamespaceID: queue.NamespaceID, ID: queue.ID, Name: queue.Name, LeaseMs: queue.LeaseMs, OfferTimeoutMs: queue.OfferTimeoutMs,
		MaxAttempts: queue.MaxAttempts, BackoffInitialMs: queue.BackoffInitialMs, BackoffMaxMs: queue.BackoffMaxMs,
		RetentionMs: queue.RetentionMs, UnknownOutcome: queue.UnknownOutcome, OneStep: queue.OneStep, CreatedAt: tx.Now, UpdatedAt: tx.Now,
	})
	if dbtx.IsDuplicate(err) {
		return platform.Reply{}, fault.New(fault.StateConflict, "there is a queue named %q already; use it, or choose another name", queue.Name)
	}
	if err != nil {
		return platform.Reply{}, err
	}
	emit(tx, queue.NamespaceID, c.ActorID.Null(), kindQueue, queue.ID, queue.Revision, "queue.created", facts{"name": queue.Name})
	err = platform.Audit(ctx, tx, c, platform.Act{Action: "createQueue", TargetKind: kindQueue, TargetID: queue.ID, Detail: map[string]any{"name": queue.Name}})
	view := viewQueue(queue, false)
	return platform.Reply{Status: 201, ETag: revisionTag(queue.Revision), Body: encode(&view)}, err
}

// checkQueueName: letters, digits and . _ : / - are checked by the schema. A name that reads as an id is refused, because
// workers name queues by either.
func checkQueueName(c platform.Caller, name string) error {
	if _, err := orbit.ParseID(name); err == nil {
		return fault.Invalid("/name", "looks_like_an_id", "a queue name must not be 32 lower-case hexadecimal digits, the form of ids")
	}
	if !c.SeesQueue(name) {
		return fault.New(fault.Forbidden, "no queue pattern of this credential covers %q", name)
	}
	return nil
}

func newQueue(r *api.CreateQueueRequest) pulsedb.PulseQueue {
	return pulsedb.PulseQueue{
		Name:             r.Name,
		LeaseMs:          uint32(r.LeaseMs.Or(30_000)),
		OfferTimeoutMs:   uint32(r.OfferTimeoutMs.Or(10_000)),
		MaxAttempts:      uint32(r.MaxAttempts.Or(5)),
		BackoffInitialMs: uint32(r.BackoffInitialMs.Or(1_000)),
		BackoffMaxMs:     uint32(r.BackoffMaxMs.Or(300_000)),
		RetentionMs:      r.RetentionMs.Or(7 * 24 * 3_600_000),
		OneStep:          r.OneStep.Or(false),
		UnknownOutcome:   orbit.UnknownOutcome(r.UnknownOutcome.Or(api.CreateQueueRequestUnknownOutcome(orbit.UnknownReview))),
	}
}

// storedID reads the id of the resource out of a reply, which may have been written by an older program.
func storedID(reply []byte) string {
	var r struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(reply, &r)
	return r.ID
}
