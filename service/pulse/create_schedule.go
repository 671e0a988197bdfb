package pulse

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// CreateSchedule makes a schedule, which fires at the instants after its creation. A repeat gets the first reply; of two under different keys with
// one name, one makes the schedule and the other gets state_conflict.
func (s *Service) CreateSchedule(ctx context.Context, req *api.CreateScheduleRequest, params api.CreateScheduleParams) (*api.CreateScheduleCreatedHeaders, error) {
	caller, err := platform.Authorize(ctx, platform.ActionSchedulesManage)
	if err != nil {
		return nil, err
	}
	if _, err := orbit.ParseID(req.Name); err == nil {
		return nil, fault.Invalid("/name", "looks_like_an_id", "a schedule's name must not be 32 lower-case hexadecimal digits, the form of ids")
	}
	d, err := define(req.Timetable, orbit.RunOverlap(req.RunOverlap.Or("")), req.CatchUpWindowMs, req.CatchUpMax, req.Task)
	if err != nil {
		return nil, err
	}
	// Before any replay: who no longer sees the queue gets no reply about it.
	queues, err := findQueues(ctx, pulsedb.New(s.Lane.DB), caller, []queueRef{d.queue})
	if err != nil {
		return nil, err
	}
	if queues[0] == nil {
		return nil, fault.Missing(kindQueue)
	}
	now, err := s.Lane.Now(ctx)
	if err != nil {
		return nil, err
	}
	id := orbit.NewID(now)
	try := platform.Try{Key: params.IdempotencyKey.Or(""), Digest: body.From(ctx).Digest, ResourceKind: kindSchedule, ResourceID: id}
	reply, err := s.Platform.Once(ctx, platform.ScopeOf(caller, "createSchedule", "/v1/schedules"), try, func(ctx context.Context, tx *dbtx.Tx) (platform.Reply, error) {
		return s.createSchedule(ctx, tx, caller, id, req.Name, d)
	})
	if err != nil {
		return nil, err
	}
	return &api.CreateScheduleCreatedHeaders{
		ETag: reply.ETag, IdempotencyReplayed: replayed(reply), Location: "/v1/schedules/" + storedID(reply.Body), Response: reply.Body,
	}, nil
}

func (s *Service) createSchedule(ctx context.Context, tx *dbtx.Tx, c platform.Caller, id orbit.ID, name string, d definition) (platform.Reply, error) {
	q := pulsedb.New(tx)
	next, err := d.complete(ctx, q, c, tx.Now)
	if err != nil {
		return platform.Reply{}, err
	}
	row := pulsedb.PulseSchedule{NamespaceID: c.NamespaceID, ID: id, Name: name, CurrentVersion: 1, Watermark: tx.Now, NextFireAt: next,
		Revision: 1, CreatedAt: tx.Now, UpdatedAt: tx.Now}
	err = q.InsertSchedule(ctx, pulsedb.InsertScheduleParams{NamespaceID: row.NamespaceID, ID: row.ID, Name: row.Name,
		Watermark: row.Watermark, NextFireAt: row.NextFireAt, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt})
	if dbtx.IsDuplicate(err) {
		return platform.Reply{}, fault.New(fault.StateConflict, "there is a schedule named %q already; publish a new version of it, or choose another name", name)
	}
	if err != nil {
		return platform.Reply{}, err
	}
	if err := d.publish(ctx, q, c, tx.Now, id, 1); err != nil {
		return platform.Reply{}, err
	}
	if err := recordSchedule(ctx, tx, c, row, "createSchedule", "schedule.created", facts{"name": name, "queue_id": d.row.QueueID}); err != nil {
		return platform.Reply{}, err
	}
	s.wakeFor(tx, next)
	return scheduleReply(201, row, d.row)
}

// recordSchedule writes the event and the audit of a change.
func recordSchedule(ctx context.Context, tx *dbtx.Tx, c platform.Caller, row pulsedb.PulseSchedule, operation, event string, data facts) error {
	emit(tx, row.NamespaceID, c.ActorID.Null(), kindSchedule, row.ID, row.Revision, event, data)
	return platform.Audit(ctx, tx, c, platform.Act{Action: operation, TargetKind: kindSchedule, TargetID: row.ID, Detail: data})
}
