package platform

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/fault"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func TestJudge(t *testing.T) {
	current, previous, other := orbit.NewToken().Digest(), orbit.NewToken().Digest(), orbit.NewToken().Digest()
	row := func(change func(*platformdb.OrbitCredential)) *reading {
		r := &reading{found: true, row: platformdb.OrbitCredential{State: orbit.CredentialActive, SecretDigest: current}}
		change(&r.row)
		return r
	}
	at := func(d time.Duration) *time.Time { when := noon.Add(d); return &when }
	rotated := func(end time.Duration) *reading {
		return row(func(r *platformdb.OrbitCredential) { r.PreviousDigest, r.PreviousExpiresAt = previous.Null(), at(end) })
	}
	for name, c := range map[string]struct {
		reading *reading
		shown   orbit.Digest
		opens   bool
	}{
		"right":                        {row(func(*platformdb.OrbitCredential) {}), current, true},
		"wrong":                        {row(func(*platformdb.OrbitCredential) {}), other, false},
		"no such credential":           {&reading{}, current, false},
		"no such credential, zero":     {&reading{}, orbit.Digest{}, false},
		"the stand-in opens nothing":   {&reading{}, nobody, false},
		"stand-in and no previous":     {row(func(*platformdb.OrbitCredential) {}), nobody, false},
		"revoked":                      {row(func(r *platformdb.OrbitCredential) { r.State = orbit.CredentialRevoked }), current, false},
		"not expired yet":              {row(func(r *platformdb.OrbitCredential) { r.ExpiresAt = at(time.Microsecond) }), current, true},
		"expired this instant":         {row(func(r *platformdb.OrbitCredential) { r.ExpiresAt = at(0) }), current, false},
		"previous in the overlap":      {rotated(time.Microsecond), previous, true},
		"previous as the overlap ends": {rotated(0), previous, false},
		"current after the overlap":    {rotated(-time.Hour), current, true},
		"other while rotating":         {rotated(time.Hour), other, false},
	} {
		f := c.reading.judge(c.shown, noon)
		if (f == nil) != c.opens || f != nil && f.Code != fault.Unauthenticated {
			t.Errorf("%s: %v", name, f)
		}
	}
}

// Only who has the secret learns what became of a credential.
func TestJudgeTellsStrangersNothing(t *testing.T) {
	gone := noon.Add(-time.Hour)
	for name, row := range map[string]platformdb.OrbitCredential{
		"active":  {State: orbit.CredentialActive, SecretDigest: orbit.NewToken().Digest()},
		"revoked": {State: orbit.CredentialRevoked, SecretDigest: orbit.NewToken().Digest()},
		"expired": {State: orbit.CredentialActive, SecretDigest: orbit.NewToken().Digest(), ExpiresAt: &gone},
	} {
		stranger := orbit.NewToken().Digest()
		unknown, known := (&reading{}).judge(stranger, noon), (&reading{found: true, row: row}).judge(stranger, noon)
		if known == nil || known.Error() != unknown.Error() {
			t.Errorf("%s: %v, want the answer for an unknown credential: %v", name, known, unknown)
		}
	}
}

func TestMismatch(t *testing.T) {
	c := Caller{NamespaceID: orbit.NewID(noon), ActorID: orbit.NewID(noon)}
	for name, p := range map[string]Presented{
		"nothing asserted": {},
		"both right":       {Namespace: c.NamespaceID.String(), Actor: c.ActorID.String()},
	} {
		if f := mismatch(p, c); f != nil {
			t.Errorf("%s: %v", name, f)
		}
	}
	for header, p := range map[string]Presented{
		"Orbit-Namespace": {Namespace: c.ActorID.String(), Actor: c.ActorID.String()},
		"Orbit-Actor":     {Namespace: c.NamespaceID.String(), Actor: c.NamespaceID.String()},
	} {
		if f := mismatch(p, c); f == nil || f.Code != fault.PrincipalMismatch || f.Errors[0].Pointer != "header/"+header {
			t.Errorf("%s: %v", header, f)
		}
	}
}

