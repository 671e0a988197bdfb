package platform

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// Presented is what a request shows before anything of it is believed.
type Presented struct {
	Operation string     // operationId
	RequestID string     // for the audit
	Address   netip.Addr // where it came from
	Key       string     // the text of the credential key
	Namespace string     // asserted namespace; empty if none was asserted
	Actor     string     // asserted actor; empty if none was asserted
}

// Authenticate lets a request in: the context it gives has the caller.
//
// A key that is malformed, unknown, wrong, replaced, expired or revoked is unauthenticated; which of the last three is told only to who has
// the right secret. An assertion that differs from the credential is principal_mismatch. Too many failures from one address, or too many
// requests of one credential, are rate_limited. The database's clock decides; a change of a credential is seen within memory's life.
func (s *Service) Authenticate(ctx context.Context, p Presented) (context.Context, error) {
	key, err := orbit.ParseCredentialKey(p.Key)
	if err != nil {
		return nil, fault.New(fault.Unauthenticated, "%s", err)
	}
	shown := proof{ref: credentialRef{key.Namespace, key.Credential}, digest: key.Secret.Digest()}
	known, err := s.know(ctx, shown, p.Address)
	if err != nil {
		return nil, err
	}
	caller := known.caller(p.RequestID)
	if f := known.judge(shown.digest, s.judgedAt(known)); f != nil {
		s.access.fail(p.Address, s.Clock())
		if known.found {
			s.Denied(caller, p.Operation, f.Code)
		}
		return nil, f
	}
	if f := mismatch(p, caller); f != nil {
		s.Denied(caller, p.Operation, f.Code)
		return nil, f
	}
	if f := s.access.admit(shown.ref, s.limitOf(known), s.Clock()); f != nil {
		return nil, f
	}
	s.access.use(known, s.judgedAt(known))
	return context.WithValue(withCaller(ctx, caller), proofKey{}, shown), nil
}

// StillValid is nil while the key that the request came with still opens, and the refusal to end a long poll or a stream with
// otherwise. It may be asked often: it reads the database at most once in memory's life.
func (s *Service) StillValid(ctx context.Context) error {
	shown, ok := ctx.Value(proofKey{}).(proof)
	if !ok {
		return nil // not a request: a loop or a command on the host
	}
	known, err := s.know(ctx, shown, netip.Addr{})
	if err != nil {
		return err
	}
	if f := known.judge(shown.digest, s.judgedAt(known)); f != nil {
		return f
	}
	return nil
}

// memory is for how long a reading of a credential is believed. Rotation, revocation and expiry take effect within it
// on every replica.
const memory = 2 * time.Second

// Bounds of what a replica keeps about strangers and callers.
const (
	maxKnown     = 10_000
	maxAddresses = 10_000
)

// Failures from one address: this many at once, and then this many a second.
const (
	failureBurst     = 20
	failurePerSecond = 1
)

type credentialRef struct{ namespaceID, id orbit.ID }

// proof is what the key of a running request showed; the secret itself is gone.
type proof struct {
	ref    credentialRef
	digest orbit.Digest
}

type proofKey struct{}

// reading is a credential as it was at one instant of the database's clock.
type reading struct {
	ref     credentialRef
	found   bool
	row     platformdb.OrbitCredential
	actions []string
	queues  []string
	at      time.Time // the database's clock, without the offset
	since   time.Time // the host's clock just before; only to measure how long ago that was
}

func (r *reading) caller(requestID string) Caller {
	return Caller{NamespaceID: r.row.NamespaceID, ActorID: r.row.ActorID, CredentialID: r.row.ID,
		Actions: r.actions, Queues: r.queues, RequestID: requestID}
}

// nobody is compared with where there is no credential, so that the answer takes as long.
var nobody = orbit.NewToken().Digest()

