package pulse

import (
	"context"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// UpdateQueue changes the members of the policy that a merge patch names. If-Match settles a repeat, which gets revision_mismatch;
// of two with one tag, one wins. A patch that changes nothing raises the revision all the same.
func (s *Service) UpdateQueue(ctx context.Context, req *api.UpdateQueueRequest, params api.UpdateQueueParams) (*api.QueueHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionQueuesManage)
	if err != nil {
		return nil, err
	}
	want, err := readMatch(params.IfMatch, true)
	if err != nil {
		return nil, err
	}
	var reply api.QueueHeaders
	err = s.Lane.Run(ctx, "updateQueue", func(ctx context.Context, tx *dbtx.Tx) error {
		q := pulsedb.New(tx)
		queue, err := grantedQueue(ctx, q, caller, params.QueueID, kindQueue)
		if err != nil {
			return err
		}
		if err := want.check(revisionTag(queue.Revision)); err != nil {
			return err
		}
		if err := updateQueue(ctx, tx, caller, &queue, req); err != nil {
			return err
		}
		gate, err := queueGate(ctx, q, queue)
		reply = api.QueueHeaders{ETag: revisionTag(queue.Revision), Response: viewQueue(queue, gate.State == orbit.GateClosed)}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &reply, nil
}

func updateQueue(ctx context.Context, tx *dbtx.Tx, c platform.Caller, queue *pulsedb.PulseQueue, req *api.UpdateQueueRequest) error {
	changed := patchQueue(queue, req)
	if err := checkPolicy(*queue); err != nil {
		return err
	}
	n, err := pulsedb.New(tx).UpdateQueue(ctx, pulsedb.UpdateQueueParams{
		LeaseMs: queue.LeaseMs, OfferTimeoutMs: queue.OfferTimeoutMs, MaxAttempts: queue.MaxAttempts,
		BackoffInitialMs: queue.BackoffInitialMs, BackoffMaxMs: queue.BackoffMaxMs, RetentionMs: queue.RetentionMs,
		UnknownOutcome: queue.UnknownOutcome, OneStep: queue.OneStep, NowAt: tx.Now, NamespaceID: queue.NamespaceID, ID: queue.ID, Revision: queue.Revision,
	})
	if err := dbtx.Swapped(n, err); errors.Is(err, dbtx.ErrLost) {
		return fault.New(fault.RevisionMismatch, "somebody else changed the queue just now: read it again and decide anew")
	} else if err != nil {
		return err
	}
	queue.Revision, queue.UpdatedAt = queue.Revision+1, tx.Now
	emit(tx, queue.NamespaceID, c.ActorID.Null(), kindQueue, queue.ID, queue.Revision, "queue.updated", facts{"changed": changed})
	return platform.Audit(ctx, tx, c, platform.Act{Action: "updateQueue", TargetKind: kindQueue, TargetID: queue.ID,
		Detail: map[string]any{"name": queue.Name, "changed": changed}})
}

// change is one changed member of a policy.
type change struct {
	From any `json:"from"`
	To   any `json:"to"`
}

// patchQueue applies a patch and answers what it changed. The schema has checked the range of each member.
func patchQueue(queue *pulsedb.PulseQueue, p *api.UpdateQueueRequest) map[string]change {
	changed := map[string]change{}
	patch(changed, "lease_ms", &queue.LeaseMs, uint32(p.LeaseMs.Value), p.LeaseMs.Set)
	patch(changed, "offer_timeout_ms", &queue.OfferTimeoutMs, uint32(p.OfferTimeoutMs.Value), p.OfferTimeoutMs.Set)
	patch(changed, "max_attempts", &queue.MaxAttempts, uint32(p.MaxAttempts.Value), p.MaxAttempts.Set)
	patch(changed, "backoff_initial_ms", &queue.BackoffInitialMs, uint32(p.BackoffInitialMs.Value), p.BackoffInitialMs.Set)
	patch(changed, "backoff_max_ms", &queue.BackoffMaxMs, uint32(p.BackoffMaxMs.Value), p.BackoffMaxMs.Set)
	patch(changed, "retention_ms", &queue.RetentionMs, p.RetentionMs.Value, p.RetentionMs.Set)
	patch(changed, "unknown_outcome", &queue.UnknownOutcome, orbit.UnknownOutcome(p.UnknownOutcome.Value), p.UnknownOutcome.Set)
	patch(changed, "one_step", &queue.OneStep, p.OneStep.Value, p.OneStep.Set)
	return changed
}

func patch[T comparable](changed map[string]change, name string, member *T, to T, given bool) {
	if given && *member != to {
		changed[name] = change{From: *member, To: to}
		*member = to
	}
}
