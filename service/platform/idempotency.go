package platform

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// Scope is the part of a key's identity that is not the key: actor, operation and path. The credential is not in it, so
// that rotation changes nothing.
type Scope struct {
	NamespaceID orbit.ID
	ActorID     orbit.ID
	Operation   string
	Path        string
}

// ScopeOf is the scope of a caller's operation on a path, whose ids are filled in.
func ScopeOf(c Caller, operation, path string) Scope {
	return Scope{NamespaceID: c.NamespaceID, ActorID: c.ActorID, Operation: operation, Path: path}
}

func (s Scope) hash() orbit.ID {
	h := sha256.New()
	for _, part := range [][]byte{s.ActorID[:], []byte(s.Operation), []byte(s.Path)} {
		_ = binary.Write(h, binary.BigEndian, uint32(len(part)))
		h.Write(part)
	}
	return orbit.ID(h.Sum(nil)[:16])
}

// Try is one use of a key.
type Try struct {
	Key          string
	Digest       orbit.Digest
	ResourceKind string
	ResourceID   orbit.ID
	mark         orbit.ID // reply id, and by read-back the owner of the row
}

// Reply is what a try is answered with, as the bytes that are sent and kept.
type Reply struct {
	Status   int
	ETag     string
	Body     []byte
	Replayed bool
}

// Verdict on a try: exactly one of the three.
type Verdict struct {
	First  bool   // the key is this transaction's: act, then Keep or Forget
	Replay *Reply // the key was used for the same content: its reply, byte for byte
	Fault  *fault.Fault
}

// ErrHeld tells that some key is in use by a try that still runs.
var ErrHeld = errors.New("a key is held by a running try")

// WhenHeld is what a transaction does about a key that a running try holds.
type WhenHeld bool

// GivesUp is ErrHeld at once. Waits, for a single try, is for the pool's lock wait time-out, and then idempotency_in_progress.
const (
	GivesUp WhenHeld = false
	Waits   WhenHeld = true
)

// CheckKey refuses a missing or ill-formed key.
func CheckKey(key string) *fault.Fault {
	if key == "" {
		return fault.New(fault.IdempotencyMissing, "this operation needs an idempotency key: choose one for each thing you want done once, and keep it for repeats")
	}
	if len(key) > 128 {
		return fault.Invalid("header/Idempotency-Key", "too_long", "an idempotency key has at most 128 characters, this one has %d", len(key))
	}
	for i := range len(key) {
		if key[i] < '!' || key[i] > '~' {
			return fault.Invalid("header/Idempotency-Key", "not_visible_ascii", "an idempotency key is made of visible ASCII characters (0x21 to 0x7e); byte %d is not", i)
		}
	}
	return nil
}

// ReserveKeys judges tries of one scope, with distinct keys, as the first write of a transaction.
//
// A key that nobody used becomes this transaction's. A key that was used answers its reply if the content is the same, and a
// refusal if it is other content, void or expired.
func (s *Service) ReserveKeys(ctx context.Context, tx *dbtx.Tx, scope Scope, tries []Try, held WhenHeld) ([]Verdict, error) {
	q := platformdb.New(tx)
	known, err := s.listKeys(ctx, q, scope, tries)
	if err != nil {
		return nil, err
	}
	fresh := make([]Try, 0, len(tries))
	for i := range tries {
		tries[i].mark = orbit.NewID(tx.Now)
		if _, ok := known[tries[i].Key]; !ok {
			fresh = append(fresh, tries[i])
		}
	}
	if len(fresh) > 0 {
		if err := s.reserve(ctx, tx, scope, fresh, held); err != nil {
			return nil, err
		}
		if known, err = s.listKeys(ctx, q, scope, tries); err != nil {
			return nil, err
		}
	}
	return s.judge(ctx, tx, scope, tries, known)
}

