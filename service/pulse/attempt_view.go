package pulse

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

func attemptSummary(r pulsedb.ListTaskAttemptsRow) api.AttemptSummary {
	a := api.AttemptSummary{
		ID: r.ID, TaskID: r.TaskID, QueueID: r.QueueID, Generation: r.Generation, State: api.AttemptState(r.State), WorkerName: r.WorkerName,
		InstanceID: r.InstanceID, Epoch: r.Epoch, ClaimSeq: r.ClaimSeq, CancelRequested: r.CancelRequestedAt != nil,
		OfferedAt: r.OfferedAt, StartedAt: optTime(r.StartedAt), EndedAt: optTime(r.EndedAt), Failure: optFailure(r.EndCode, r.EndMessage),
	}
	switch r.State {
	case orbit.AttemptOffered:
		a.OfferExpiresAt = optTime(r.LeaseUntil)
	case orbit.AttemptRunning:
		a.LeaseUntil = optTime(r.LeaseUntil)
	}
	return a
}

// requireAttempt answers Missing for an attempt that does not exist for the caller.
func requireAttempt(ctx context.Context, q *pulsedb.Queries, c platform.Caller, id orbit.ID) error {
	queueID, err := q.GetAttemptQueue(ctx, pulsedb.GetAttemptQueueParams{NamespaceID: c.NamespaceID, ID: id})
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing(kindAttempt)
	}
	if err != nil {
		return err
	}
	return requireQueue(ctx, q, c, queueID, kindAttempt)
}

// rawJSON is business JSON as it was sent; nil text is an absent member.
func rawJSON(text *string) jx.Raw {
	if text == nil {
		return nil
	}
	return jx.Raw(*text)
}
