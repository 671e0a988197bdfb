package platform

import (
	"context"
	"encoding/json"
	"maps"

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

// Audit records an act in the transaction that does it: of a credential, of somebody on the host, or else of the system.
func Audit(ctx context.Context, tx *dbtx.Tx, c Caller, act Act) error {
	facts := map[string]any{}
	maps.Copy(facts, act.Detail)
	source := "system"
	switch {
	case !c.CredentialID.IsZero():
		source = "api"
	case c.Host != "":
		source, facts["by"] = "host", c.Host
	}
	detail, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	return platformdb.New(tx).InsertAuditEvent(ctx, platformdb.InsertAuditEventParams{
		NamespaceID: c.NamespaceID, ID: orbit.NewID(tx.Now), ActorID: c.ActorID.Null(), CredentialID: c.CredentialID.Null(),
		Action: act.Action, TargetKind: act.TargetKind, TargetID: act.TargetID.Null(), Outcome: "done",
		RequestID: c.RequestID, Source: source, Detail: detail, CreatedAt: tx.Now,
	})
}
