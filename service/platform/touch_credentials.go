package platform

import (
	"context"
	"slices"

	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// TouchCredentials writes down which credentials this replica saw used, off the path of the requests. What an unclean end loses is seen again
// at the next use.
func (s *Service) TouchCredentials(ctx context.Context) (int, error) {
	refs := s.access.uses.take()
	slices.SortFunc(refs, func(a, b credentialRef) int {
		if c := a.namespaceID.Compare(b.namespaceID); c != 0 {
			return c
		}
		return a.id.Compare(b.id)
	})
	touched := 0
	for some := range slices.Chunk(refs, 100) {
		err := s.Batch.Run(ctx, "touch_credentials", func(ctx context.Context, tx *dbtx.Tx) error {
			stale := tx.Now.Add(-useGrain)
			for _, ref := range some {
				if _, err := platformdb.New(tx).TouchCredential(ctx, platformdb.TouchCredentialParams{
					NamespaceID: ref.namespaceID, ID: ref.id, NowAt: tx.Now, StaleAt: &stale}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return touched, err
		}
		touched += len(some)
	}
	return touched, nil
}
