package pulse

import (
	"encoding/json"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// Kinds of aggregates in events.
const (
	kindTask       = "task"
	kindAttempt    = "attempt"
	kindQueue      = "queue"
	kindGate       = "gate"
	kindWorker     = "worker"
	kindSchedule   = "schedule"
	kindOccurrence = "occurrence"
)

// facts is the data of an event: metadata only, never business content.
type facts map[string]any

func emit(tx *dbtx.Tx, ns orbit.ID, actor orbit.NullID, kind string, id orbit.ID, version int64, eventType string, data facts) {
	text := "{}"
	if len(data) > 0 {
		raw, err := json.Marshal(data)
		if err != nil {
			panic(err) // facts hold strings, numbers and ids only
		}
		text = string(raw)
	}
	tx.Emit(dbtx.Event{NamespaceID: ns, Kind: kind, ID: id, Version: version, Type: eventType, ActorID: actor, Data: text})
}
