package platform

import (
	"log/slog"
	"strconv"
	"testing"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/fault"
)

func TestDenialsAreAggregatedAndKeptAfterAFailure(t *testing.T) {
	s := New(Service{Log: slog.New(slog.DiscardHandler)})
	c := Caller{NamespaceID: orbit.NewID(noon), CredentialID: orbit.NewID(noon), RequestID: "first"}
	s.Denied(c, "listTasks", fault.Forbidden)
	c.RequestID = "second"
	s.Denied(c, "listTasks", fault.Forbidden)
	s.Denied(c, "getTask", fault.Forbidden)
	taken := s.denials.take()
	kind := denial{c.NamespaceID, c.ActorID, c.CredentialID, "listTasks", fault.Forbidden}
	if len(taken) != 2 || taken[kind] != (denied{2, "second"}) {
		t.Fatalf("%v", taken)
	}
	c.RequestID = "third"
	s.Denied(c, "listTasks", fault.Forbidden)
	s.denials.giveBack(taken)
	if again := s.denials.take(); len(again) != 2 || again[kind] != (denied{3, "third"}) {
		t.Fatalf("after a failed writing: %v", again)
	}
	for i := range maxDenials + 10 {
		s.Denied(c, strconv.Itoa(i), fault.Forbidden)
	}
	if n := len(s.denials.take()); n != maxDenials {
		t.Errorf("%d kinds are kept, want %d", n, maxDenials)
	}
}