// judge compares both digests whatever the first comparison says, and tells what is wrong only to who has the secret.
func (r *reading) judge(digest orbit.Digest, now time.Time) *fault.Fault {
	current, previous := r.row.SecretDigest, nobody
	if !r.found {
		current = nobody
	}
	if r.row.PreviousDigest.Valid {
		previous = r.row.PreviousDigest.Digest
	}
	isCurrent := subtle.ConstantTimeCompare(digest[:], current[:]) == 1
	isPrevious := subtle.ConstantTimeCompare(digest[:], previous[:]) == 1 && r.row.PreviousDigest.Valid
	switch {
	case !r.found || !isCurrent && !isPrevious:
		return fault.New(fault.Unauthenticated, "this credential key opens nothing: the credential does not exist, or its secret is another one")
	case r.row.State != orbit.CredentialActive:
		return fault.New(fault.Unauthenticated, "this credential was revoked")
	case r.row.ExpiresAt != nil && !now.Before(*r.row.ExpiresAt):
		return fault.New(fault.Unauthenticated, "this credential expired at %s", r.row.ExpiresAt.Format(time.RFC3339))
	case !isCurrent && !now.Before(*r.row.PreviousExpiresAt):
		return fault.New(fault.Unauthenticated, "this key was replaced and stopped working at %s; use the one of the last rotation", r.row.PreviousExpiresAt.Format(time.RFC3339))
	}
	return nil
}

func mismatch(p Presented, c Caller) *fault.Fault {
	for _, a := range []struct{ header, asserted, actual string }{
		{"Orbit-Namespace", p.Namespace, c.NamespaceID.String()},
		{"Orbit-Actor", p.Actor, c.ActorID.String()},
	} {
		if a.asserted != "" && a.asserted != a.actual {
			f := fault.New(fault.PrincipalMismatch, "%s asserts %s, but this credential is of %s; nothing was done", a.header, a.asserted, a.actual)
			f.Errors = []fault.Field{{Pointer: "header/" + a.header, Code: string(fault.PrincipalMismatch), Detail: "differs from the credential"}}
			return f
		}
	}
	return nil
}

// access is what this replica remembers about credentials and addresses for a moment.
type access struct {
	known    *lru.Cache[credentialRef, *reading]
	reads    *singleflight.Group
	rates    *lru.Cache[credentialRef, *rate.Limiter]
	failures *lru.Cache[netip.Prefix, *rate.Limiter]
	uses     *uses
}

func newAccess() access {
	return access{
		known: cache[credentialRef, *reading](maxKnown), rates: cache[credentialRef, *rate.Limiter](maxKnown),
		failures: cache[netip.Prefix, *rate.Limiter](maxAddresses), reads: &singleflight.Group{}, uses: &uses{at: map[credentialRef]struct{}{}},
	}
}

func cache[K comparable, V any](size int) *lru.Cache[K, V] {
	c, err := lru.New[K, V](size)
	if err != nil {
		panic(err) // only a size below 1 is an error
	}
	return c
}

// know gives what is remembered of a credential if the key opens it, and asks the database otherwise, so that a key is never refused for what
// was true a moment ago. Many that ask at once share one reading. After too many failures from an address the database is asked only
// for keys that opened before.
func (s *Service) know(ctx context.Context, shown proof, from netip.Addr) (*reading, error) {
	ref := shown.ref
	old, ok := s.access.known.Get(ref)
	opens := ok && old.judge(shown.digest, s.judgedAt(old)) == nil
	if opens && s.Clock().Sub(old.since) < memory {
		return old, nil
	}
	if !opens {
		if f := s.access.blocked(from, s.Clock()); f != nil {
			return nil, f
		}
	}
	got, err, _ := s.access.reads.Do(string(ref.namespaceID[:])+string(ref.id[:]), func() (any, error) {
		return s.read(context.WithoutCancel(ctx), ref)
	})
	if err != nil {
		return nil, fmt.Errorf("read credential: %w", err)
	}
	r := got.(*reading)
	if r.found {
		s.access.known.Add(ref, r)
	}
	return r, nil
}

