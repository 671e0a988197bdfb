// Package body carries what the strict scan found out about a request body from the edge to the operation.
package body

import (
	"context"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/strict"
)

// Body is a scanned request body.
type Body struct {
	Digest orbit.Digest  // of the whole body with its operation and path; of a batch only the items have one
	Items  []strict.Item // of a batch, in order: as many as the decoded request has
}

type key struct{}

// With puts a holder into the context; the scan fills it while the request is decoded.
func With(ctx context.Context) (context.Context, *Body) {
	b := &Body{}
	return context.WithValue(ctx, key{}, b), b
}

// From gives the scanned body of the request, or an empty one.
func From(ctx context.Context) *Body {
	if b, ok := ctx.Value(key{}).(*Body); ok {
		return b
	}
	return &Body{}
}
