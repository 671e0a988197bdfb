package platform

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// denials counts refusals between two writings of the audit: one row for each credential, operation and reason, however many there were.
type denials struct {
	mu   *sync.Mutex
	seen map[denial]denied
}

type denial struct {
	namespaceID, actorID, credentialID orbit.ID
	operation                          string
	code                               fault.Code
}

type denied struct {
	count     int
	requestID string // of the last one
}

// maxDenials bounds the kinds that are counted between two writings; more are not told apart but dropped and counted in the log.
const maxDenials = 10_000

func newDenials() denials { return denials{mu: &sync.Mutex{}, seen: map[denial]denied{}} }

// Denied notes that a caller was refused for who it is or for what it may do.
func (s *Service) Denied(c Caller, operation string, code fault.Code) {
	d := denial{c.NamespaceID, c.ActorID, c.CredentialID, operation, code}
	s.denials.mu.Lock()
	defer s.denials.mu.Unlock()
	now, ok := s.denials.seen[d]
	if !ok && len(s.denials.seen) >= maxDenials {
		s.Log.Warn("denial not audited: too many kinds of them", "operation", operation, "code", code, "credential", c.CredentialID)
		return
	}
	s.denials.seen[d] = denied{now.count + 1, c.RequestID}
}

// AuditDenials writes the refusals since the last writing to the audit. After an error they are counted on and written next time; after an
// unknown commit they may be written twice.
func (s *Service) AuditDenials(ctx context.Context) (int, error) {
	seen := s.denials.take()
	if len(seen) == 0 {
		return 0, nil
	}
	err := s.Batch.Run(ctx, "audit_denials", func(ctx context.Context, tx *dbtx.Tx) error {
		rows := make([][]any, 0, len(seen))
		for d, n := range seen {
			detail, err := json.Marshal(map[string]any{"code": d.code, "count": n.count})
			if err != nil {
				return err
			}
			rows = append(rows, []any{d.namespaceID, orbit.NewID(tx.Now), d.actorID.Null(), d.credentialID.Null(), d.operation, "", orbit.NullID{},
				"denied", n.requestID, "api", json.RawMessage(detail), tx.Now})
		}
		return batch.Insert(tx, platformdb.InsertAuditEvent, rows)
	})
	if err != nil {
		s.denials.giveBack(seen)
		return 0, err
	}
	return len(seen), nil
}

func (d *denials) take() map[denial]denied {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := d.seen
	d.seen = map[denial]denied{}
	return seen
}

func (d *denials) giveBack(seen map[denial]denied) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for kind, n := range seen {
		now, ok := d.seen[kind]
		if !ok {
			now.requestID = n.requestID
		}
		d.seen[kind] = denied{now.count + n.count, now.requestID}
	}
}
