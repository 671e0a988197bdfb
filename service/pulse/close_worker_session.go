package pulse

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/platform"
)

// CloseWorkerSession ends an incarnation of its own accord: it is fenced from the commit on, and recovery gives its offers back and ends its
// running attempts as lost. A repeat gets the same answer; an old epoch is session_superseded.
func (s *Service) CloseWorkerSession(ctx context.Context, req *api.CloseWorkerSessionRequest) (*api.ClosedWorkerSession, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksExecute)
	if err != nil {
		return nil, err
	}
	c := &workerCall{caller: caller, instanceID: req.InstanceID, epoch: req.Epoch}
	err = s.Lane.Run(ctx, "closeWorkerSession", func(ctx context.Context, tx *dbtx.Tx) error {
		q := pulsedb.New(tx)
		session, err := lockOwnSession(ctx, q, c)
		if err != nil || session.ClosedAt != nil {
			return err
		}
		n, err := q.CloseSession(ctx, pulsedb.CloseSessionParams{NowAt: tx.Now, NamespaceID: caller.NamespaceID, ID: session.ID, Epoch: req.Epoch})
		if err := dbtx.Swapped(n, err); err != nil {
			return err
		}
		n, err = q.CloseInstance(ctx, pulsedb.CloseInstanceParams{NowAt: tx.Now, NamespaceID: caller.NamespaceID, ID: req.InstanceID, Epoch: req.Epoch})
		return dbtx.Swapped(n, err)
	})
	if err != nil {
		return nil, err
	}
	return &api.ClosedWorkerSession{InstanceID: req.InstanceID, Epoch: req.Epoch, State: api.WorkerStateClosed}, nil
}