func (s *Service) read(ctx context.Context, ref credentialRef) (*reading, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Lane.Timeout)
	defer cancel()
	r := &reading{ref: ref, since: s.Clock()}
	row, err := platformdb.New(s.Batch.DB).AuthenticateCredential(ctx, platformdb.AuthenticateCredentialParams{NamespaceID: ref.namespaceID, ID: ref.id})
	if errors.Is(err, sql.ErrNoRows) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r.found, r.row, r.at = true, row.OrbitCredential, row.NowAt
	return r, errors.Join(json.Unmarshal(r.row.Actions, &r.actions), json.Unmarshal(r.row.Queues, &r.queues))
}

// judgedAt is the database's clock now: as it was read, and what passed since.
func (s *Service) judgedAt(r *reading) time.Time {
	return s.Batch.Shift(r.at.Add(s.Clock().Sub(r.since)))
}

func (s *Service) limitOf(r *reading) int {
	if r.row.RatePerSecond > 0 {
		return int(r.row.RatePerSecond)
	}
	return s.RatePerSecond
}

// admit takes one request of the credential's rate; a second's worth may come at once.
func (a *access) admit(ref credentialRef, perSecond int, now time.Time) *fault.Fault {
	if perSecond <= 0 {
		return nil
	}
	limiter, ok := a.rates.Get(ref)
	if !ok || limiter.Burst() != perSecond {
		limiter = rate.NewLimiter(rate.Limit(perSecond), perSecond)
		a.rates.Add(ref, limiter)
	}
	taken := limiter.ReserveN(now, 1)
	wait := taken.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	taken.CancelAt(now)
	f := fault.New(fault.RateLimited, "this credential may send %d requests a second; nothing was done", perSecond)
	f.RetryAfter = wait
	return f
}

// network is what failures are counted for: an IPv4 address, or the 64 bits of an IPv6 address that a site can choose below.
func network(address netip.Addr) netip.Prefix {
	address = address.Unmap()
	bits := 32
	if address.Is6() {
		bits = 64
	}
	prefix, err := address.Prefix(bits)
	if err != nil {
		panic(err) // only an invalid address or a wrong number of bits is an error
	}
	return prefix
}

func (a *access) fail(from netip.Addr, now time.Time) {
	if !from.IsValid() {
		return
	}
	of := network(from)
	limiter, ok := a.failures.Get(of)
	if !ok {
		limiter = rate.NewLimiter(failurePerSecond, failureBurst)
		a.failures.Add(of, limiter)
	}
	limiter.AllowN(now, 1)
}

func (a *access) blocked(from netip.Addr, now time.Time) *fault.Fault {
	if !from.IsValid() {
		return nil
	}
	limiter, ok := a.failures.Get(network(from))
	if !ok {
		return nil
	}
	tokens := limiter.TokensAt(now)
	if tokens >= 1 {
		return nil
	}
	f := fault.New(fault.RateLimited, "too many keys that opened nothing came from this address; nothing was done")
	f.RetryAfter = time.Duration((1 - tokens) / failurePerSecond * float64(time.Second))
	return f
}

// uses are the credentials whose last use is to be written down.
type uses struct {
	mu sync.Mutex
	at map[credentialRef]struct{}
}

// useGrain is how exact the last use is.
const useGrain = time.Minute

func (a *access) use(r *reading, now time.Time) {
	if r.row.LastUsedAt != nil && now.Sub(*r.row.LastUsedAt) < useGrain {
		return
	}
	a.uses.mu.Lock()
	defer a.uses.mu.Unlock()
	if len(a.uses.at) < maxKnown {
		a.uses.at[r.ref] = struct{}{}
	}
}

func (u *uses) take() []credentialRef {
	u.mu.Lock()
	defer u.mu.Unlock()
	refs := make([]credentialRef, 0, len(u.at))
	for ref := range u.at {
		refs = append(refs, ref)
	}
	clear(u.at)
	return refs
}
