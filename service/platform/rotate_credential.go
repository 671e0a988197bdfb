package platform

import (
	"context"
	"time"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// defaultOverlap is how long the key before a rotation goes on working where nothing else was asked for.
const defaultOverlap = time.Hour

// RotateCredential makes a new key for a credential; the one before it works on for the overlap, one before that ends at once. A repeat rotates
// nothing and gets the first reply without the key. Of two under different keys one rotates after the other.
func (s *Service) RotateCredential(ctx context.Context, req api.OptRotateCredentialRequest, params api.RotateCredentialParams) (*api.RotateCredentialOKHeaders, error) {
	caller, err := Authorize(ctx, ActionAdmin)
	if err != nil {
		return nil, err
	}
	const operation = "rotateCredential"
	overlap := defaultOverlap
	if ms, ok := req.Value.OverlapMs.Get(); ok {
		overlap = time.Duration(ms) * time.Millisecond
	}
	var first []byte
	try := Try{Key: params.IdempotencyKey.Or(""), Digest: body.From(ctx).Digest, ResourceKind: kindCredential, ResourceID: params.CredentialID}
	scope := ScopeOf(caller, operation, "/v1/credentials/"+params.CredentialID.String()+":rotate")
	reply, err := s.Once(ctx, scope, try, func(ctx context.Context, tx *dbtx.Tx) (Reply, error) {
		m, err := s.rotate(ctx, tx, caller, operation, params.CredentialID, overlap)
		if err != nil {
			return Reply{}, err
		}
		var kept Reply
		kept, first, err = m.replies(200, tx.Now)
		return kept, err
	})
	if err != nil {
		return nil, err
	}
	if !reply.Replayed {
		reply.Body = first
	}
	return &api.RotateCredentialOKHeaders{ETag: reply.ETag, IdempotencyReplayed: optReplayed(reply), Response: reply.Body}, nil
}
