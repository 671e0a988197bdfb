package platform

import (
	"time"

	"github.com/orbit-run/orbit/service/internal/loop"
)

// Loops are the background passes of the module.
func (s *Service) Loops() []loop.Loop {
	return []loop.Loop{
		{Name: "renew_replica", Role: loop.Always, Interval: renewInterval, Pass: s.RenewReplica},
		{Name: "forget_replicas", Interval: time.Minute, Pass: s.ForgetReplicas},
		{Name: "sequence_events", Interval: 30 * time.Millisecond, Idle: time.Second, Pass: s.SequenceEvents, Wake: s.spooled},
		{Name: "trim_events", Interval: 15 * time.Second, Idle: time.Minute, Pass: s.TrimEvents, Full: trimBatches},
		{Name: "retire_keys", Interval: 10 * time.Second, Idle: time.Minute, Pass: s.RetireKeys, Full: RetireKeysBatch},
		{Name: "touch_credentials", Role: loop.API, Interval: 5 * time.Second, Pass: s.TouchCredentials},
		{Name: "audit_denials", Role: loop.API, Interval: time.Minute, Pass: s.AuditDenials},
	}
}

// gathering is how long the first events after a pause wait for others to be sequenced with them.
const gathering = 10 * time.Millisecond

// Spooled has events sequenced that this replica has just committed. The sequencer comes by itself too, and for those of others.
func (s *Service) Spooled() { s.spooled.In(gathering) }
