package service

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/platform"
	"github.com/orbit-run/orbit/service/pulse"
)

// handler is every operation: each module's methods have the generated signatures.
type handler struct {
	*platformOperations
	*pulseOperations
	service *Service
}

type (
	platformOperations = platform.Service
	pulseOperations    = pulse.Service
)

var (
	_ api.Handler         = handler{}
	_ api.SecurityHandler = handler{}
)

// NewError is how every failed operation is answered.
func (h handler) NewError(ctx context.Context, err error) *api.ProblemStatusCodeWithHeaders {
	return h.service.failed(ctx, err)
}

// HandleCredentialKey lets a request in, or not: who it is, that it is who it asserts to be, that it does not come too often.
func (h handler) HandleCredentialKey(ctx context.Context, _ api.OperationName, presented api.CredentialKey) (context.Context, error) {
	r := requestFrom(ctx)
	ctx, err := h.service.platform.Authenticate(ctx, platform.Presented{
		Operation: r.operation, RequestID: r.id, Address: r.address, Key: presented.Token, Namespace: r.namespace, Actor: r.actor,
	})
	if err == nil {
		r.caller = platform.CallerFrom(ctx)
	}
	return ctx, err
}
