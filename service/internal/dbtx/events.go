package dbtx

import (
	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/batch"
)

// writeEvents writes the collected events, then one spool row a namespace. The spool rows are the last statements of the
// transaction: a sid taken then is above the sid of every transaction whose effects this one saw, which is what
// makes the sequencer's order safe.
func (tx *Tx) writeEvents() error {
	if len(tx.events) == 0 {
		return nil
	}
	batchID := orbit.NewID(tx.Now)
	counts := map[orbit.ID]int{}
	var order []orbit.ID
	rows := make([][]any, 0, len(tx.events))
	for _, e := range tx.events {
		if counts[e.NamespaceID] == 0 {
			order = append(order, e.NamespaceID)
		}
		rows = append(rows, []any{e.NamespaceID, batchID, counts[e.NamespaceID], e.Kind, e.ID, e.Version, e.Type, e.ActorID, e.Data, tx.Now})
		counts[e.NamespaceID]++
	}
	if err := batch.Insert(tx, platformdb.InsertEvent, rows); err != nil {
		return err
	}
	spool := make([][]any, 0, len(order))
	for _, ns := range order {
		spool = append(spool, []any{ns, batchID, counts[ns]})
	}
	return batch.Insert(tx, platformdb.InsertSpool, spool)
}
