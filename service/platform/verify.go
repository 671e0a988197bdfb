package platform

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/finding"
)

// The invariants that Verify looks at.
const (
	invariantHead       = "platform.event.head"       // every namespace has an event head
	invariantKeyReply   = "platform.key.reply"        // a done key has its reply, and no other key has one
	invariantLogCount   = "platform.event.log_count"  // a batch of the log has the events that its row counts
	invariantLogGap     = "platform.event.log_gap"    // positions go on without a gap from what retention left up to the head
	invariantSpoolCount = "platform.event.spool"      // a batch of the spool has the events that its row counts
	invariantOnePlace   = "platform.event.one_place"  // a batch of events is in exactly one of log and spool
	invariantOverlap    = "platform.credential.shape" // a previous secret has an end, and grants are lists
)

// verifyStretch is how many rows of a key range one statement looks at.
const verifyStretch = 500

// Verify looks for broken invariants in every namespace, a bounded key range a statement, and answers them; none is good. What looks broken is read
// once more, so that a change under way is not taken for one. It holds no snapshot between statements and may run beside everything else.
func (s *Service) Verify(ctx context.Context) ([]finding.Finding, error) {
	q := platformdb.New(s.Batch.DB)
	headless, err := q.HostNamespacesWithoutHead(ctx, verifyStretch)
	if err != nil {
		return nil, err
	}
	var found []finding.Finding
	for _, id := range headless {
		found = append(found, finding.Finding{Invariant: invariantHead, NamespaceID: id, ID: id, Detail: "the namespace has no event head"})
	}
	for after := (orbit.ID{}); ; {
		namespaces, err := q.HostEventHeads(ctx, platformdb.HostEventHeadsParams{AfterNamespace: after, Limit: verifyStretch})
		if err != nil {
			return nil, err
		}
		for _, namespaceID := range namespaces {
			broken, err := s.verifyNamespace(ctx, q, namespaceID)
			found = append(found, broken...)
			if err != nil {
				return found, err
			}
		}
		if len(namespaces) < verifyStretch {
			return found, nil
		}
		after = namespaces[len(namespaces)-1]
	}
}

func (s *Service) verifyNamespace(ctx context.Context, q *platformdb.Queries, namespaceID orbit.ID) ([]finding.Finding, error) {
	v := verification{q: q, namespaceID: namespaceID}
	err := errors.Join(v.keys(ctx), v.spool(ctx), v.batches(ctx), v.log(ctx), v.credentials(ctx))
	return v.found, err
}

// verification is of one namespace.
type verification struct {
	q           *platformdb.Queries
	namespaceID orbit.ID
	found       []finding.Finding
}

func (v *verification) report(invariant string, id orbit.ID, format string, args ...any) {
	v.found = append(v.found, finding.Finding{Invariant: invariant, NamespaceID: v.namespaceID, ID: id, Detail: fmt.Sprintf(format, args...)})
}

func (v *verification) keys(ctx context.Context) error {
	at := platformdb.VerifyKeysParams{NamespaceID: v.namespaceID, Limit: verifyStretch}
	for {
		rows, err := v.q.VerifyKeys(ctx, at)
		if err != nil {
			return err
		}
		for i, r := range rows {
			if keyStands(r) {
				continue
			}
			again := at
			if i > 0 {
				again.Scope, again.IdempotencyKey = rows[i-1].Scope, rows[i-1].IdempotencyKey
			}
			again.Limit = 1
			same, err := v.q.VerifyKeys(ctx, again)
			if err != nil {
				return err
			}
			if len(same) == 1 && same[0].IdempotencyKey == r.IdempotencyKey && same[0].Scope == r.Scope && !keyStands(same[0]) {
				v.report(invariantKeyReply, r.Scope, "key %q is %s, its reply is named %s and found %s", r.IdempotencyKey, r.State, present(r.ReplyID), present(r.FoundReply))
			}
		}
		if len(rows) < verifyStretch {
			return nil
		}
		last := rows[len(rows)-1]
		at.Scope, at.IdempotencyKey = last.Scope, last.IdempotencyKey
	}
}

func keyStands(r platformdb.VerifyKeysRow) bool {
	return (r.State == orbit.KeyDone) == r.FoundReply.Valid && r.ReplyID.Valid == r.FoundReply.Valid
}

func present(id orbit.NullID) string {
	if id.Valid {
		return "yes"
	}
	return "no"
}

