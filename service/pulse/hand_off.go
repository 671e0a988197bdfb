package pulse

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

// handOff gives new tasks to polls that wait for them, in the transaction that accepts the tasks: a task so given never has a ready row, and its
// worker has it as soon as it is accepted.
//
//	parked ──take──▶ taken ──commit───────▶ answers with the offers
//	                       ──unknown commit▶ answers outcome_unknown, and the worker releases its claim_seq
//	                       ──otherwise────▶ looks for itself
//
// It takes the place of a claim, and is fenced as one: session heads shared, gates looked at, nothing given past a ready row of the queue. A poll is
// taken exclusively, and settled as soon as the transaction is over, whatever becomes of it.
type handOff struct {
	service *Service
	polls   []*poll
}

func (s *Service) newHandOff(tx *dbtx.Tx) *handOff {
	h := &handOff{service: s}
	tx.OnEnd(h.settle)
	return h
}

// offering is who takes new tasks at once, by queue.
type offering struct {
	takers map[orbit.ID][]*claimCall
	gates  closedGates
}

// prepare finds the polls that take tasks at once. It reads, and so comes before anything of the transaction is written.
func (h *handOff) prepare(ctx context.Context, tx *dbtx.Tx, ns orbit.ID, tasks []newTask) (offering, error) {
	due := map[orbit.ID]int{}
	for _, t := range tasks {
		if t.isReady(tx.Now) {
			due[t.queue.ID]++
		}
	}
	byQueue := map[orbit.ID][]*claimCall{}
	var claims []*claimCall
	var calls []*workerCall
	for queueID, n := range due {
		for _, p := range h.service.waiters.take(batch.Queue{NamespaceID: ns, ID: queueID}, n) {
			h.polls = append(h.polls, p)
			byQueue[queueID] = append(byQueue[queueID], p.call)
			claims, calls = append(claims, p.call), append(calls, &p.call.workerCall)
		}
	}
	if len(claims) == 0 {
		return offering{}, nil
	}
	for _, c := range claims {
		c.forget()
	}
	var heads map[orbit.ID]pulsedb.ShareFencesRow
	var root pulsedb.ShareRootGateRow
	waits := map[orbit.ID]bool{} // whether another task of the queue is ready
	questions := []dbtx.Question{askHeads(ns, calls, &heads), askRootGate(ns, anyStarts(claims), &root)}
	for queueID := range byQueue {
		questions = append(questions, func(ctx context.Context, db dbtx.DBTX) error {
			_, err := pulsedb.New(db).PeekReady(ctx, pulsedb.PeekReadyParams{NamespaceID: ns, QueueID: queueID})
			waits[queueID] = err == nil
			if errors.Is(err, sql.ErrNoRows) {
				return nil
			}
			return err
		})
	}
	if err := tx.Ask(ctx, questions...); err != nil {
		return offering{}, err
	}
	fence(calls, heads)
	gates, err := claimGates(ctx, pulsedb.New(tx), ns, claims, root)
	if err != nil {
		return offering{}, err
	}
	open := admitted(claims) // one that is not looks for itself, and is told why
	for queueID, claims := range byQueue {
		byQueue[queueID] = slices.DeleteFunc(claims, func(c *claimCall) bool { return !slices.Contains(open, c) })
		if waits[queueID] || gates.closedForQueue(queueID) {
			delete(byQueue, queueID)
		}
	}
	return offering{byQueue, gates}, nil
}

// settle lets the polls go on, by what became of the transaction.
func (h *handOff) settle(err error) {
	var unknown *dbtx.UnknownCommit
	for _, p := range h.polls {
		given := len(p.call.offers) > 0
		if err != nil || !given {
			p.call.forget()
		}
		if given && errors.As(err, &unknown) {
			p.call.err = err
		}
		h.service.waiters.settle(p)
	}
}

// hand gives tasks, the first in claim order first, to takers of their queues, in turns. It answers the rows of the attempts, and the tasks that
// nobody took.
func (o offering) hand(tx *dbtx.Tx, ns orbit.ID, tasks []newTask) (attempts [][]any, rest []newTask) {
	if len(o.takers) == 0 {
		return nil, tasks
	}
	turns := map[orbit.ID]*int{}
	inOrder := slices.SortedStableFunc(slices.Values(tasks), func(a, b newTask) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.rankUs, b.rankUs))
	})
	for _, t := range inOrder {
		var c *claimCall
		if t.isReady(tx.Now) {
			if turns[t.queue.ID] == nil {
				turns[t.queue.ID] = new(int)
			}
			c = nextTaker(o.takers[t.queue.ID], turns[t.queue.ID], len(t.req.Payload))
		}
		if c == nil {
			rest = append(rest, t)
			continue
		}
		attempts = append(attempts, give(tx, ns, t.queue.ID, pulsedb.LockReadyRow{Priority: t.priority, RankUs: t.rankUs, TaskID: t.id}, t.toOffer(), c, o.gates))
	}
	return attempts, rest
}
