package combine

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
)

type work struct{ answered atomic.Bool }

// blocked is a combiner whose first batch waits until it is let go, so that what comes meanwhile gathers.
func blocked(t *testing.T) (c *Combiner[*work], batches *[][]*work, release func()) {
	t.Helper()
	started, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	batches = &[][]*work{}
	c = &Combiner[*work]{Patience: time.Hour, Run: func(_ orbit.ID, batch []*work) {
		once.Do(func() { close(started); <-gate })
		*batches = append(*batches, batch)
		for _, w := range batch {
			w.answered.Store(true)
		}
	}}
	go c.Do(Call[*work]{Items: 1, Work: &work{}})
	<-started
	return c, batches, func() { close(gate) }
}

func namespace(n byte) orbit.ID { return orbit.ID{n} }

func gather(t *testing.T, c *Combiner[*work], calls ...Call[*work]) *sync.WaitGroup {
	t.Helper()
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() { c.Do(call) })
		waitFor(t, c, i+1)
	}
	return &wg
}

// waitFor spins until n calls wait, so that their order is the test's.
func waitFor(t *testing.T, c *Combiner[*work], n int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		c.mu.Lock()
		waiting := 0
		for _, q := range c.waiting {
			waiting += len(q)
		}
		c.mu.Unlock()
		if waiting == n {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d calls wait, want %d", waiting, n)
		default:
		}
	}
}

func TestWhatGathersRunsTogether(t *testing.T) {
	c, batches, release := blocked(t)
	a, b := &work{}, &work{}
	wg := gather(t, c, Call[*work]{Items: 1, Work: a}, Call[*work]{Items: 1, Work: b})
	release()
	wg.Wait()
	if len(*batches) != 2 || len((*batches)[1]) != 2 || !a.answered.Load() || !b.answered.Load() {
		t.Fatalf("batches %v", *batches)
	}
}

func TestABatchIsBoundedAndALargerCallTravelsAlone(t *testing.T) {
	c, batches, release := blocked(t)
	wg := gather(t, c,
		Call[*work]{Items: MaxItems, Work: &work{}}, Call[*work]{Items: 1, Work: &work{}},
		Call[*work]{Items: 1, Bytes: MaxBytes + 1, Work: &work{}}, Call[*work]{Items: 1, Work: &work{}})
	release()
	wg.Wait()
	for _, b := range (*batches)[1:] {
		if len(b) != 1 {
			t.Fatalf("a batch of %d", len(b))
		}
	}
	if len(*batches) != 5 {
		t.Fatalf("%d batches", len(*batches))
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	c, batches, release := blocked(t)
	busy := Call[*work]{NamespaceID: namespace(1), Items: MaxItems, Work: &work{}}
	quiet := &work{}
	wg := gather(t, c, busy, busy, busy, Call[*work]{NamespaceID: namespace(2), Items: 1, Work: quiet})
	release()
	wg.Wait()
	if got := (*batches)[2]; len(got) != 1 || got[0] != quiet {
		t.Fatal("the quiet namespace waited for the busy one")
	}
}

func TestACallWhoseCallerIsGoneIsDropped(t *testing.T) {
	c, batches, release := blocked(t)
	gone, stays := &work{}, &work{}
	wg := gather(t, c, Call[*work]{Items: 1, Work: gone, Gone: func() bool { return true }}, Call[*work]{Items: 1, Work: stays})
	release()
	wg.Wait()
	if gone.answered.Load() || !stays.answered.Load() || len((*batches)[1]) != 1 {
		t.Fatal("the call of a caller that is gone was executed, or its neighbour was not")
	}
}

func TestALoneCallRunsAtOnceAndTheLeadEnds(t *testing.T) {
	runs := 0
	c := &Combiner[*work]{Patience: time.Hour, Run: func(orbit.ID, []*work) { runs++ }}
	for range 100 {
		c.Do(Call[*work]{Items: 1, Work: &work{}})
	}
	if runs != 100 {
		t.Fatalf("%d runs", runs)
	}
}

func TestAPanicIsThatOfTheCallers(t *testing.T) {
	c := &Combiner[*work]{Patience: time.Hour, Run: func(orbit.ID, []*work) { panic("broken") }}
	for range 2 {
		func() {
			defer func() {
				if p := recover(); p != "broken" {
					t.Fatalf("the caller got %v", p)
				}
			}()
			c.Do(Call[*work]{Items: 1, Work: &work{}})
		}()
	}
}

func TestAStuckBatchHoldsUpNobodyElse(t *testing.T) {
	stuck, release := &work{}, make(chan struct{})
	c := &Combiner[*work]{Patience: time.Millisecond, Run: func(_ orbit.ID, batch []*work) {
		if batch[0] == stuck {
			<-release
		}
		for _, w := range batch {
			w.answered.Store(true)
		}
	}}
	var wg sync.WaitGroup
	wg.Go(func() { c.Do(Call[*work]{Items: 1, Work: stuck}) })
	for range 50 {
		c.Do(Call[*work]{Items: 1, Work: &work{}})
	}
	close(release)
	wg.Wait()
	if !stuck.answered.Load() {
		t.Fatal("the stuck call was not answered")
	}
	c.Do(Call[*work]{Items: 1, Work: &work{}})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.turns) != 0 || len(c.waiting) != 0 {
		t.Fatalf("calls are left: %v", c.waiting)
	}
}

func TestBesideAFullBatchTheNextRuns(t *testing.T) {
	first, release := &work{}, make(chan struct{})
	var beside atomic.Int32
	c := &Combiner[*work]{Patience: time.Hour}
	gathered := make(chan struct{})
	c.Run = func(_ orbit.ID, batch []*work) {
		switch {
		case batch[0] == first:
			<-gathered
		case len(batch) == MaxItems:
			beside.Add(1)
			<-release
		}
	}
	go c.Do(Call[*work]{Items: 1, Work: first})
	var calls []Call[*work]
	for range 5*MaxItems + 1 {
		calls = append(calls, Call[*work]{Items: 1, Work: &work{}})
	}
	wg := gather(t, c, calls...)
	close(gathered)
	deadline := time.After(10 * time.Second)
	for beside.Load() < maxFull {
		select {
		case <-deadline:
			t.Fatalf("%d full batches run beside each other, want %d", beside.Load(), maxFull)
		default:
		}
	}
	c.mu.Lock()
	running := c.running
	c.mu.Unlock()
	if running != maxFull {
		t.Errorf("%d batches run, want %d", running, maxFull)
	}
	close(release)
	wg.Wait()
}
