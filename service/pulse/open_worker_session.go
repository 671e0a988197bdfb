package pulse

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// OpenWorkerSession opens a worker's name for a new incarnation: the epoch rises and the older incarnation is fenced from the commit on; recovery
// then ends its attempts. A repeat with the current instance_id gets the same epoch; one that was superseded or closed is
// session_superseded, so that a delayed duplicate fences nobody. Of several at once each gets its own epoch, and the last stays.
func (s *Service) OpenWorkerSession(ctx context.Context, req *api.OpenWorkerSessionRequest) (*api.WorkerSession, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksExecute)
	if err != nil {
		return nil, err
	}
	var opened *api.WorkerSession
	open := func(ctx context.Context, tx *dbtx.Tx) (err error) {
		opened, err = s.open(ctx, tx, caller, req)
		return err
	}
	err = s.Lane.Run(ctx, "openWorkerSession", open)
	if dbtx.IsDuplicate(err) || errors.Is(err, errOtherWorker) { // perhaps new to two calls at once: the other is committed now
		err = s.Lane.Run(ctx, "openWorkerSession", open)
	}
	if errors.Is(err, errOtherWorker) {
		return nil, fault.New(fault.StateConflict, "this instance_id was used for another worker; make a new random one for each process")
	}
	return opened, err
}

// errOtherWorker tells that the instance exists and its session is not the one of this name, or was not there a moment before.
var errOtherWorker = errors.New("the instance is another worker's")

func (s *Service) open(ctx context.Context, tx *dbtx.Tx, c platform.Caller, req *api.OpenWorkerSessionRequest) (*api.WorkerSession, error) {
	q := pulsedb.New(tx)
	queues, err := findQueueIDs(ctx, q, c, req.Queues)
	if err != nil {
		return nil, err
	}
	session, err := q.LockSession(ctx, pulsedb.LockSessionParams{NamespaceID: c.NamespaceID, WorkerName: req.WorkerName})
	fresh := errors.Is(err, sql.ErrNoRows)
	if err != nil && !fresh {
		return nil, err
	}
	if !fresh && session.ActorID != c.ActorID {
		return nil, fault.New(fault.StateConflict, "the worker name %q belongs to another actor; choose another name", req.WorkerName)
	}
	known, err := q.GetInstance(ctx, pulsedb.GetInstanceParams{NamespaceID: c.NamespaceID, ID: req.InstanceID})
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return nil, err
	case fresh || known.SessionID != session.ID:
		return nil, errOtherWorker
	case session.InstanceID != known.ID:
		return nil, fault.New(fault.SessionSuperseded, "a newer incarnation of this worker holds the session (epoch %d); this one must stop", session.Epoch)
	case session.ClosedAt != nil:
		return nil, fault.New(fault.StateConflict, "this instance was closed; open the session with a new instance_id")
	default:
		return workerSession(session.ID, known), nil
	}
	if fresh {
		session = pulsedb.PulseWorkerSession{ID: orbit.NewID(tx.Now), Epoch: 1}
		err = q.InsertSession(ctx, pulsedb.InsertSessionParams{NamespaceID: c.NamespaceID, ID: session.ID, WorkerName: req.WorkerName,
			ActorID: c.ActorID, InstanceID: req.InstanceID, CreatedAt: tx.Now, UpdatedAt: tx.Now})
	} else {
		err = s.advance(ctx, tx, c.NamespaceID, session, req.InstanceID)
		session.Epoch++
	}
	if err != nil {
		return nil, err
	}
	return s.addInstance(ctx, tx, c, req, session, queues)
}

// advance fences the older incarnation. Its row is marked for the sweep, unless it was closed and is marked already.
func (s *Service) advance(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, session pulsedb.PulseWorkerSession, instanceID orbit.ID) error {
	q := pulsedb.New(tx)
	n, err := q.AdvanceSession(ctx, pulsedb.AdvanceSessionParams{InstanceID: instanceID, NowAt: tx.Now, NamespaceID: ns, ID: session.ID, Epoch: session.Epoch})
	if err := dbtx.Swapped(n, err); err != nil {
		return err
	}
	if session.ClosedAt != nil {
		return nil
	}
	n, err = q.SupersedeInstance(ctx, pulsedb.SupersedeInstanceParams{NowAt: tx.Now, NamespaceID: ns, ID: session.InstanceID})
	return dbtx.Swapped(n, err)
}

func (s *Service) addInstance(ctx context.Context, tx *dbtx.Tx, c platform.Caller, req *api.OpenWorkerSessionRequest, session pulsedb.PulseWorkerSession, queues []orbit.ID) (*api.WorkerSession, error) {
	queueJSON, err := json.Marshal(queues)
	if err != nil {
		return nil, err
	}
	typesJSON, err := json.Marshal(req.Types)
	if err != nil {
		return nil, err
	}
	instance := pulsedb.PulseWorkerInstance{ID: req.InstanceID, Epoch: session.Epoch, OpenedAt: tx.Now}
	if err := pulsedb.New(tx).InsertInstance(ctx, pulsedb.InsertInstanceParams{
		NamespaceID: c.NamespaceID, ID: req.InstanceID, SessionID: session.ID, Epoch: session.Epoch, Host: req.Host.Or(""), Version: req.Version.Or(""),
		Queues: queueJSON, Types: typesJSON, Slots: uint32(req.Slots), HeartbeatAt: tx.Now, OpenedAt: tx.Now}); err != nil {
		return nil, err
	}
	emit(tx, c.NamespaceID, c.ActorID.Null(), kindWorker, session.ID, session.Epoch, "worker.opened", facts{"instance_id": req.InstanceID, "worker_name": req.WorkerName})
	return workerSession(session.ID, instance), nil
}

func workerSession(sessionID orbit.ID, i pulsedb.PulseWorkerInstance) *api.WorkerSession {
	return &api.WorkerSession{SessionID: sessionID, InstanceID: i.ID, Epoch: i.Epoch, OpenedAt: i.OpenedAt, HeartbeatIntervalMs: HeartbeatInterval.Milliseconds()}
}

// lockOwnSession holds the session head of a call exclusively, and checks that the call's incarnation is the current one.
func lockOwnSession(ctx context.Context, q *pulsedb.Queries, c *workerCall) (pulsedb.PulseWorkerSession, error) {
	instance, err := q.GetInstance(ctx, pulsedb.GetInstanceParams{NamespaceID: c.caller.NamespaceID, ID: c.instanceID})
	if errors.Is(err, sql.ErrNoRows) {
		return pulsedb.PulseWorkerSession{}, fault.Missing("worker instance")
	}
	if err != nil {
		return pulsedb.PulseWorkerSession{}, err
	}
	session, err := q.LockSessionByID(ctx, pulsedb.LockSessionByIDParams{NamespaceID: c.caller.NamespaceID, ID: instance.SessionID})
	switch {
	case err != nil:
		return session, err
	case session.ActorID != c.caller.ActorID:
		return session, fault.Missing("worker instance")
	case session.InstanceID != c.instanceID || session.Epoch != c.epoch:
		return session, errSuperseded(pulsedb.ShareFencesRow{Epoch: session.Epoch})
	}
	return session, nil
}
