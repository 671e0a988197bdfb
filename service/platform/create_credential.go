package platform

import (
	"context"
	"encoding/json"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// CreateCredential makes a credential in the caller's namespace. Who holds admin may grant every action on every queue, so that admin amounts
// to the whole namespace. A repeat gets the first reply without the key, which is kept nowhere; of many at once under one key, one makes the
// credential.
func (s *Service) CreateCredential(ctx context.Context, req *api.CreateCredentialRequest, params api.CreateCredentialParams) (*api.CreateCredentialCreatedHeaders, error) {
	caller, err := Authorize(ctx, ActionAdmin)
	if err != nil {
		return nil, err
	}
	wanted := NewCredential{Name: req.Name, ActorID: req.ActorID.Or(orbit.ID{}), Actions: req.Actions, Queues: req.Queues,
		ExpiresAt: req.ExpiresAt.Value, RatePerSecond: req.RateLimitPerSecond.Or(0)}
	if f := wanted.check(); f != nil {
		return nil, f
	}
	const operation, path = "createCredential", "/v1/credentials"
	var first []byte
	try := Try{Key: params.IdempotencyKey.Or(""), Digest: body.From(ctx).Digest, ResourceKind: kindCredential, ResourceID: orbit.NewID(s.Clock())}
	reply, err := s.Once(ctx, ScopeOf(caller, operation, path), try, func(ctx context.Context, tx *dbtx.Tx) (Reply, error) {
		m, err := s.issue(ctx, tx, caller, operation, try.ResourceID, wanted)
		if err != nil {
			return Reply{}, err
		}
		var kept Reply
		kept, first, err = m.replies(201, tx.Now)
		return kept, err
	})
	if err != nil {
		return nil, err
	}
	if !reply.Replayed {
		reply.Body = first
	}
	id, err := replyCredential(reply.Body)
	if err != nil {
		return nil, err
	}
	return &api.CreateCredentialCreatedHeaders{ETag: reply.ETag, IdempotencyReplayed: optReplayed(reply), Location: path + "/" + id.String(), Response: reply.Body}, nil
}

// replyCredential reads the credential's id out of a stored reply.
func replyCredential(body []byte) (orbit.ID, error) {
	var r struct {
		Credential struct {
			ID orbit.ID `json:"id"`
		} `json:"credential"`
	}
	err := json.Unmarshal(body, &r)
	return r.Credential.ID, err
}
