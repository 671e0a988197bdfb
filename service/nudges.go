package service

import (
	"context"
	"net/netip"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/nudge"
)

// wireNudges has tasks that become ready here wake claims that wait on other replicas, and the other way round. Without a connection each
// replica finds what others made ready by the peek of its backstop alone.
func (s *Service) wireNudges() {
	if s.options.NudgeConn == nil {
		return
	}
	s.nudges = nudge.New(s.options.NudgeConn, func(h nudge.Hint) { s.pulse.Nudged(h.NamespaceID, h.QueueID, h.N) }, s.metrics.countNudge)
	s.pulse.Nudge = func(namespaceID, queueID orbit.ID, n int) {
		s.nudges.Send(nudge.Hint{NamespaceID: namespaceID, QueueID: queueID, N: n})
	}
	s.platform.Replica.NudgeKey = orbit.Digest(s.nudges.Key())
	if s.options.NudgeAddress.IsValid() {
		s.platform.Replica.NudgeAddress = s.options.NudgeAddress.String()
	}
	s.platform.MaxPeers = nudge.MaxPeers
	s.platform.OnPeers = func(rows []platformdb.HostListPeersRow) {
		var peers []nudge.Peer
		for _, r := range rows {
			if address, err := netip.ParseAddrPort(r.NudgeAddress); err == nil {
				peers = append(peers, nudge.Peer{Address: address, Key: nudge.Key(r.NudgeKey)})
			}
		}
		s.nudges.SetPeers(peers)
	}
}

// RunNudges sends and receives nudges until ctx ends, and then closes Options.NudgeConn. RunLoops does it too; it is for who runs passes by hand.
func (s *Service) RunNudges(ctx context.Context) {
	if s.nudges != nil {
		s.nudges.Run(ctx)
	}
}
