package pulse

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/platform"
)

var waitedQueue = batch.Queue{NamespaceID: orbit.ID{1}, ID: orbit.ID{2}}

// parkedPoll is a poll that waits for the queues, or the queue that tests wait for.
func parkedPoll(ctx context.Context, w *waiters, queues ...orbit.ID) *poll {
	if len(queues) == 0 {
		queues = []orbit.ID{waitedQueue.ID}
	}
	c := &claimCall{workerCall: workerCall{caller: platform.Caller{NamespaceID: waitedQueue.NamespaceID}}, queues: queues, limit: 1}
	p := w.wait(ctx, c)
	w.park(p)
	return p
}

func TestOnlyAParkedPollIsTakenAndByOneAlone(t *testing.T) {
	w := newWaiters()
	other := batch.Queue{NamespaceID: waitedQueue.NamespaceID, ID: orbit.ID{3}}
	p := parkedPoll(t.Context(), w, waitedQueue.ID, other.ID)
	if got := w.take(waitedQueue, 5); len(got) != 1 || got[0] != p {
		t.Fatalf("took %v", got)
	}
	if got := append(w.take(waitedQueue, 1), w.take(other, 1)...); len(got) != 0 {
		t.Fatal("a poll was taken twice")
	}
	w.settle(p)
	if got := w.take(waitedQueue, 1); len(got) != 0 {
		t.Fatal("a poll was taken that looks for itself")
	}
	<-p.settled
	w.unpark(p)
	w.park(p)
	if got := w.take(other, 1); len(got) != 1 {
		t.Fatal("a poll that parked again is not to be had")
	}
	w.settle(p)
	w.unpark(p)
	w.leave(p)
	if len(w.byQueue) != 0 {
		t.Fatalf("left behind: %v", w.byQueue)
	}
}

func TestNoMorePollsAreTakenThanWereAskedForAndNoneWhoseCallerIsGone(t *testing.T) {
	w := newWaiters()
	gone, leave := context.WithCancel(t.Context())
	for range 3 {
		parkedPoll(gone, w)
		parkedPoll(t.Context(), w)
	}
	leave()
	if got := len(w.take(waitedQueue, 2)) + len(w.take(waitedQueue, 5)); got != 3 {
		t.Fatalf("took %d polls, want the 3 whose callers are there", got)
	}
}

// A poll goes on for a reason of its own just as it is settled. What it did not hear then must not be in the way later.
func TestASettlingThatNobodyHeardBlocksNoLaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters()
		p := parkedPoll(t.Context(), w)
		for range 3 {
			if len(w.take(waitedQueue, 1)) != 1 {
				t.Fatal("the poll is not to be had")
			}
			w.settle(p) // synctest reports a settling that waits for ever
			w.unpark(p)
			w.park(p)
			select {
			case <-p.settled:
				t.Fatal("a parked poll hears an old settling")
			default:
			}
		}
	})
}

func TestAPollThatWasTakenWaitsForItsSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters()
		p := parkedPoll(t.Context(), w)
		w.take(waitedQueue, 1)
		over := false
		go func() {
			w.unpark(p)
			over = true
		}()
		synctest.Wait()
		if over {
			t.Fatal("the poll went on while somebody had it")
		}
		p.call.offers = []api.Offer{{}}
		w.settle(p)
		synctest.Wait()
		if !over || len(p.call.offers) != 1 {
			t.Fatal("the poll does not go on with its offers")
		}
	})
}

// Polls that time out, are woken and are handed things, all at once: everything handed is seen by the poll it was handed to, and nobody hangs.
func TestPollsAndTakersInAnyOrder(t *testing.T) {
	w := newWaiters()
	ctx, stop := context.WithCancel(t.Context())
	var polls, takers sync.WaitGroup
	var mu sync.Mutex
	handed, seen := 0, 0
	for range 8 {
		polls.Go(func() {
			c := &claimCall{workerCall: workerCall{caller: platform.Caller{NamespaceID: waitedQueue.NamespaceID}}, queues: []orbit.ID{waitedQueue.ID}}
			p := w.wait(ctx, c)
			defer w.leave(p)
			for ctx.Err() == nil {
				w.park(p)
				select {
				case <-p.settled:
				case <-p.wake:
				case <-ctx.Done():
				}
				w.unpark(p)
				mu.Lock()
				seen += len(c.offers)
				mu.Unlock()
				c.forget()
			}
		})
	}
	for range 4 {
		takers.Go(func() {
			for range 2000 {
				w.notify(waitedQueue, rand.IntN(3))
				for _, p := range w.take(waitedQueue, 1+rand.IntN(3)) {
					if p.call.forget(); rand.IntN(2) == 0 {
						p.call.offers = []api.Offer{{}}
						mu.Lock()
						handed++
						mu.Unlock()
					}
					w.settle(p)
				}
			}
		})
	}
	takers.Wait()
	stop()
	polls.Wait()
	if handed == 0 || handed != seen {
		t.Fatalf("%d handed, %d seen", handed, seen)
	}
}

func TestWhatAPollIsToldOfItsTransaction(t *testing.T) {
	unknown := &dbtx.UnknownCommit{Op: "submitTask", Err: errors.New("cut")}
	for name, c := range map[string]struct {
		end    error
		given  bool
		offers int
		err    error
	}{
		"committed":                   {nil, true, 1, nil},
		"committed, nothing given":    {nil, false, 0, nil},
		"failed":                      {dbtx.ErrLost, true, 0, nil},
		"unknown":                     {unknown, true, 0, unknown},
		"unknown, nothing was given":  {unknown, false, 0, nil},
		"failed before it was looked": {errors.New("away"), false, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Service{waiters: newWaiters()}
			p := parkedPoll(t.Context(), s.waiters)
			h := &handOff{service: s, polls: s.waiters.take(waitedQueue, 1)}
			p.call.err, p.call.again, p.call.superseded = errors.New("of the fence"), true, true
			if c.given {
				p.call.forget()
				p.call.offers, p.call.size = []api.Offer{{}}, 1
			}
			h.settle(c.end)
			s.waiters.unpark(p)
			if got := p.call; len(got.offers) != c.offers || !errors.Is(got.err, c.err) || (c.err == nil) != (got.err == nil) || got.again || got.offers == nil {
				t.Fatalf("%+v", got)
			}
		})
	}
}
