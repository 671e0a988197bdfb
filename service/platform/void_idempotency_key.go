package platform

import (
	"context"
	"errors"
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

// void reserves the key for nothing, unless it is used, and reads back what it is.
func (s *Service) void(ctx context.Context, tx *dbtx.Tx, scope Scope, key string, held WhenHeld) (platformdb.OrbitIdempotencyKey, error) {
	if held == GivesUp {
		if err := probe(ctx, tx, scope, []string{key}); err != nil {
			return platformdb.OrbitIdempotencyKey{}, err
		}
	}
	err := platformdb.New(tx).ReserveKey(ctx, platformdb.ReserveKeyParams{
		NamespaceID: scope.NamespaceID, Scope: scope.hash(), IdempotencyKey: key, ActorID: scope.ActorID, Operation: scope.Operation,
		State: orbit.KeyVoid, CreatedAt: tx.Now, ExpiresAt: tx.Now.Add(s.KeyLife),
	})
	if err := heldError(err, held); err != nil {
		return platformdb.OrbitIdempotencyKey{}, err
	}
	known, err := s.listKeys(ctx, platformdb.New(tx), scope, []Try{{Key: key}})
	if row, ok := known[key]; ok || err != nil {
		return row, err
	}
	return platformdb.OrbitIdempotencyKey{}, errors.New("a reserved key is not there")
}
