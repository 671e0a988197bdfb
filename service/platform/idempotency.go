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

// Keys are the keys of a scope as a transaction finds them.
type Keys struct {
	scope Scope
	rows  []platformdb.OrbitIdempotencyKey
}

// Ask reads keys, shared until the commit, without waiting: error 3572, for which IsLockedNow is true, means that a running try holds some key of
// them; keys that nobody used lock nothing.
func (k *Keys) Ask(scope Scope, keys []string) dbtx.Question {
	return func(ctx context.Context, db dbtx.DBTX) (err error) {
		k.scope = scope
		k.rows, err = platformdb.New(db).ShareKeys(ctx, platformdb.ShareKeysParams{NamespaceID: scope.NamespaceID, Scope: scope.hash(), IdempotencyKeys: keys})
		return err
	}
}

// JudgeKeys judges tries with distinct keys by what was found, and reserves none. A key that was used answers its reply if the content is the same,
// and a refusal if it is other content, void or expired. One that nobody used is First: TakeKeys takes it at the end, and fails the transaction if
// another try was faster.
func (s *Service) JudgeKeys(ctx context.Context, tx *dbtx.Tx, found Keys, tries []Try) ([]Verdict, error) {
	for i := range tries {
		tries[i].mark = orbit.NewID(tx.Now)
	}
	return s.judge(ctx, tx, found.scope, tries, found.rows)
}

// TakeKeys makes keys of tries that were First this transaction's. It is for transactions that only add rows: nothing they do before
// the keys are taken can be in the way of a rival.
func (s *Service) TakeKeys(tx *dbtx.Tx, scope Scope, tries []Try) error {
	return batch.Insert(tx, platformdb.InsertKey, s.keyRows(tx, scope, tries))
}

// keyRows are in key order, so that two batches cannot deadlock.
func (s *Service) keyRows(tx *dbtx.Tx, scope Scope, tries []Try) [][]any {
	rows := make([][]any, len(tries))
	for i, t := range slices.SortedFunc(slices.Values(tries), func(a, b Try) int { return cmp.Compare(a.Key, b.Key) }) {
		rows[i] = []any{scope.NamespaceID, scope.hash(), t.Key, scope.ActorID, scope.Operation, t.Digest, orbit.KeyDone,
			t.ResourceKind, t.ResourceID.Null(), t.mark.Null(), tx.Now, tx.Now.Add(s.KeyLife)}
	}
	return rows
}

// ReserveKey judges one try and takes its key as the first write of a transaction, so that whatever follows is done by one try alone.
func (s *Service) ReserveKey(ctx context.Context, tx *dbtx.Tx, scope Scope, try *Try, held WhenHeld) (Verdict, error) {
	try.mark = orbit.NewID(tx.Now)
	tries := []Try{*try}
	row, err := upsertKey(ctx, tx, scope, try.Key, s.keyRows(tx, scope, tries)[0], held)
	if err != nil {
		return Verdict{}, err
	}
	verdicts, err := s.judge(ctx, tx, scope, tries, []platformdb.OrbitIdempotencyKey{row})
	if err != nil {
		return Verdict{}, err
	}
	return verdicts[0], nil
}

// upsertKey makes a key's row, unless it is there, and reads it back: whose it is its mark tells, and a row count says nothing about that.
func upsertKey(ctx context.Context, tx *dbtx.Tx, scope Scope, key string, row []any, held WhenHeld) (platformdb.OrbitIdempotencyKey, error) {
	if held == GivesUp {
		var found Keys
		err := tx.Ask(ctx, found.Ask(scope, []string{key}))
		switch {
		case dbtx.IsLockedNow(err):
			return platformdb.OrbitIdempotencyKey{}, ErrHeld
		case err != nil:
			return platformdb.OrbitIdempotencyKey{}, err
		case len(found.rows) > 0: // shared, and never exclusive after that
			return found.rows[0], nil
		}
	}
	_, err := tx.ExecContext(ctx, platformdb.ReserveKey, row...)
	switch {
	case dbtx.IsLockWait(err) && held == GivesUp:
		return platformdb.OrbitIdempotencyKey{}, ErrHeld
	case dbtx.IsLockWait(err):
		return platformdb.OrbitIdempotencyKey{}, inProgress()
	case err != nil:
		return platformdb.OrbitIdempotencyKey{}, err
	}
	rows, err := platformdb.New(tx).ListKeys(ctx, platformdb.ListKeysParams{NamespaceID: scope.NamespaceID, Scope: scope.hash(), IdempotencyKeys: []string{key}})
	if err == nil && len(rows) == 0 {
		err = errors.New("a reserved key is not there")
	}
	if err != nil {
		return platformdb.OrbitIdempotencyKey{}, err
	}
	return rows[0], nil
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
	var unknown *dbtx.UnknownCommit
	if err := run(GivesUp); errors.As(err, &unknown) || !errors.Is(err, ErrHeld) && !dbtx.IsDuplicate(err) && !dbtx.IsLockWait(err) && !dbtx.IsLockedNow(err) {
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

// judge compares tries with the keys as they are stored.
func (s *Service) judge(ctx context.Context, tx *dbtx.Tx, scope Scope, tries []Try, rows []platformdb.OrbitIdempotencyKey) ([]Verdict, error) {
	known := make(map[string]platformdb.OrbitIdempotencyKey, len(rows))
	for _, r := range rows {
		known[r.IdempotencyKey] = r
	}
	verdicts := make([]Verdict, len(tries))
	replays := map[orbit.ID]int{}
	for i, t := range tries {
		row, ok := known[t.Key]
		switch {
		case !ok || row.ReplyID.Valid && row.ReplyID.ID == t.mark:
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
func (s *Service) KeepReplies(tx *dbtx.Tx, scope Scope, tries []Try, replies []Reply) error {
	rows := make([][]any, len(tries))
	for i, t := range tries {
		rows[i] = []any{scope.NamespaceID, t.mark, replies[i].Status, replies[i].ETag, replies[i].Body}
	}
	return batch.Insert(tx, platformdb.InsertReply, rows)
}

// ForgetKey frees the key of a refused try in the transaction that refused it.
func (s *Service) ForgetKey(ctx context.Context, tx *dbtx.Tx, scope Scope, key string) error {
	_, err := platformdb.New(tx.Later(1)).ForgetKeys(ctx, platformdb.ForgetKeysParams{NamespaceID: scope.NamespaceID, Scope: scope.hash(), IdempotencyKeys: []string{key}})
	return err
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
		verdict, err := s.ReserveKey(ctx, tx, scope, &try, held)
		switch {
		case err != nil:
			return err
		case verdict.Fault != nil:
			return verdict.Fault
		case verdict.Replay != nil:
			reply = *verdict.Replay
			return nil
		}
		if reply, err = act(ctx, tx); err != nil {
			return err
		}
		return s.KeepReplies(tx, scope, []Try{try}, []Reply{reply})
	})
	return reply, err
}