func TestRateIsPerCredential(t *testing.T) {
	a := newAccess()
	one, two := credentialRef{id: orbit.NewID(noon)}, credentialRef{id: orbit.NewID(noon)}
	for i := range 3 {
		if f := a.admit(one, 3, noon); f != nil {
			t.Fatalf("request %d of 3 a second: %v", i+1, f)
		}
	}
	f := a.admit(one, 3, noon)
	if f == nil || f.Code != fault.RateLimited || f.RetryAfter <= 0 || f.RetryAfter > time.Second {
		t.Fatalf("the 4th: %+v", f)
	}
	if again := a.admit(one, 3, noon); again == nil || again.RetryAfter != f.RetryAfter {
		t.Fatalf("a refused request used up the rate: %+v after %+v", again, f)
	}
	if f := a.admit(two, 3, noon); f != nil {
		t.Fatalf("another credential: %v", f)
	}
	if f := a.admit(one, 3, noon.Add(f.RetryAfter)); f != nil {
		t.Fatalf("after the time it was told to wait: %v", f)
	}
	for range 1000 {
		if f := a.admit(one, 0, noon); f != nil {
			t.Fatalf("without a limit: %v", f)
		}
	}
	if f := a.admit(one, 1, noon); f != nil {
		t.Fatalf("after its limit was changed: %v", f)
	}
}

func TestFailuresAreCountedByNetwork(t *testing.T) {
	a := newAccess()
	guesser := netip.MustParseAddr("2001:db8::1")
	for range failureBurst {
		if f := a.blocked(guesser, noon); f != nil {
			t.Fatalf("within the burst: %v", f)
		}
		a.fail(guesser, noon)
	}
	for address, want := range map[string]bool{
		"2001:db8::1": true, "2001:db8::ffff:1:2:3": true, "2001:db8:0:1::1": false, "192.0.2.1": false, "::ffff:192.0.2.1": false,
	} {
		if f := a.blocked(netip.MustParseAddr(address), noon); (f != nil) != want {
			t.Errorf("%s: %v, want blocked: %t", address, f, want)
		}
	}
	f := a.blocked(guesser, noon)
	if f.Code != fault.RateLimited || f.RetryAfter <= 0 {
		t.Errorf("%+v", f)
	}
	if f := a.blocked(guesser, noon.Add(f.RetryAfter)); f != nil {
		t.Errorf("after the time it was told to wait: %v", f)
	}
	for range 2 * failureBurst {
		a.fail(netip.Addr{}, noon)
	}
	if f := a.blocked(netip.Addr{}, noon); f != nil {
		t.Errorf("an unknown address: %v", f)
	}
}

func TestMemoryOfStrangersIsBounded(t *testing.T) {
	a := newAccess()
	for i := range 2 * maxAddresses {
		a.fail(netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff)), noon)
	}
	if n := a.failures.Len(); n != maxAddresses {
		t.Errorf("%d addresses are remembered, want %d", n, maxAddresses)
	}
}

func TestLastUseIsCoarse(t *testing.T) {
	a := newAccess()
	used := noon.Add(-useGrain + time.Second)
	r := &reading{ref: credentialRef{id: orbit.NewID(noon)}, row: platformdb.OrbitCredential{LastUsedAt: &used}}
	a.use(r, noon)
	if refs := a.uses.take(); len(refs) != 0 {
		t.Errorf("within the grain: %v", refs)
	}
	a.use(r, noon.Add(2*time.Second))
	a.use(r, noon.Add(3*time.Second))
	if refs := a.uses.take(); len(refs) != 1 || refs[0] != r.ref {
		t.Errorf("after the grain: %v", refs)
	}
	if refs := a.uses.take(); len(refs) != 0 {
		t.Errorf("taken twice: %v", refs)
	}
}
