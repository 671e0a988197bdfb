package platform

import (
	"context"
	"net/netip"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// GetCredential tells the caller who it is. It needs no action.
func (s *Service) GetCredential(ctx context.Context) (*api.Caller, error) {
	shown, ok := ctx.Value(proofKey{}).(proof)
	if !ok {
		return nil, fault.New(fault.Unauthenticated, "this request was made without a credential")
	}
	known, err := s.know(ctx, shown, netip.Addr{})
	if err != nil {
		return nil, err
	}
	return &api.Caller{NamespaceID: known.row.NamespaceID, ActorID: known.row.ActorID, CredentialID: known.row.ID, Name: known.row.Name,
		Actions: known.actions, Queues: known.queues, ExpiresAt: optTime(known.row.ExpiresAt)}, nil
}
