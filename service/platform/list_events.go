package platform

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/page"
)

// ListEvents reads the events above a position in their order, without a gap: who was given a position was given, or can still read, all
// below it, and none is ever put there later. A position below what retention left is events_trimmed.
func (s *Service) ListEvents(ctx context.Context, params api.ListEventsParams) (*api.EventPage, error) {
	caller, err := Authorize(ctx, ActionEventsRead)
	if err != nil {
		return nil, err
	}
	after, err := strconv.ParseInt(params.After.Or("0"), 10, 64)
	if err != nil || after < 0 {
		return nil, fault.Invalid("query/after", "position", "a position is a decimal number from 0 to 9223372036854775807")
	}
	q := platformdb.New(s.Batch.DB)
	from, err := q.FindLogBatch(ctx, platformdb.FindLogBatchParams{NamespaceID: caller.NamespaceID, Position: after + 1})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	rows, err := q.ListEvents(ctx, platformdb.ListEventsParams{
		NamespaceID: caller.NamespaceID, FromPosition: from, AfterPosition: after, Limit: int32(page.Size(params.Limit.Or(0)))})
	if err != nil {
		return nil, err
	}
	// The head is read after the events: what it says is not trimmed now was not trimmed while they were read.
	head, err := q.GetEventHead(ctx, caller.NamespaceID)
	if err != nil {
		return nil, err
	}
	switch {
	case after >= head.NextPosition:
		return nil, fault.Invalid("query/after", "position", "the last position given in this namespace is %d; a greater one can only come from another namespace or from before a restore", head.NextPosition-1)
	case after+1 < head.TrimmedBelow:
		return nil, fault.New(fault.EventsTrimmed, "events up to position %d are no longer kept; read on after %d, and learn what was missed from the resources themselves", head.TrimmedBelow-1, head.TrimmedBelow-1)
	}
	shown := &api.EventPage{Items: make([]api.Event, 0, len(rows)), NextAfter: strconv.FormatInt(after, 10)}
	for _, r := range rows {
		e := api.Event{Position: strconv.FormatInt(r.FirstPosition+int64(r.Ordinal), 10), Type: r.Type, AggregateKind: r.AggregateKind, AggregateID: r.AggregateID,
			Version: r.Version, OccurredAt: r.OccurredAt, Actor: actor(r.ActorID), Data: jx.Raw(r.Data)}
		shown.Items = append(shown.Items, e)
		shown.NextAfter = e.Position
	}
	return shown, nil
}

// actor is how it is shown who acted.
func actor(id orbit.NullID) string {
	if !id.Valid {
		return "system"
	}
	return id.ID.String()
}
