package platform

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// NewCredential is what a credential is made of.
type NewCredential struct {
	Name          string        // for people, 1 to 128 characters
	ActorID       orbit.ID      // whom it acts for; zero makes a new actor
	Actions       []string      // of Actions
	Queues        []string      // patterns of queue names; none covers no queue
	ExpiresAt     time.Time     // zero means never
	ExpiresIn     time.Duration // instead of ExpiresAt, from now; zero means never
	RatePerSecond int           // 0 means the configured default
}

// made is a credential with a key that was just made for it. The key is nowhere else.
type made struct {
	row platformdb.OrbitCredential
	key orbit.CredentialKey
}

// check refuses what no database need be asked for.
func (n NewCredential) check() *fault.Fault {
	if len(n.Actions) == 0 {
		return fault.Invalid("/actions", "required", "grant at least one action")
	}
	for i, a := range n.Actions {
		if !slices.Contains(Actions, a) {
			return fault.Invalid("/actions/"+strconv.Itoa(i), "unknown_action", "there is no action %q; the actions are %v", a, Actions)
		}
	}
	for i, p := range n.Queues {
		if !queuePattern.MatchString(p) {
			return fault.Invalid("/queues/"+strconv.Itoa(i), "pattern", "a pattern of queue names does not match %s", queuePattern)
		}
	}
	if !n.ExpiresAt.IsZero() && n.ExpiresAt.UTC().Year() > 9999 {
		return fault.Invalid("/expires_at", "out_of_range", "the year must be at most 9999")
	}
	return nil
}

