package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// What platform does in the background waits for no running request, however small the tables are: a scan would meet its rows.
func TestPlatformPassesWaitForNoRunningRequest(t *testing.T) {
	for _, keys := range []int{3, 40, 300} {
		t.Run(fmt.Sprint(keys, " keys"), func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			wired, w := addWired(t, o, harness.Options{})
			o.CreateQueue("q", nil)
			submitMany(t, o, "q", keys)
			for i := range keys {
				if i < 40 {
					o.Call("POST", "/v1/idempotency-keys:void", fmt.Sprintf(`{"operation":"submitTask","key":"void-%d"}`, i)).Want(t, 200)
				}
			}
			o.Pass("sequence_events")
			held := func(at harness.Statement, method, path, body, key string) func() {
				stopped := w.stop(at)
				wait := send(t, wired.URL, o.Key, method, path, body, harness.Key(key))
				within(t, stopped.reached, "a request to be held")
				return func() {
					stopped.goOn()
					if r := wait(); r.Status >= 300 {
						t.Errorf("the held request answered %d %s", r.Status, r.Body)
					}
				}
			}
			o.Advance(31 * 24 * time.Hour)
			goOn := []func(){
				held(harness.Commit, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, "a-held"),
				held(harness.Commit, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, "zz-held"),
				held(harness.Commit, "POST", "/v1/credentials", `{"name":"n","actions":["*"],"queues":["*"]}`, "held"),
			}
			if n := o.Pass("retire_keys"); n != keys+1 {
				t.Errorf("%d keys were retired, want those of %d tasks and a queue", n, keys)
			}
			if n := o.Pass("trim_events"); n == 0 {
				t.Error("nothing was trimmed")
			}
			for _, name := range []string{"sequence_events", "touch_credentials", "audit_denials", "renew_replica", "forget_replicas"} {
				o.Pass(name)
			}
			o.Advance(100 * 24 * time.Hour)
			if n, want := o.Pass("retire_keys"), keys+1+min(keys, 40); n != want {
				t.Errorf("%d tombstones and voids were removed, want %d", n, want)
			}
			for _, f := range goOn {
				f()
			}
			o.Pass("sequence_events")
			if n := o.Count("orbit_event_spool"); n != 0 {
				t.Errorf("%d batches are left in the spool", n)
			}
		})
	}
}

// Two replicas retire the same keys at once; each goes once, with its reply.
func TestKeysAreRetiredOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	submitMany(t, o, "q", 700)
	o.Advance(8 * 24 * time.Hour)
	await(t, "all keys to be retired", func() bool {
		race(t, 4, func(i int) (int, error) { return pass(t, o, "retire_keys", i%2) })
		return o.Count("orbit_idempotency_keys WHERE state <> 'expired'") == 0
	})
	if n := o.Count("orbit_replies"); n != 0 {
		t.Errorf("%d replies are left", n)
	}
	o.Advance(90 * 24 * time.Hour)
	await(t, "all tombstones to be removed", func() bool {
		race(t, 4, func(i int) (int, error) { return pass(t, o, "retire_keys", i%2) })
		return o.Count("orbit_idempotency_keys") == 0
	})
}
