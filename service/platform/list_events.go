package platform

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
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
	events, err := eventsAbove(ctx, q, caller.NamespaceID, from, after, page.Size(params.Limit.Or(0)))
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
	shown := &api.EventPage{Items: make([]api.Event, 0, len(events)), NextAfter: strconv.FormatInt(after, 10)}
	for _, r := range events {
		e := api.Event{Position: strconv.FormatInt(r.position, 10), Type: r.Type, AggregateKind: r.AggregateKind, AggregateID: r.AggregateID,
			Version: r.Version, OccurredAt: r.OccurredAt, Actor: actor(r.ActorID), Data: jx.Raw(r.Data)}
		shown.Items = append(shown.Items, e)
		shown.NextAfter = e.Position
	}
	return shown, nil
}

// placedEvent is an event with its position.
type placedEvent struct {
	platformdb.ListEventsRow
	position int64
}

// eventsAbove gives up to limit events above a position, in their order, beginning to look at the batch that starts at from. It reads no
// more batches than those events are in.
func eventsAbove(ctx context.Context, q *platformdb.Queries, ns orbit.ID, from, after int64, limit int) ([]placedEvent, error) {
	// Each batch has an event, and all events of the first one may be at or below the position.
	log, err := q.ListLog(ctx, platformdb.ListLogParams{NamespaceID: ns, FromPosition: from, Limit: int32(limit + 1)})
	if err != nil {
		return nil, err
	}
	first := map[orbit.ID]int64{}
	var ids []orbit.ID
	for _, b := range log {
		if b.FirstPosition > after+int64(limit) {
			break
		}
		first[b.BatchID] = b.FirstPosition
		ids = append(ids, b.BatchID)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := q.ListEvents(ctx, platformdb.ListEventsParams{NamespaceID: ns, BatchIds: ids})
	if err != nil {
		return nil, err
	}
	events := make([]placedEvent, 0, len(rows))
	for _, r := range rows {
		if e := (placedEvent{r, first[r.BatchID] + int64(r.Ordinal)}); e.position > after {
			events = append(events, e)
		}
	}
	slices.SortFunc(events, func(a, b placedEvent) int { return cmp.Compare(a.position, b.position) })
	return events[:min(len(events), limit)], nil
}

// actor is how it is shown who acted.
func actor(id orbit.NullID) string {
	if !id.Valid {
		return "system"
	}
	return id.ID.String()
}
