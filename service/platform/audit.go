package platform

import (
	"context"
	"encoding/json"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// Act is what an operator or administrator did. Detail holds reasons and changed fields, never secrets or business content.
type Act struct {
	Action     string // operationId, or the name of a host command
	TargetKind string
	TargetID   orbit.ID
	Detail     map[string]any
}

// Audit records an act of a caller in the transaction that does it.
func Audit(ctx context.Context, tx *dbtx.Tx, c Caller, act Act) error {
	if act.Detail == nil {
		act.Detail = map[string]any{}
	}
	detail, err := json.Marshal(act.Detail)
	if err != nil {
		return err
	}
	source := "api"
	if c.CredentialID.IsZero() {
		source = "host"
	}
	return platformdb.New(tx).InsertAuditEvent(ctx, platformdb.InsertAuditEventParams{
		NamespaceID: c.NamespaceID, ID: orbit.NewID(tx.Now), ActorID: c.ActorID.Null(), CredentialID: c.CredentialID.Null(),
		Action: act.Action, TargetKind: act.TargetKind, TargetID: act.TargetID.Null(), Outcome: "done",
		RequestID: c.RequestID, Source: source, Detail: detail, CreatedAt: tx.Now,
	})
}
