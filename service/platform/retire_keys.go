package platform

import (
	"context"
	"errors"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// RetireKeysBatch is how many keys one pass takes of each kind.
const RetireKeysBatch = 500

// RetireKeys ends what keys hold on to: past its life a done key becomes a tombstone and its reply is deleted; past the tombstone's life
// tombstones and voids are removed. A key that another replica took first is left to it. Answers how many keys it moved.
func (s *Service) RetireKeys(ctx context.Context) (int, error) {
	now, err := s.Batch.Now(ctx)
	if err != nil {
		return 0, err
	}
	moved := 0
	for _, step := range []struct {
		state orbit.KeyState
		due   time.Time
		move  func(ctx context.Context, q *platformdb.Queries, g *dueKeys, due time.Time) error
	}{
		{orbit.KeyDone, now, expire},
		{orbit.KeyExpired, now.Add(-s.TombstoneLife), remove},
		{orbit.KeyVoid, now.Add(-s.TombstoneLife), remove},
	} {
		due, failed := platformdb.New(s.Batch.DB).DueKeys(ctx, platformdb.DueKeysParams{State: step.state, DueAt: step.due, Limit: RetireKeysBatch})
		err = errors.Join(err, failed)
		for _, g := range groupKeys(due) {
			failed := s.Batch.Run(ctx, "retire_keys", func(ctx context.Context, tx *dbtx.Tx) error {
				return step.move(ctx, platformdb.New(tx), g, step.due)
			})
			switch {
			case failed == nil:
				moved += len(g.keys)
			case !errors.Is(failed, dbtx.ErrLost):
				err = errors.Join(err, failed)
			}
		}
	}
	return moved, err
}

// dueKeys are due keys of one scope, which one statement can name.
type dueKeys struct {
	namespaceID, scope orbit.ID
	keys               []string
	replies            []orbit.ID
}

func groupKeys(due []platformdb.DueKeysRow) []*dueKeys {
	type scope struct{ namespaceID, scope orbit.ID }
	byScope := map[scope]*dueKeys{}
	var groups []*dueKeys
	for _, k := range due {
		at := scope{k.NamespaceID, k.Scope}
		g := byScope[at]
		if g == nil {
			g = &dueKeys{namespaceID: k.NamespaceID, scope: k.Scope}
			byScope[at], groups = g, append(groups, g)
		}
		g.keys = append(g.keys, k.IdempotencyKey)
		if k.ReplyID.Valid {
			g.replies = append(g.replies, k.ReplyID.ID)
		}
	}
	return groups
}

func expire(ctx context.Context, q *platformdb.Queries, g *dueKeys, due time.Time) error {
	n, err := q.ExpireKeys(ctx, platformdb.ExpireKeysParams{NamespaceID: g.namespaceID, Scope: g.scope, IdempotencyKeys: g.keys, DueAt: due})
	if err := dbtx.SwappedAll(n, err, len(g.keys)); err != nil {
		return err
	}
	n, err = q.DeleteReplies(ctx, platformdb.DeleteRepliesParams{NamespaceID: g.namespaceID, Ids: g.replies})
	return dbtx.SwappedAll(n, err, len(g.keys))
}

func remove(ctx context.Context, q *platformdb.Queries, g *dueKeys, due time.Time) error {
	n, err := q.DeleteKeys(ctx, platformdb.DeleteKeysParams{NamespaceID: g.namespaceID, Scope: g.scope, IdempotencyKeys: g.keys, DueAt: due})
	return dbtx.SwappedAll(n, err, len(g.keys))
}
