package pulse

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// FinishAttempts takes results: running → ended, with a receipt, and the task moves on, item by item. A repeat with the same result gets
// the original receipt; what comes too late or contradicts is refused and kept as evidence. Gates do not matter. In a race with
// recovery either the result is taken or the lease is lost, never both.
func (s *Service) FinishAttempts(ctx context.Context, req *api.FinishAttemptsRequest) (jx.Raw, error) {
	caller, err := platform.Authorize(ctx, platform.ActionTasksExecute)
	if err != nil {
		return nil, err
	}
	if err := checkCount(len(req.Items), 1); err != nil {
		return nil, err
	}
	c := &workerCall{caller: caller, instanceID: req.InstanceID, epoch: req.Epoch}
	for k, raw := range req.Items {
		c.items = append(c.items, decodeFinish(ctx, c, raw, k))
	}
	claim, err := s.finishClaim(ctx, c, req.Claim)
	if err != nil {
		return nil, err
	}
	c.claim = claim
	if err := s.perform(ctx, s.finishes, c); err != nil {
		return nil, err
	}
	return s.encodeFinishes(ctx, c.items, claim), nil
}

// finishClaim reads the claim that a call makes with its results; nil if it makes none. A queue that
// does not exist for the caller refuses the call, as it does a claim, before anything is done.
func (s *Service) finishClaim(ctx context.Context, c *workerCall, req api.OptFinishClaim) (*claimCall, error) {
	if !req.Set {
		return nil, nil
	}
	r := req.Value
	claim := &claimCall{workerCall: workerCall{caller: c.caller, instanceID: c.instanceID, epoch: c.epoch}, seq: r.ClaimSeq, limit: r.Max, start: r.Start.Or(false)}
	var err error
	claim.queues, err = s.claimQueues(ctx, claim, r.Queues)
	return claim, err
}

func decodeFinish(ctx context.Context, c *workerCall, raw jx.Raw, place int) *item {
	var in api.FinishItem
	if err := decodeItem(ctx, raw, place, &in); err != nil {
		return &item{call: c, err: err}
	}
	i := &item{call: c, attemptID: in.AttemptID, token: readToken(in.Token), digest: body.From(ctx).Items[place].Digest}
	i.said = submission{
		outcome: orbit.Outcome(in.Outcome), code: in.Error.Value.Code, message: clip(in.Error.Value.Message.Or(""), maxText),
		retry: in.Outcome == api.OutcomeFailed && in.Retry.Or(true), retryAfter: time.Duration(in.RetryAfterMs.Or(0)) * time.Millisecond,
	}
	switch {
	case len(in.Result) > MaxPayload:
		i.err = fault.New(fault.PayloadTooLarge, "the result has %d bytes; at most %d are kept: keep it elsewhere and send a reference", len(in.Result), MaxPayload)
	case in.Outcome == api.OutcomeSucceeded && in.Error.Set:
		i.err = fault.Invalid("/error", "not_allowed", "a success carries no error")
	case in.Outcome != api.OutcomeFailed && (in.Retry.Set || in.RetryAfterMs.Set):
		i.err = fault.Invalid("/retry", "not_allowed", "only a failure can ask for another attempt")
	}
	if in.Outcome == api.OutcomeFailed && !in.Error.Set {
		i.said.code = codeFailed
	}
	if len(in.Result) > 0 {
		text := string(in.Result)
		i.said.result = &text
	}
	return i
}

// finish does the steps in lock order:
//  1. session head, shared; an old epoch does not end the call, its results are evidence;
//  2. the root gate, shared, if a claim made with results may start something;
//  3. ready rows for claims made with results;
//  4. the attempts, by primary key;
//  5. running attempts are decided and settled with their tasks; ended ones are answered from their receipts;
//  6. receipts, and evidence for what was refused.
func (s *Service) finish(ctx context.Context, tx *dbtx.Tx, b *workerBatch) error {
	q := pulsedb.New(tx)
	items, ns := b.fence(), b.ns
	claims := admitted(claimsOf(b.calls))
	gates, err := claimGates(ctx, q, ns, claims, b.root)
	if err != nil {
		return err
	}
	held, err := b.hold(ctx, q, items)
	if err != nil {
		return err
	}
	if err := answerRepeats(ctx, q, ns, held); err != nil {
		return err
	}
	if err := s.claimFenced(ctx, tx, ns, claims, gates, &b.front); err != nil {
		return err
	}
	var decided []ending
	var receipts [][]any
	for _, i := range items {
		e, ok := held[i]
		switch {
		case !ok || i.replayed || i.err != nil:
			continue
		case e.attempt.State == orbit.AttemptOffered:
			i.err = fault.New(fault.StaleAttempt, "the attempt was never started; only a started attempt has a result")
			continue
		case i.call.superseded:
			i.err = errSuperseded(i.call.head)
			continue
		case e.attempt.State != orbit.AttemptRunning:
			i.err = finishOver(e.attempt)
			continue
		}
		e.actor = i.actor()
		e = decideFinished(e, i.said)
		i.receipt = attemptReceipt(e, i.said, tx.Now)
		decided = append(decided, e)
		receipts = append(receipts, []any{ns, i.attemptID, i.digest, i.said.outcome, i.said.result, i.said.code, i.said.message, i.receipt, tx.Now})
	}
	if err := s.settle(ctx, tx, ns, decided); err != nil {
		return err
	}
	if err := batch.Insert(tx, pulsedb.InsertReceipt, receipts); err != nil {
		return err
	}
	return keepEvidence(ctx, tx, q, ns, held)
}

