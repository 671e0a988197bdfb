package main

import (
	"fmt"

	"github.com/orbit-run/orbit/service"
)

type verifyCommand struct {
	databaseSettings
}

type findingView struct {
	Invariant   string `json:"invariant"`
	NamespaceID string `json:"namespace_id"`
	ID          string `json:"id"`
	Detail      string `json:"detail"`
}

// Run fails when an invariant is broken, after printing where. It reads beside a running service and changes nothing.
func (c *verifyCommand) Run(ctx commandContext, p *printer) error {
	return c.withService(ctx, func(replica *service.Service) error {
		found, err := replica.Verify(ctx)
		if err != nil {
			return err
		}
		views, rows := make([]findingView, len(found)), make([][]string, len(found))
		for i, f := range found {
			views[i] = findingView{f.Invariant, f.NamespaceID.String(), f.ID.String(), f.Detail}
			rows[i] = []string{f.Invariant, views[i].NamespaceID, views[i].ID, f.Detail}
		}
		if len(found) == 0 && p.format == "table" {
			p.hint("Every invariant holds.")
			return nil
		}
		if err := p.list(itemsView[findingView]{views}, []string{"INVARIANT", "NAMESPACE", "ID", "FOUND"}, rows); err != nil || len(found) == 0 {
			return err
		}
		return fmt.Errorf("%d invariants are broken", len(found))
	})
}