func (v *verification) spool(ctx context.Context) error {
	at := platformdb.VerifySpoolParams{NamespaceID: v.namespaceID, Limit: verifyStretch}
	for {
		rows, err := v.q.VerifySpool(ctx, at)
		if err != nil {
			return err
		}
		for _, r := range rows {
			// Events and spool row are one commit and one statement read both, so that a difference is none of a change under way.
			if r.Found != int64(r.EventCount) {
				v.report(invariantSpoolCount, r.BatchID, "the spool counts %d events, there are %d", r.EventCount, r.Found)
			}
		}
		if len(rows) < verifyStretch {
			return nil
		}
		at.AfterSid = rows[len(rows)-1].Sid
	}
}

func (v *verification) batches(ctx context.Context) error {
	at := platformdb.VerifyBatchesParams{NamespaceID: v.namespaceID, Limit: verifyStretch}
	for {
		rows, err := v.q.VerifyBatches(ctx, at)
		if err != nil {
			return err
		}
		for i, r := range rows {
			if r.Places == 1 {
				continue
			}
			again := at
			if i > 0 {
				again.AfterBatch = rows[i-1].BatchID
			}
			again.Limit = 1
			same, err := v.q.VerifyBatches(ctx, again)
			if err != nil {
				return err
			}
			if len(same) == 1 && same[0].BatchID == r.BatchID && same[0].Places != 1 {
				v.report(invariantOnePlace, r.BatchID, "the batch is in %d places of log and spool, not in one", r.Places)
			}
		}
		if len(rows) < verifyStretch {
			return nil
		}
		at.AfterBatch = rows[len(rows)-1].BatchID
	}
}

// log walks from what retention left to the head. What looks like a gap is looked at again from the head read anew: retention and the sequencer
// move both ends meanwhile.
func (v *verification) log(ctx context.Context) error {
	for try := 0; ; try++ {
		broken, err := v.walkLog(ctx)
		if err != nil || len(broken) == 0 {
			return err
		}
		if try == 2 {
			v.found = append(v.found, broken...)
			return nil
		}
	}
}

func (v *verification) walkLog(ctx context.Context) ([]finding.Finding, error) {
	w := verification{q: v.q, namespaceID: v.namespaceID}
	before, err := v.q.GetEventHead(ctx, v.namespaceID)
	if err != nil {
		return nil, err
	}
	next, at := before.TrimmedBelow, platformdb.VerifyLogParams{NamespaceID: v.namespaceID, FromPosition: before.TrimmedBelow, Limit: verifyStretch}
	for next < before.NextPosition {
		rows, err := v.q.VerifyLog(ctx, at)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r.FirstPosition != next {
				w.report(invariantLogGap, r.BatchID, "the batch begins at position %d, but the one before ends at %d", r.FirstPosition, next-1)
			}
			if r.Found != int64(r.EventCount) {
				w.report(invariantLogCount, r.BatchID, "the log counts %d events, there are %d", r.EventCount, r.Found)
			}
			next = r.FirstPosition + int64(r.EventCount)
		}
		if len(rows) == 0 {
			w.report(invariantLogGap, v.namespaceID, "the log ends at position %d, but the head goes on to %d", next-1, before.NextPosition-1)
			break
		}
		at.FromPosition = next
	}
	after, err := v.q.GetEventHead(ctx, v.namespaceID)
	if err != nil {
		return nil, err
	}
	if next > after.NextPosition {
		w.report(invariantLogGap, v.namespaceID, "the log goes on to position %d, but the head only to %d", next-1, after.NextPosition-1)
	}
	return w.found, nil
}

func (v *verification) credentials(ctx context.Context) error {
	at := platformdb.VerifyCredentialsParams{NamespaceID: v.namespaceID, Limit: verifyStretch}
	for {
		rows, err := v.q.VerifyCredentials(ctx, at)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.PreviousDigest.Valid != (r.PreviousExpiresAt != nil) {
				v.report(invariantOverlap, r.ID, "of the previous secret and its end one is missing")
			}
			if _, err := showCredential(r, r.UpdatedAt); err != nil {
				v.report(invariantOverlap, r.ID, "its grants are not lists of text")
			}
		}
		if len(rows) < verifyStretch {
			return nil
		}
		at.AfterID = rows[len(rows)-1].ID
	}
}
