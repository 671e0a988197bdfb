package platform

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// LookupIdempotencyKey tells what is known of a key of the caller's own actor, as far as the caller may see the resource now.
func (s *Service) LookupIdempotencyKey(ctx context.Context, params api.LookupIdempotencyKeyParams) (*api.IdempotencyKey, error) {
	keyed, path, f := s.find(params.Operation, params.Path.Or(""), "query/")
	if f != nil {
		return nil, f
	}
	caller, err := Authorize(ctx, keyed.Action)
	if err != nil {
		return nil, err
	}
	if f := CheckKey(params.Key); f != nil {
		return nil, f
	}
	var found Keys
	err = found.Ask(ScopeOf(caller, params.Operation, path), []string{params.Key})(ctx, s.Lane.DB)
	switch {
	case dbtx.IsLockedNow(err):
		return &api.IdempotencyKey{State: api.IdempotencyKeyStateInProgress}, nil
	case err != nil:
		return nil, err
	case len(found.rows) == 0:
		return &api.IdempotencyKey{State: api.IdempotencyKeyStateUnknown}, nil
	}
	row := found.rows[0]
	if row.State == orbit.KeyVoid {
		return &api.IdempotencyKey{State: api.IdempotencyKeyStateVoid}, nil
	}
	if seen, err := s.seesResource(ctx, caller, row); err != nil || !seen {
		return &api.IdempotencyKey{State: api.IdempotencyKeyStateUnknown}, err
	}
	return s.showKey(ctx, row)
}

func (s *Service) seesResource(ctx context.Context, c Caller, row platformdb.OrbitIdempotencyKey) (bool, error) {
	sees, ok := s.Resources[row.ResourceKind]
	if !ok {
		return false, nil
	}
	return sees(ctx, c, row.ResourceID.ID)
}

func (s *Service) showKey(ctx context.Context, row platformdb.OrbitIdempotencyKey) (*api.IdempotencyKey, error) {
	now, err := s.Lane.Now(ctx)
	if err != nil {
		return nil, err
	}
	shown := &api.IdempotencyKey{State: api.IdempotencyKeyStateExpired, ResourceKind: api.NewOptString(row.ResourceKind), ResourceID: optID(row.ResourceID)}
	if row.State != orbit.KeyDone || !now.Before(row.ExpiresAt) {
		return shown, nil
	}
	replies, err := platformdb.New(s.Lane.DB).ListReplies(ctx, platformdb.ListRepliesParams{NamespaceID: row.NamespaceID, Ids: []orbit.ID{row.ReplyID.ID}})
	if err != nil || len(replies) == 0 {
		return shown, err // none: it expired in between
	}
	shown.State = api.IdempotencyKeyStateDone
	shown.Reply.SetTo(api.StoredReply{Status: int(replies[0].Status), Body: replies[0].Body})
	return shown, nil
}
