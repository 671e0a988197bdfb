package pulse

import (
	"context"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// MaxProgress is the largest progress document, in bytes.
const MaxProgress = 64 << 10

// HeartbeatAttempts shows life, renews the leases of running attempts from now, keeps their progress and tells what should stop. A lease
// past its end is renewed as long as recovery has not taken it. A repeat renews again.
func (s *Service) HeartbeatAttempts(ctx context.Context, req *api.HeartbeatAttemptsRequest) (jx.Raw, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksExecute)
	if err != nil {
		return nil, err
	}
	if err := checkCount(len(req.Items), 0); err != nil {
		return nil, err
	}
	c := &workerCall{caller: caller, instanceID: req.InstanceID, epoch: req.Epoch}
	for k, raw := range req.Items {
		c.items = append(c.items, decodeHeartbeat(ctx, c, raw, k))
	}
	if len(c.items) > 0 || !s.presence.isCurrent(c.incarnation()) {
		if err := s.perform(ctx, s.beats, c); err != nil {
			return nil, err
		}
	}
	return encodeItems(c.items, func(i *item) *api.HeartbeatResult {
		if i.err != nil {
			status, problem := s.problem(ctx, i.err)
			return &api.HeartbeatResult{Status: status, Problem: problem}
		}
		return &api.HeartbeatResult{Status: 200, Attempt: api.NewOptRenewedAttempt(i.renewed)}
	}), nil
}

func decodeHeartbeat(ctx context.Context, c *workerCall, raw jx.Raw, place int) *item {
	var in api.HeartbeatItem
	err := decodeItem(ctx, raw, place, &in)
	i := &item{call: c, attemptID: in.AttemptID, token: readToken(in.Token), err: err}
	if err == nil && len(in.Progress) > MaxProgress {
		i.err = fault.New(fault.PayloadTooLarge, "progress has %d bytes; at most %d are kept", len(in.Progress), MaxProgress)
	}
	if len(in.Progress) > 0 {
		text := string(in.Progress)
		i.progress = &text
	}
	return i
}

func (s *Service) beat(ctx context.Context, tx *dbtx.Tx, b *workerBatch) error {
	q := pulsedb.New(tx)
	items := b.fenceCurrent()
	alive := map[orbit.ID]bool{}
	for _, c := range b.calls {
		if c.err == nil && !c.again {
			alive[c.instanceID] = true
		}
	}
	if len(alive) == 0 {
		return nil
	}
	if _, err := pulsedb.New(tx.Later(len(alive))).BeatInstances(ctx, pulsedb.BeatInstancesParams{NowAt: tx.Now, NamespaceID: b.ns, Ids: keys(alive)}); err != nil {
		return err
	}
	held, err := b.hold(ctx, q, items)
	if err != nil {
		return err
	}
	var running []orbit.ID
	for i, e := range held {
		a := e.attempt
		if a.State != orbit.AttemptRunning {
			i.err = beatOver(a)
			continue
		}
		running = append(running, a.ID)
		i.renewed = api.RenewedAttempt{AttemptID: a.ID, LeaseUntil: tx.Now.Add(time.Duration(a.LeaseMs) * time.Millisecond), CancelRequested: a.CancelRequestedAt != nil}
	}
	if len(running) == 0 {
		return nil
	}
	if _, err := pulsedb.New(tx.Later(len(running))).BeatAttempts(ctx, pulsedb.BeatAttemptsParams{NowAt: tx.Now, NamespaceID: b.ns, Ids: running}); err != nil {
		return err
	}
	for i := range held {
		if i.err != nil || i.progress == nil {
			continue
		}
		if _, err := pulsedb.New(tx.Later(1)).SetProgress(ctx, pulsedb.SetProgressParams{Progress: i.progress, NamespaceID: b.ns, ID: i.attemptID}); err != nil {
			return err
		}
	}
	return nil
}

// beatOver tells why an attempt has no lease to renew.
func beatOver(a pulsedb.PulseAttempt) error {
	switch a.State {
	case orbit.AttemptOffered:
		return fault.New(fault.StaleAttempt, "the attempt was not started; an offer has no lease to renew")
	case orbit.AttemptLost:
		return fault.New(fault.LeaseLost, "the lease was lost at %s: stop; a result sent later is kept as evidence", a.EndedAt.Format(time.RFC3339Nano))
	}
	if a.EndCode == codeDeadlineExceeded || a.EndCode == codeCancelled {
		return fault.New(fault.LeaseLost, "the task has ended (%s): stop; a result sent later is kept as evidence", a.EndCode)
	}
	return fault.New(fault.StaleAttempt, "the attempt has ended (%s)", a.State)
}
