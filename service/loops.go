package service

import (
	"context"
	"errors"
	"time"

	"github.com/orbit-run/orbit/service/internal/loop"
)

// Loops are the background passes of all modules. Any number of replicas run them without a leader.
func (s *Service) Loops() []loop.Loop {
	return append(s.platform.Loops(), s.pulse.Loops()...)
}

// RunLoops runs the passes until ctx ends and each is over, writes what was counted but not yet written, and takes the replica off the list.
func (s *Service) RunLoops(ctx context.Context) {
	loop.Run(ctx, s.Loops(), s.options.Logger, s.metrics.observePass)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	_, denials := s.platform.AuditDenials(ctx)
	_, touches := s.platform.TouchCredentials(ctx)
	if err := errors.Join(denials, touches, s.platform.LeaveReplica(ctx)); err != nil {
		s.options.Logger.Warn("leaving", "error", err)
	}
}

// leaveTime bounds what a replica does after its loops have ended.
const leaveTime = 5 * time.Second
