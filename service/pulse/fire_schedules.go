package pulse

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// fireRows bounds the occurrences of one transaction.
const fireRows = 500

// FireSchedules deals with the instants that are due: occurrence, task, watermark and next fire of a schedule in one transaction.
//
// An instant is dealt with once: all that makes occurrences of a schedule holds its row, and only the instants after its watermark, which is kept, are
// due. Whatever died or was raced before the commit left nothing; whatever comes after it finds the watermark moved. Time in which
// no replica ran is made up for by the same look. A schedule that is held elsewhere is left to the next pass, and one that fails
// harms no other.
func (s *Service) FireSchedules(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	due, err := pulsedb.New(s.Batch.DB).DueSchedules(ctx, pulsedb.DueSchedulesParams{NowAt: now, Limit: passRows})
	if err != nil {
		return 0, err
	}
	moved := 0
	var failures []error
	for _, group := range perNamespace(due, func(r pulsedb.DueSchedulesRow) orbit.ID { return r.NamespaceID }) {
		ids := make([]orbit.ID, len(group))
		for i, r := range group {
			ids[i] = r.ID
		}
		n, err := s.fireApart(ctx, group[0].NamespaceID, ids)
		moved += n
		switch {
		case err == nil:
		case dbtx.IsAway(err):
			return moved, err
		default:
			failures = append(failures, err)
		}
	}
	return moved, errors.Join(failures...)
}

// fireApart fires schedules together or, if that fails, each by itself.
func (s *Service) fireApart(ctx context.Context, ns orbit.ID, ids []orbit.ID) (int, error) {
	n, err := s.fire(ctx, ns, ids)
	switch {
	case err == nil || dbtx.IsAway(err) && !dbtx.IsLockWait(err):
		return n, err
	case len(ids) == 1 && dbtx.IsLockWait(err):
		return 0, nil
	case len(ids) == 1:
		return 0, fmt.Errorf("schedule %s: %w", ids[0], err)
	}
	moved := 0
	var failures []error
	for i := range ids {
		n, err := s.fireApart(ctx, ns, ids[i:i+1])
		moved += n
		if err != nil {
			failures = append(failures, err)
		}
	}
	return moved, errors.Join(failures...)
}

func (s *Service) fire(ctx context.Context, ns orbit.ID, ids []orbit.ID) (int, error) {
	moved := 0
	err := s.Batch.Run(ctx, "fireSchedules", func(ctx context.Context, tx *dbtx.Tx) error {
		moved = 0
		q := pulsedb.New(tx)
		rows, err := q.LockSchedules(ctx, pulsedb.LockSchedulesParams{NamespaceID: ns, Ids: ids})
		if err != nil {
			return err
		}
		held, err := s.withVersions(ctx, q, ns, rows)
		if err != nil {
			return err
		}
		limit := max(1, fireRows/max(1, len(held)))
		n, _, err := s.fireHeld(ctx, tx, ns, held, limit)
		moved = n
		return err
	})
	return moved, err
}

// fireHeld deals with the due instants of schedules whose rows are held, up to a limit for each. It answers how many they were, and whether all
// were dealt with.
func (s *Service) fireHeld(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, held []*heldSchedule, limit int) (n int, all bool, err error) {
	var occasions []*occasion
	all = true
	for _, h := range held {
		if h.NextFireAt == nil || h.NextFireAt.After(tx.Now) {
			continue
		}
		p := planFires(h.table, h.Watermark, tx.Now, time.Duration(h.version.CatchUpWindowMs)*time.Millisecond, int(h.version.CatchUpMax), limit)
		o := &occasion{schedule: h, overlap: h.version.RunOverlap, source: orbit.SourceTimetable}
		for _, due := range p.due {
			o.wishes = append(o.wishes, &wish{instant: due})
		}
		occasions = append(occasions, o)
		n += len(p.due)
		all = all && (p.next == nil || p.next.After(tx.Now))
		from := h.Watermark
		h.Watermark, h.NextFireAt = p.watermark(from), p.next
		s.wakeFor(tx, h.NextFireAt)
		if _, err := pulsedb.New(tx.Later(1)).MoveSchedule(ctx, pulsedb.MoveScheduleParams{
			Watermark: h.Watermark, NextFireAt: h.NextFireAt, NamespaceID: ns, ID: h.ID, FromWatermark: from}); err != nil {
			return 0, false, err
		}
	}
	if len(occasions) == 0 {
		return 0, true, nil
	}
	return n, all, s.occur(ctx, tx, ns, occasions)
}

// wakeFor has this replica's loop come for a fire that is to come.
func (s *Service) wakeFor(tx *dbtx.Tx, next *time.Time) {
	if next != nil {
		at := *next
		tx.OnCommit(func() { wakeAt(s.due.fires, tx.Now, at) })
	}
}
