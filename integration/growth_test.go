package integration_test

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// growthRounds is how many rounds of load TestLoadLeavesNothingBehind has; ORBIT_TEST_GROWTH_ROUNDS has it go on for longer.
const growthRounds = 4

// A replica that was under load keeps nothing of it: neither memory nor goroutines grow from round to round.
func TestLoadLeavesNothingBehind(t *testing.T) {
	rounds := growthRounds
	if text := os.Getenv("ORBIT_TEST_GROWTH_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", policy("lease_ms", 3600_000, "offer_timeout_ms", 3600_000))
	workers := make([]*worker, 8)
	for i := range workers {
		workers[i] = openWorker(t, o, "w"+strconv.Itoa(i), "q")
	}
	var heap, goroutines []int64
	for range rounds {
		var load sync.WaitGroup
		for i := range workers {
			load.Go(func() {
				for range 5 {
					submitMany(t, o, "q", 40)
					offers := workers[i].claim(40)
					workers[i].items("/v1/attempts:start", itemsOf(offers)...)
					workers[i].items("/v1/attempts:heartbeat", itemsOf(offers)...)
					workers[i].items("/v1/attempts:finish", itemsOf(offers, "outcome", "succeeded")...)
				}
			})
		}
		load.Wait()
		for _, name := range []string{"sequence_events", "recover_leases", "promote_scheduled", "wake_waiters"} {
			o.Pass(name)
		}
		var memory runtime.MemStats
		runtime.GC()
		runtime.GC() // what the first one's finalizers let go
		runtime.ReadMemStats(&memory)
		heap, goroutines = append(heap, int64(memory.HeapAlloc)), append(goroutines, int64(runtime.NumGoroutine()))
	}
	t.Logf("bytes of heap %v, goroutines %v", heap, goroutines)
	last := rounds - 1
	if grown := heap[last] - heap[1]; grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes from the second round to the last", grown)
	}
	if grown := goroutines[last] - goroutines[1]; grown > 16 {
		t.Errorf("%d goroutines more than after the second round", grown)
	}
}
