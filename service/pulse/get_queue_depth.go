package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/platform"
)

// countBound is where counts stop being exact. The counting queries read one more, which tells that there is more.
const countBound = 10_000

// GetQueueDepth counts a queue by state. What it reads is bounded whatever the queue holds.
func (s *Service) GetQueueDepth(ctx context.Context, params api.GetQueueDepthParams) (*api.QueueDepth, error) {
	caller, err := platform.Authorize(ctx, platform.ActionQueuesRead)
	if err != nil {
		return nil, err
	}
	q := s.reads()
	if _, err := grantedQueue(ctx, q, caller, params.QueueID, kindQueue); err != nil {
		return nil, err
	}
	waiting, err := q.CountQueue(ctx, pulsedb.CountQueueParams{NamespaceID: caller.NamespaceID, QueueID: params.QueueID})
	if err != nil {
		return nil, err
	}
	depth := &api.QueueDepth{
		Ready: bounded(waiting.Ready), Scheduled: bounded(waiting.Scheduled), Blocked: bounded(waiting.Blocked), Review: bounded(waiting.Review),
	}
	live, err := q.CountLive(ctx, pulsedb.CountLiveParams{NamespaceID: caller.NamespaceID, QueueID: params.QueueID.Null()})
	if err != nil {
		return nil, err
	}
	depth.Offered, depth.Running = boundedLive(live)
	depth.OldestReadyAgeMs, err = s.oldestReadyAge(ctx, q, caller.NamespaceID, params.QueueID)
	return depth, err
}

func bounded(n int64) api.BoundedCount {
	return api.BoundedCount{Count: int(min(n, countBound)), Capped: n > countBound}
}

// boundedLive: the bound is on both states together, since they share an index; beyond it neither is known exactly.
func boundedLive(rows []pulsedb.CountLiveRow) (offered, running api.BoundedCount) {
	total := int64(0)
	for _, r := range rows {
		total += r.Attempts
		switch r.State {
		case orbit.AttemptOffered:
			offered = bounded(r.Attempts)
		case orbit.AttemptRunning:
			running = bounded(r.Attempts)
		}
	}
	offered.Capped, running.Capped = total > countBound, total > countBound
	return offered, running
}

func (s *Service) oldestReadyAge(ctx context.Context, q *pulsedb.Queries, namespaceID, queueID orbit.ID) (api.OptInt64, error) {
	rankUs, err := q.OldestReady(ctx, pulsedb.OldestReadyParams{NamespaceID: namespaceID, QueueID: queueID})
	if err != nil || rankUs < 0 {
		return api.OptInt64{}, err
	}
	now, err := s.Batch.Now(ctx)
	return api.NewOptInt64(max(now.UnixMicro()-rankUs, 0) / 1000), err
}
