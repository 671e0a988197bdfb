package integration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// Passes on two replicas, edits, triggers, backfills and ends of tasks, all at once and round after round: each instant since its schedule
// was made has one occurrence in the end, each that fired one task, and whatever must agree agrees.
func TestSchedulesUnderEverythingAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", policy("lease_ms", 3_600_000))
	w := openWorker(t, o, "w", "q")
	start := nextMinute(t, o)
	ids := map[string]string{}
	for _, overlap := range []string{"skip", "buffer_one", "buffer_all", "allow", "cancel_running"} {
		ids[overlap] = createSchedule(t, o, everyMinute(overlap, "run_overlap", overlap)).ID
	}
	end := start
	for round := range 12 {
		more := time.Duration(random.IntN(3)) * time.Minute
		end = nextMinute(t, o).Add(more)
		o.Advance(more)
		o.Pass("renew_replica")
		running := w.claim(4)
		w.items("/v1/attempts:start", append(itemsOf(running), map[string]any{"attempt_id": "0123456789abcdef0123456789abcdef", "token": "none"})...)
		var calls []func(url string) (harness.Reply, error)
		for overlap, id := range ids {
			path, key := "/v1/schedules/"+id, harness.Key(fmt.Sprint(overlap, round))
			tag := fmt.Sprintf(`"%d"`, getSchedule(t, o, id).Revision)
			calls = append(calls,
				func(url string) (harness.Reply, error) {
					return harness.Do(t.Context(), url, o.Key, "PUT", path, version(everyMinute("", "run_overlap", overlap)), ifMatch(tag))
				},
				func(url string) (harness.Reply, error) {
					return harness.Do(t.Context(), url, o.Key, "POST", path+":trigger", nil, key)
				},
				func(url string) (harness.Reply, error) {
					return harness.Do(t.Context(), url, o.Key, "POST", path+":backfill", map[string]any{"from": start.Add(time.Minute), "to": end.Add(-time.Minute)}, key)
				})
		}
		random.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
		race(t, len(calls)+len(running)+6, func(i int) (int, error) {
			switch {
			case i < len(calls):
				r, err := calls[i](o.Replica(i % 2).URL)
				if err == nil && r.Status != 200 && r.Status != 400 && r.Status != 412 {
					err = fmt.Errorf("status %d: %s", r.Status, r.Body)
				}
				return 0, err
			case i < len(calls)+len(running):
				_, err := w.sendItem("/v1/attempts:finish", running[i-len(calls)].item("outcome", "succeeded"))
				return 0, err
			case i%3 == 0:
				return pass(t, o, "release_buffered", i%2)
			}
			return pass(t, o, "fire_schedules", i%2)
		})
	}
	fireAll(t, o)
	o.Pass("release_buffered")
	for overlap, id := range ids {
		var got, want []time.Time
		for _, c := range occurrences(t, o, id) {
			if c.Source != "trigger" {
				got = append(got, c.FireAt.UTC())
			}
		}
		for at := start.Add(time.Minute); !at.After(end); at = at.Add(time.Minute) {
			want = append(want, at.UTC())
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("%s: %d instants have occurrences, %d there were\n%v\n%v", overlap, len(got), len(want), got, want)
		}
		if n := o.Count("pulse_schedule_occurrences WHERE schedule_id = UNHEX(?) AND live_schedule_id IS NOT NULL", id); overlap != "allow" && n > 1 {
			t.Errorf("%s: %d tasks run at once", overlap, n)
		}
	}
	if tasks, fired := o.Count("pulse_tasks"), o.Count("pulse_schedule_occurrences WHERE outcome = 'fired'"); tasks != fired {
		t.Errorf("%d tasks of %d occurrences that fired", tasks, fired)
	}
}
