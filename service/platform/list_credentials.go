package platform

import (
	"context"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/page"
)

// ListCredentials pages through all credentials of the caller's namespace, newest first, whatever their state.
func (s *Service) ListCredentials(ctx context.Context, params api.ListCredentialsParams) (*api.CredentialList, error) {
	caller, err := Authorize(ctx, ActionAdmin)
	if err != nil {
		return nil, err
	}
	walk, size := page.Of("listCredentials"), page.Size(params.Limit.Or(0))
	before, err := walk.Before(params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := platformdb.New(s.Batch.DB).ListCredentials(ctx, platformdb.ListCredentialsParams{NamespaceID: caller.NamespaceID, BeforeID: before, Limit: int32(size) + 1})
	if err != nil {
		return nil, err
	}
	list := &api.CredentialList{Items: make([]api.Credential, 0, len(rows))}
	if len(rows) > size {
		rows = rows[:size]
		list.NextCursor.SetTo(walk.Cursor(rows[size-1].ID[:]))
	}
	for _, row := range rows {
		shown, err := showCredential(row, now)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, shown)
	}
	return list, nil
}