func (n NewCredential) expiry(now time.Time) (*time.Time, *fault.Fault) {
	at := n.ExpiresAt.UTC().Truncate(time.Microsecond)
	switch {
	case n.ExpiresIn > 0:
		at = now.Add(n.ExpiresIn).Truncate(time.Microsecond)
	case n.ExpiresAt.IsZero():
		return nil, nil
	}
	if !at.After(now) {
		return nil, fault.Invalid("/expires_at", "not_in_future", "the credential would expire at %s, but it is already %s", at.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	return &at, nil
}

// issue makes a credential with its event and its audit, in a transaction of its caller's.
func (s *Service) issue(ctx context.Context, tx *dbtx.Tx, c Caller, action string, id orbit.ID, n NewCredential) (made, error) {
	expiry, f := n.expiry(tx.Now)
	if f != nil {
		return made{}, f
	}
	if n.ActorID.IsZero() {
		n.ActorID = orbit.NewID(tx.Now)
	}
	actions, err := json.Marshal(distinct(n.Actions))
	if err != nil {
		return made{}, err
	}
	queues, err := json.Marshal(distinct(n.Queues))
	if err != nil {
		return made{}, err
	}
	key := orbit.NewCredentialKey(c.NamespaceID, id)
	q := platformdb.New(tx)
	err = q.InsertCredential(ctx, platformdb.InsertCredentialParams{
		NamespaceID: c.NamespaceID, ID: id, ActorID: n.ActorID, Name: n.Name, SecretDigest: key.Secret.Digest(), Actions: actions, Queues: queues,
		RatePerSecond: uint32(n.RatePerSecond), ExpiresAt: expiry, CreatedAt: tx.Now, UpdatedAt: tx.Now,
	})
	if err != nil {
		return made{}, err
	}
	row, err := s.changed(ctx, tx, c, id, "credential.created", Act{Action: action,
		Detail: map[string]any{"name": n.Name, "actor_id": n.ActorID, "actions": n.Actions, "queues": n.Queues, "expires_at": expiry}})
	return made{row, key}, err
}

// rotate gives a credential a new key; the present one goes on opening for the overlap.
func (s *Service) rotate(ctx context.Context, tx *dbtx.Tx, c Caller, action string, id orbit.ID, overlap time.Duration) (made, error) {
	row, err := lockCredential(ctx, tx, c, id)
	if err != nil {
		return made{}, err
	}
	if row.State != orbit.CredentialActive {
		return made{}, fault.New(fault.StateConflict, "this credential was revoked; make a new one")
	}
	key, until := orbit.NewCredentialKey(c.NamespaceID, id), tx.Now.Add(overlap)
	n, err := platformdb.New(tx).RotateCredential(ctx, platformdb.RotateCredentialParams{
		NamespaceID: c.NamespaceID, ID: id, Revision: row.Revision, PreviousExpiresAt: &until, SecretDigest: key.Secret.Digest(), NowAt: tx.Now,
	})
	if err := dbtx.Swapped(n, err); err != nil {
		return made{}, err
	}
	row, err = s.changed(ctx, tx, c, id, "credential.rotated", Act{Action: action, Detail: map[string]any{"overlap_ms": overlap.Milliseconds()}})
	return made{row, key}, err
}

// revoke ends a credential for good. One that is revoked already stays as it is.
func (s *Service) revoke(ctx context.Context, tx *dbtx.Tx, c Caller, action string, id orbit.ID, reason string) (platformdb.OrbitCredential, error) {
	row, err := lockCredential(ctx, tx, c, id)
	if err != nil || row.State == orbit.CredentialRevoked {
		return row, err
	}
	n, err := platformdb.New(tx).RevokeCredential(ctx, platformdb.RevokeCredentialParams{NamespaceID: c.NamespaceID, ID: id, Revision: row.Revision, NowAt: tx.Now})
	if err := dbtx.Swapped(n, err); err != nil {
		return row, err
	}
	return s.changed(ctx, tx, c, id, "credential.revoked", Act{Action: action, Detail: map[string]any{"reason": reason}})
}

func lockCredential(ctx context.Context, tx *dbtx.Tx, c Caller, id orbit.ID) (platformdb.OrbitCredential, error) {
	row, err := platformdb.New(tx).LockCredential(ctx, platformdb.LockCredentialParams{NamespaceID: c.NamespaceID, ID: id})
	return row, missing(err, kindCredential)
}

// changed reads the credential back and writes its event and the audit of the act.
func (s *Service) changed(ctx context.Context, tx *dbtx.Tx, c Caller, id orbit.ID, event string, act Act) (platformdb.OrbitCredential, error) {
	row, err := platformdb.New(tx).GetCredential(ctx, platformdb.GetCredentialParams{NamespaceID: c.NamespaceID, ID: id})
	if err != nil {
		return row, err
	}
	data, err := json.Marshal(map[string]any{"actor_id": row.ActorID, "name": row.Name, "state": row.State})
	if err != nil {
		return row, err
	}
	tx.Emit(dbtx.Event{NamespaceID: c.NamespaceID, Kind: kindCredential, ID: id, Version: row.Revision, Type: event, ActorID: c.ActorID.Null(), Data: string(data)})
	act.TargetKind, act.TargetID = kindCredential, id
	return row, Audit(ctx, tx, c, act)
}

func distinct(list []string) []string {
	unique := make([]string, 0, len(list))
	for _, s := range list {
		if !slices.Contains(unique, s) {
			unique = append(unique, s)
		}
	}
	return unique
}

// showCredential is a credential as it is shown: without digests.
func showCredential(row platformdb.OrbitCredential, now time.Time) (api.Credential, error) {
	c := api.Credential{
		ID: row.ID, ActorID: row.ActorID, Name: row.Name, State: api.CredentialState(row.State), Revision: row.Revision,
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, ExpiresAt: optTime(row.ExpiresAt), LastUsedAt: optTime(row.LastUsedAt),
	}
	if row.RatePerSecond > 0 {
		c.RateLimitPerSecond.SetTo(int(row.RatePerSecond))
	}
	if row.PreviousExpiresAt != nil && now.Before(*row.PreviousExpiresAt) && row.State == orbit.CredentialActive {
		c.PreviousKeyExpiresAt.SetTo(*row.PreviousExpiresAt)
	}
	if err := json.Unmarshal(row.Actions, &c.Actions); err != nil {
		return c, err
	}
	return c, json.Unmarshal(row.Queues, &c.Queues)
}

func credentialTag(row platformdb.OrbitCredential) string {
	return `"` + strconv.FormatInt(row.Revision, 10) + `"`
}

func optTime(t *time.Time) api.OptDateTime {
	if t == nil {
		return api.OptDateTime{}
	}
	return api.NewOptDateTime(*t)
}

func optID(id orbit.NullID) api.OptID {
	if !id.Valid {
		return api.OptID{}
	}
	return api.NewOptID(id.ID)
}

// optReplayed is the header of a repeat; a first answer does not carry it.
func optReplayed(r Reply) api.OptBool {
	if !r.Replayed {
		return api.OptBool{}
	}
	return api.NewOptBool(true)
}

// encode gives the JSON of a generated type.
func encode(v interface{ Encode(e *jx.Encoder) }) []byte {
	var e jx.Encoder
	v.Encode(&e)
	return e.Bytes()
}

// replies gives the reply that is stored, which is everything but the key, and the bytes with the key, which go out once.
func (m made) replies(status int, now time.Time) (kept Reply, first []byte, err error) {
	shown, err := showCredential(m.row, now)
	issued := api.IssuedCredential{Credential: shown}
	kept = Reply{Status: status, ETag: credentialTag(m.row), Body: encode(&issued)}
	issued.Key.SetTo(m.key.Text())
	return kept, encode(&issued), err
}
