package service

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/orbit-run/orbit/service/internal/loop"
)

// Loops are the background passes of all modules. Any number of replicas run them without a leader.
func (s *Service) Loops() []loop.Loop {
	return append(s.platform.Loops(), s.pulse.Loops()...)
}

// Roles are what this process does; a replica has one or both.
type Roles struct {
	API    bool // serves requests
	Engine bool // moves tasks and events on
}

// RunLoops runs the passes of the roles, and the nudges, until ctx ends and each is over, writes what was counted but not yet written, and takes the replica off the
// list.
func (s *Service) RunLoops(ctx context.Context, roles Roles) {
	loops := slices.DeleteFunc(s.Loops(), func(l loop.Loop) bool {
		return l.Role == loop.API && !roles.API || l.Role == loop.Engine && !roles.Engine
	})
	if _, err := s.platform.RenewReplica(ctx); err != nil { // at once, so that others know it soon; the pass comes again
		s.options.Logger.Warn("registering", "error", err)
	}
	var nudges sync.WaitGroup
	nudges.Go(func() { s.RunNudges(ctx) })
	loop.Run(ctx, loops, s.options.Logger, s.metrics.observePass)
	nudges.Wait()
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
