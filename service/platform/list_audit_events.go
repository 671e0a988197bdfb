package platform

import (
	"context"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/page"
)

// auditStretch is how many rows a page of the audit looks at, at most, for those that its filters want: a page may be short before the end.
const auditStretch = 2000

// ListAuditEvents pages through the audit of the caller's namespace, newest first.
func (s *Service) ListAuditEvents(ctx context.Context, params api.ListAuditEventsParams) (*api.AuditEventList, error) {
	caller, err := Authorize(ctx, ActionAuditRead)
	if err != nil {
		return nil, err
	}
	wanted := auditFilter{params}
	walk, size := page.Of("listAuditEvents", wanted.text()...), page.Size(params.Limit.Or(0))
	before, err := walk.Before(params.Cursor.Or(""))
	if err != nil {
		return nil, err
	}
	stretch := size
	if wanted.any() {
		stretch = auditStretch
	}
	rows, err := platformdb.New(s.Batch.DB).ListAuditEvents(ctx, platformdb.ListAuditEventsParams{NamespaceID: caller.NamespaceID, BeforeID: before, Limit: int32(stretch) + 1})
	if err != nil {
		return nil, err
	}
	list := &api.AuditEventList{Items: make([]api.AuditEvent, 0, min(size, len(rows)))}
	for i, row := range rows {
		if i == stretch || len(list.Items) == size {
			list.NextCursor.SetTo(walk.Cursor(rows[i-1].ID[:]))
			break
		}
		if wanted.takes(row) {
			list.Items = append(list.Items, showAudit(row))
		}
	}
	return list, nil
}

type auditFilter struct{ api.ListAuditEventsParams }

func (f auditFilter) any() bool { return f.ActorID.Set || f.Action.Set || f.TargetID.Set }

func (f auditFilter) text() []string {
	var actorID, targetID string
	if f.ActorID.Set {
		actorID = f.ActorID.Value.String()
	}
	if f.TargetID.Set {
		targetID = f.TargetID.Value.String()
	}
	return []string{actorID, f.Action.Value, targetID}
}

func (f auditFilter) takes(row platformdb.OrbitAuditEvent) bool {
	return (!f.ActorID.Set || row.ActorID.Valid && row.ActorID.ID == f.ActorID.Value) &&
		(!f.Action.Set || row.Action == f.Action.Value) &&
		(!f.TargetID.Set || row.TargetID.Valid && row.TargetID.ID == f.TargetID.Value)
}

func showAudit(row platformdb.OrbitAuditEvent) api.AuditEvent {
	return api.AuditEvent{ID: row.ID, Actor: actor(row.ActorID), CredentialID: optID(row.CredentialID), Action: row.Action, TargetKind: row.TargetKind,
		TargetID: optID(row.TargetID), Outcome: row.Outcome, RequestID: row.RequestID, Source: row.Source, Detail: jx.Raw(row.Detail), OccurredAt: row.CreatedAt}
}