func (s *Service) listKeys(ctx context.Context, q *platformdb.Queries, scope Scope, tries []Try) (map[string]platformdb.OrbitIdempotencyKey, error) {
	keys := make([]string, len(tries))
	for i, t := range tries {
		keys[i] = t.Key
	}
	rows, err := q.ListKeys(ctx, platformdb.ListKeysParams{NamespaceID: scope.NamespaceID, Scope: scope.hash(), IdempotencyKeys: keys})
	if err != nil {
		return nil, err
	}
	known := make(map[string]platformdb.OrbitIdempotencyKey, len(rows))
	for _, r := range rows {
		known[r.IdempotencyKey] = r
	}
	return known, nil
}

func (s *Service) reserve(ctx context.Context, tx *dbtx.Tx, scope Scope, fresh []Try, held WhenHeld) error {
	slices.SortFunc(fresh, func(a, b Try) int { return cmp.Compare(a.Key, b.Key) })
	keys := make([]string, len(fresh))
	rows := make([][]any, len(fresh))
	for i, t := range fresh {
		keys[i] = t.Key
		rows[i] = []any{scope.NamespaceID, scope.hash(), t.Key, scope.ActorID, scope.Operation, t.Digest, orbit.KeyDone,
			t.ResourceKind, t.ResourceID.Null(), t.mark.Null(), tx.Now, tx.Now.Add(s.KeyLife)}
	}
	if held == GivesUp {
		if err := probe(ctx, tx, scope, keys); err != nil {
			return err
		}
	}
	return heldError(batch.Insert(ctx, tx, platformdb.ReserveKey, rows), held)
}

// probe looks without waiting whether a running try holds one of the keys.
func probe(ctx context.Context, tx *dbtx.Tx, scope Scope, keys []string) error {
	_, err := platformdb.New(tx).ProbeKeys(ctx, platformdb.ProbeKeysParams{NamespaceID: scope.NamespaceID, Scope: scope.hash(), IdempotencyKeys: keys})
	if dbtx.IsLockedNow(err) {
		return ErrHeld
	}
	return err
}

// heldError tells a key that stayed locked from other errors of a reservation.
func heldError(err error, held WhenHeld) error {
	switch {
	case !dbtx.IsLockWait(err):
		return err
	case held == GivesUp:
		return ErrHeld
	}
	return inProgress()
}

// Those who wait in the lane for a running try of their key take half of its connections at most, so that they starve nobody. For
// a place among them a try waits this long.
const (
	maxWaiting = 8
	waitTurn   = 5 * time.Second
)

