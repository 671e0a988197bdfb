package platform

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/platformdb"
)

// GetCredentialById reads one credential of the caller's namespace.
func (s *Service) GetCredentialById(ctx context.Context, params api.GetCredentialByIdParams) (*api.CredentialHeaders, error) {
	caller, err := Authorize(ctx, ActionAdmin)
	if err != nil {
		return nil, err
	}
	row, err := platformdb.New(s.Batch.DB).AuthenticateCredential(ctx, platformdb.AuthenticateCredentialParams{NamespaceID: caller.NamespaceID, ID: params.CredentialID})
	if err := missing(err, kindCredential); err != nil {
		return nil, err
	}
	shown, err := showCredential(row.OrbitCredential, s.Batch.Shift(row.NowAt))
	return &api.CredentialHeaders{ETag: credentialTag(row.OrbitCredential), Response: shown}, err
}
