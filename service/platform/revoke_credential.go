package platform

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// RevokeCredential ends a credential for good; no replica takes its keys once what it remembers of them is forgotten. A repeat gets the first
// reply; under another key a revoked credential is answered as it is.
func (s *Service) RevokeCredential(ctx context.Context, req *api.RevokeCredentialRequest, params api.RevokeCredentialParams) (*api.RevokeCredentialOKHeaders, error) {
	caller, err := Authorize(ctx, ActionAdmin)
	if err != nil {
		return nil, err
	}
	const operation = "revokeCredential"
	try := Try{Key: params.IdempotencyKey.Or(""), Digest: body.From(ctx).Digest, ResourceKind: kindCredential, ResourceID: params.CredentialID}
	scope := ScopeOf(caller, operation, "/v1/credentials/"+params.CredentialID.String()+":revoke")
	reply, err := s.Once(ctx, scope, try, func(ctx context.Context, tx *dbtx.Tx) (Reply, error) {
		row, err := s.revoke(ctx, tx, caller, operation, params.CredentialID, req.Reason)
		if err != nil {
			return Reply{}, err
		}
		shown, err := showCredential(row, tx.Now)
		return Reply{Status: 200, ETag: credentialTag(row), Body: encode(&shown)}, err
	})
	if err != nil {
		return nil, err
	}
	return &api.RevokeCredentialOKHeaders{ETag: reply.ETag, IdempotencyReplayed: optReplayed(reply), Response: reply.Body}, nil
}
