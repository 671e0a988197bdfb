package platform

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

const (
	// renewInterval is how often a replica renews its row.
	renewInterval = 2 * time.Second
	// deadAfter is when the row of a silent replica is forgotten.
	deadAfter = 10 * time.Minute
)

// RenewReplica registers this replica or renews its row. A renewal that comes later than Replica.Grace after the one before, or is
// answered by another server, begins a new run. Then it looks who else is alive.
func (s *Service) RenewReplica(ctx context.Context) (int, error) {
	var now time.Time
	err := s.Batch.Run(ctx, "renew_replica", func(ctx context.Context, tx *dbtx.Tx) error {
		now = tx.Now
		r := s.Replica
		return platformdb.New(tx).HostUpsertReplica(ctx, platformdb.HostUpsertReplicaParams{
			ID: r.ID, NowAt: now, GapAt: now.Add(-r.Grace), Host: r.Host, Version: r.Version, NudgeAddress: r.NudgeAddress, NudgeKey: r.NudgeKey,
		})
	})
	if err != nil || s.OnPeers == nil {
		return 0, err
	}
	peers, err := platformdb.New(s.Batch.DB).HostListPeers(ctx, platformdb.HostListPeersParams{SinceAt: now.Add(-s.Replica.Grace), ID: s.Replica.ID, Limit: s.MaxPeers})
	if err == nil {
		s.OnPeers(peers)
	}
	return 0, err
}

// FreshFor tells for how long, up to its last renewal, this replica has been alive without a gap on the server that conn is connected to; 0 if
// it is not alive at now, an instant of that server's clock. It reads the durable row: what a replica remembers of itself proves nothing.
func (s *Service) FreshFor(ctx context.Context, conn platformdb.DBTX, now time.Time) (time.Duration, error) {
	row, err := platformdb.New(conn).HostFreshReplica(ctx, s.Replica.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if now.Sub(row.RenewedAt) > s.Replica.Grace {
		return 0, nil
	}
	return max(0, row.RenewedAt.Sub(row.FreshSince)), nil
}

// ForgetReplicas removes the rows of replicas that have been silent for long. One that comes back registers anew.
func (s *Service) ForgetReplicas(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	n, err := platformdb.New(s.Batch.DB).HostDeleteDeadReplicas(ctx, platformdb.HostDeleteDeadReplicasParams{DeadAt: now.Add(-deadAfter), Limit: 100})
	return int(n), err
}

// LeaveReplica removes this replica's row at its end.
func (s *Service) LeaveReplica(ctx context.Context) error {
	_, err := platformdb.New(s.Batch.DB).HostDeleteReplica(ctx, s.Replica.ID)
	return err
}