// claimsOf lists the claims of calls that passed the fence.
func claimsOf(calls []*workerCall) (claims []*claimCall) {
	for _, c := range calls {
		if c.claim != nil && c.err == nil && !c.again {
			c.claim.head, c.claim.superseded = c.head, c.superseded
			claims = append(claims, c.claim)
		}
	}
	return claims
}

// answerRepeats gives attempts that have a receipt their original one, or refuses what contradicts it.
func answerRepeats(ctx context.Context, q *pulsedb.Queries, ns orbit.ID, held map[*item]ending) error {
	var ended []orbit.ID
	for _, e := range held {
		if e.attempt.EndedAt != nil {
			ended = append(ended, e.attempt.ID)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	rows, err := q.ListReceipts(ctx, pulsedb.ListReceiptsParams{NamespaceID: ns, AttemptIds: ended})
	if err != nil {
		return err
	}
	byID := map[orbit.ID]pulsedb.ListReceiptsRow{}
	for _, r := range rows {
		byID[r.AttemptID] = r
	}
	for i := range held {
		r, ok := byID[i.attemptID]
		switch {
		case !ok:
		case r.Digest == i.digest:
			i.receipt, i.replayed = r.Reply, true
		default:
			i.err = fault.New(fault.ResultConflict, "another result of this attempt was taken and stands; this one is kept as evidence")
		}
	}
	return nil
}

// finishOver tells why an attempt that ended without a result takes none.
func finishOver(a pulsedb.PulseAttempt) error {
	switch {
	case a.State == orbit.AttemptLost:
		return fault.New(fault.LeaseLost, "the lease was lost at %s; the result is kept as evidence", a.EndedAt.Format(time.RFC3339Nano))
	case a.State == orbit.AttemptReleased && a.StartedAt != nil:
		return fault.New(fault.StaleAttempt, "the attempt came started and was given back; the result is kept as evidence")
	case a.State == orbit.AttemptExpired || a.State == orbit.AttemptReleased:
		return fault.New(fault.StaleAttempt, "the offer is over (%s) and was never started", a.State)
	}
	return fault.New(fault.StateConflict, "the attempt has ended (%s, %s); the result is kept as evidence", a.State, a.EndCode)
}

// maxEvidence bounds the different refused results that are kept of one attempt; later ones are refused and not kept.
const maxEvidence = 16

// keepEvidence keeps the refused results of attempts that were started, and names them to the worker. The same one is kept once: the held
// attempt keeps rivals away between the look and the insert.
func keepEvidence(ctx context.Context, tx *dbtx.Tx, q *pulsedb.Queries, ns orbit.ID, held map[*item]ending) error {
	for i, e := range held {
		a := e.attempt
		var f *fault.Fault
		if !errors.As(i.err, &f) || a.StartedAt == nil {
			continue
		}
		known, err := q.FindEvidence(ctx, pulsedb.FindEvidenceParams{NamespaceID: ns, AttemptID: a.ID, Digest: i.digest})
		if err == nil {
			i.evidence = known
			continue
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		kept, err := q.CountEvidence(ctx, pulsedb.CountEvidenceParams{NamespaceID: ns, AttemptID: a.ID})
		if err != nil {
			return err
		}
		if kept >= maxEvidence {
			continue
		}
		i.evidence = orbit.NewID(tx.Now)
		if err := q.InsertEvidence(ctx, pulsedb.InsertEvidenceParams{
			NamespaceID: ns, ID: i.evidence, AttemptID: a.ID, Digest: i.digest, Reason: string(f.Code), Outcome: i.said.outcome,
			Result: i.said.result, ErrorCode: i.said.code, ErrorMessage: i.said.message, CreatedAt: tx.Now}); err != nil {
			return err
		}
	}
	return nil
}

// attemptReceipt is the bytes of the receipt, stored and sent as they are.
func attemptReceipt(e ending, said submission, now time.Time) []byte {
	r := api.AttemptReceipt{AttemptID: e.attempt.ID, TaskID: e.task.ID, Outcome: api.Outcome(said.outcome), AcceptedAt: now}
	switch e.fate {
	case fateSucceed:
		r.TaskState = api.TaskStateSucceeded
	case fateFail:
		r.TaskState = api.TaskStateFailed
	case fateCancel:
		r.TaskState = api.TaskStateCancelled
	default:
		r.TaskState = api.TaskStateQueued
		r.NextRunAt = api.NewOptDateTime(now.Add(e.delay).Truncate(time.Microsecond))
	}
	return encode(&r)
}

// encodeFinishes writes the reply by hand, because a receipt's stored bytes go into it unchanged.
func (s *Service) encodeFinishes(ctx context.Context, items []*item, claim *claimCall) jx.Raw {
	var e jx.Encoder
	e.ObjStart()
	e.FieldStart("items")
	e.ArrStart()
	for _, i := range items {
		e.ObjStart()
		if i.err != nil {
			p := s.Problem(ctx, i.err)
			e.FieldStart("status")
			e.Int(p.Status)
			e.FieldStart("problem")
			p.Encode(&e)
		} else {
			e.FieldStart("status")
			e.Int(200)
			e.FieldStart("receipt")
			e.Raw(i.receipt)
		}
		e.FieldStart("replayed")
		e.Bool(i.replayed)
		if !i.evidence.IsZero() {
			e.FieldStart("evidence_id")
			e.Str(i.evidence.String())
		}
		e.ObjEnd()
	}
	e.ArrEnd()
	if claim != nil {
		r := api.FinishClaimResult{Status: 200, ClaimSeq: claim.seq, Offers: claim.offers}
		if claim.err != nil {
			r.Status, r.Problem = s.problem(ctx, claim.err)
		}
		e.FieldStart("claim")
		r.Encode(&e)
	}
	e.ObjEnd()
	return e.Bytes()
}