// OnKey runs a transaction that reserves one key, in the single lane: first without waiting for a running try of the key, and if there is one
// then in its turn, waiting. A running try that is not over by then is idempotency_in_progress.
func (s *Service) OnKey(ctx context.Context, op string, fn func(ctx context.Context, tx *dbtx.Tx, held WhenHeld) error) error {
	run := func(held WhenHeld) error {
		return s.Lane.Run(ctx, op, func(ctx context.Context, tx *dbtx.Tx) error { return fn(ctx, tx, held) })
	}
	if err := run(GivesUp); !errors.Is(err, ErrHeld) {
		return err
	}
	timer := time.NewTimer(waitTurn)
	defer timer.Stop()
	select {
	case s.waiting <- struct{}{}:
		defer func() { <-s.waiting }()
		return run(Waits)
	case <-timer.C:
		return inProgress()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func inProgress() *fault.Fault {
	return &fault.Fault{Code: fault.IdempotencyInProgress, RetryAfter: time.Second,
		Detail: "the first try of this key still runs; repeat the request with the same key"}
}

// judge reads who owns each key back; a row count of the upsert says nothing about that.
func (s *Service) judge(ctx context.Context, tx *dbtx.Tx, scope Scope, tries []Try, known map[string]platformdb.OrbitIdempotencyKey) ([]Verdict, error) {
	verdicts := make([]Verdict, len(tries))
	replays := map[orbit.ID]int{}
	for i, t := range tries {
		row, ok := known[t.Key]
		switch {
		case !ok:
			return nil, errors.New("a reserved key is not there")
		case row.ReplyID.Valid && row.ReplyID.ID == t.mark:
			verdicts[i].First = true
		case row.State == orbit.KeyVoid:
			verdicts[i].Fault = fault.New(fault.IdempotencyVoid, "this key was made void: nothing was done under it and nothing will be; use a new key")
		case row.State == orbit.KeyExpired || !tx.Now.Before(row.ExpiresAt):
			verdicts[i].Fault = fault.New(fault.IdempotencyExpired, "this key was used at %s and its reply is no longer kept; look the result up, or use a new key for a new request", row.CreatedAt.Format(time.RFC3339))
		case row.Digest != t.Digest:
			verdicts[i].Fault = fault.New(fault.IdempotencyConflict, "this key was used for other content at %s; that request stands unchanged", row.CreatedAt.Format(time.RFC3339))
		default:
			replays[row.ReplyID.ID] = i
		}
	}
	return verdicts, s.readReplies(ctx, tx, scope, replays, verdicts)
}

func (s *Service) readReplies(ctx context.Context, tx *dbtx.Tx, scope Scope, replays map[orbit.ID]int, verdicts []Verdict) error {
	if len(replays) == 0 {
		return nil
	}
	ids := make([]orbit.ID, 0, len(replays))
	for id := range replays {
		ids = append(ids, id)
	}
	rows, err := platformdb.New(tx).ListReplies(ctx, platformdb.ListRepliesParams{NamespaceID: scope.NamespaceID, Ids: ids})
	if err != nil {
		return err
	}
	for _, r := range rows {
		verdicts[replays[r.ID]].Replay = &Reply{Status: int(r.Status), ETag: r.Etag, Body: r.Body, Replayed: true}
	}
	if len(rows) != len(ids) {
		return errors.New("a kept reply is not there")
	}
	return nil
}

// KeepReplies stores the replies of first tries in the transaction of their effect.
func (s *Service) KeepReplies(ctx context.Context, tx *dbtx.Tx, scope Scope, tries []Try, replies []Reply) error {
	rows := make([][]any, len(tries))
	for i, t := range tries {
		rows[i] = []any{scope.NamespaceID, t.mark, replies[i].Status, replies[i].ETag, replies[i].Body}
	}
	return batch.Insert(ctx, tx, platformdb.InsertReply, rows)
}

// ForgetKeys frees the keys of refused tries in the transaction that refused them.
func (s *Service) ForgetKeys(ctx context.Context, tx *dbtx.Tx, scope Scope, tries []Try) error {
	keys := make([]string, len(tries))
	for i, t := range tries {
		keys[i] = t.Key
	}
	n, err := platformdb.New(tx).ForgetKeys(ctx, platformdb.ForgetKeysParams{NamespaceID: scope.NamespaceID, Scope: scope.hash(), IdempotencyKeys: keys})
	return dbtx.SwappedAll(n, err, len(keys))
}

// Once runs act exactly once for a key and answers every repeat with the first reply, byte for byte.
//
// Other content under the key is idempotency_conflict; a first try that still runs after the wait of OnKey is
// idempotency_in_progress; a refusal by act leaves nothing. After outcome_unknown the repeat with the same key settles it.
func (s *Service) Once(ctx context.Context, scope Scope, try Try, act func(ctx context.Context, tx *dbtx.Tx) (Reply, error)) (Reply, error) {
	if f := CheckKey(try.Key); f != nil {
		return Reply{}, f
	}
	var reply Reply
	err := s.OnKey(ctx, scope.Operation, func(ctx context.Context, tx *dbtx.Tx, held WhenHeld) error {
		tries := []Try{try}
		verdicts, err := s.ReserveKeys(ctx, tx, scope, tries, held)
		switch {
		case err != nil:
			return err
		case verdicts[0].Fault != nil:
			return verdicts[0].Fault
		case verdicts[0].Replay != nil:
			reply = *verdicts[0].Replay
			return nil
		}
		if reply, err = act(ctx, tx); err != nil {
			return err
		}
		return s.KeepReplies(ctx, tx, scope, tries, []Reply{reply})
	})
	return reply, err
}
