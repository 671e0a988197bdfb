package platform

import (
	"context"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// VoidIdempotencyKey makes a key unusable: the one definite no. In a race with a first try exactly one wins: the try is refused, or this is
// state_conflict. A repeat gets the same answer; a first try that still runs after the wait of OnKey is idempotency_in_progress.
func (s *Service) VoidIdempotencyKey(ctx context.Context, req *api.VoidIdempotencyKeyRequest) (*api.IdempotencyKey, error) {
	keyed, path, f := s.find(req.Operation, req.Path.Or(""), "/")
	if f != nil {
		return nil, f
	}
	caller, err := Authorize(ctx, keyed.Action)
	if err != nil {
		return nil, err
	}
	if f := CheckKey(req.Key); f != nil {
		return nil, f
	}
	scope := ScopeOf(caller, req.Operation, path)
	err = s.OnKey(ctx, "voidIdempotencyKey", func(ctx context.Context, tx *dbtx.Tx, held WhenHeld) error {
		row, err := s.void(ctx, tx, scope, req.Key, held)
		switch {
		case err != nil:
			return err
		case row.State == orbit.KeyVoid:
			return nil
		}
		return fault.New(fault.StateConflict, "a request was carried out under this key at %s, so it cannot be made void", row.CreatedAt.Format(time.RFC3339))
	})
	if err != nil {
		return nil, err
	}
	return &api.IdempotencyKey{State: api.IdempotencyKeyStateVoid}, nil
}

// void takes the key for nothing, unless it is used, and answers what it is then.
func (s *Service) void(ctx context.Context, tx *dbtx.Tx, scope Scope, key string, held WhenHeld) (platformdb.OrbitIdempotencyKey, error) {
	row := []any{scope.NamespaceID, scope.hash(), key, scope.ActorID, scope.Operation, orbit.Digest{}, orbit.KeyVoid, "", orbit.NullID{}, orbit.NullID{},
		tx.Now, tx.Now.Add(s.KeyLife)}
	return upsertKey(ctx, tx, scope, key, row, held)
}
