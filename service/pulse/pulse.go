// Package pulse is the task queues: accepted exactly once, offered, started, ended with a receipt.
//
// An open task has exactly one ready, scheduled or blocked row or live attempt. Deleting or swapping that row, one row
// affected, is the only licence to move the task, and everything that moves one begins there. Rows are locked in one order:
//
//	idempotency keys → session head → instance → schedule → gate root → limits → working row → attempt → task → receipt → occurrence → events → spool
package pulse

import (
	"context"
	"log/slog"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/combine"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/timetable"
	"github.com/orbit-run/orbit/service/platform"
)

// Service is the pulse module. Its methods named as operations are the operations; all are safe for concurrent use.
type Service struct {
	Platform *platform.Service
	// Lane runs single items; lock wait 5 s.
	Lane *dbtx.Pool
	// Batch runs many items in one transaction; lock wait 1 s. What a batch cannot judge goes to the lane.
	Batch *dbtx.Pool
	Log   *slog.Logger
	// Problem renders a refusal of one item of a batch.
	Problem func(ctx context.Context, err error) api.Problem
	// Fresh tells for how long this replica has been alive without a gap on the database server of conn, as its durable row says.
	Fresh func(ctx context.Context, conn pulsedb.DBTX, now time.Time) (time.Duration, error)

	// Nudge tells other replicas that n tasks of a queue became ready, for as many of their waiting claims. It is a hint and never blocks; nil
	// tells nobody.
	Nudge func(namespaceID, queueID orbit.ID, n int)

	waiters  *waiters
	presence *presence
	due      alarms
	opened   *lru.Cache[instanceKey, []queueRef] // what incarnations were opened with
	// timetables are those of schedules' versions, which never change.
	timetables *lru.Cache[versionKey, *timetable.Timetable]

	// Each operation is written once, for a batch; concurrent calls share transactions through these. New says which function runs each.
	submits                           *combine.Combiner[[]*submitCall]
	claims                            *combine.Combiner[*claimCall]
	starts, beats, finishes, releases *workerOp
}

// New makes the module; the fields of s that are exported must be set.
func New(s Service) *Service {
	s.waiters = newWaiters()
	s.presence = &presence{by: map[incarnation]*attendance{}}
	s.due = newAlarms()
	s.timetables, _ = lru.New[versionKey, *timetable.Timetable](maxTimetables) // fails for a size below 1 only
	s.opened, _ = lru.New[instanceKey, []queueRef](maxOpened)                  // fails for a size below 1 only
	s.submits = &combine.Combiner[[]*submitCall]{Patience: patience, Run: func(_ orbit.ID, groups [][]*submitCall) {
		s.submitTogether(slices.Concat(groups...))
	}}
	s.claims = &combine.Combiner[*claimCall]{Patience: patience, Run: s.claimTogether}
	s.starts = newWorkerOp(&s, "startAttempts", waitsAlone, s.start)
	s.starts.gated = true
	s.beats = newWorkerOp(&s, "heartbeatAttempts", comesAgain, s.beat)
	s.finishes = newWorkerOp(&s, "finishAttempts", waitsAlone, s.finish)
	s.releases = newWorkerOp(&s, "releaseAttempts", waitsAlone, s.release)
	return &s
}

const (
	// maxOpened bounds what is remembered of incarnations.
	maxOpened = 8192
	// HeartbeatInterval is how often an instance is asked to show life.
	HeartbeatInterval = 10 * time.Second
	// silence is after how long without a sign of life an instance is shown as expired; its leases end by themselves.
	silence = 60 * time.Second
	// patience is after how long a batch that is stuck no longer holds up the next.
	patience = 100 * time.Millisecond
	// maxTimetables bounds the timetables that are kept ready.
	maxTimetables = 20_000
	// maxText bounds what is kept of error messages and reasons, in bytes.
	maxText = 4096
)
