package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"
)

func TestARevokedCredentialOpensNothingOnAnyReplica(t *testing.T) {
	clock := &hostClock{}
	o := harness.Start(t, harness.Options{Replicas: 2, Change: clock.of})
	c := createCredential(t, o, `{"name":"n","actions":["*"],"queues":["*"]}`)
	for replica := range 2 {
		wantOpens(t, o, replica, c.Key, true)
	}
	path := "/v1/credentials/" + c.Credential.ID + ":revoke"
	first := o.Call("POST", path, `{"reason":"lost laptop"}`, harness.Key("k")).Want(t, 200)
	var revoked credential
	if first.JSON(t, &revoked); revoked.State != "revoked" || revoked.Revision != 2 || first.Header.Get("ETag") != `"2"` {
		t.Errorf("revoked: %s", first.Body)
	}
	clock.move(seenEverywhere)
	for replica := range 2 {
		wantOpens(t, o, replica, c.Key, false, "revoked")
	}
	since := ledger(t, o)
	if again := o.Call("POST", path, `{"reason":"lost laptop"}`, harness.Key("k")).Want(t, 200); !replayed(again) || string(again.Body) != string(first.Body) {
		t.Errorf("a repeat answered %s, first %s", again.Body, first.Body)
	}
	o.Call("POST", path, `{"reason":"other"}`, harness.Key("k")).WantProblem(t, 422, "idempotency_conflict")
	wantLedger(t, o, since)
	if other := o.Call("POST", path, `{"reason":"twice"}`, harness.Key("k2")).Want(t, 200); replayed(other) || string(other.Body) != string(first.Body) {
		t.Errorf("under another key it answered %s, want it as it is: %s", other.Body, first.Body)
	}
	if n := o.Count("orbit_audit_events WHERE action = 'revokeCredential' AND JSON_EXTRACT(detail, '$.reason') = 'lost laptop'"); n != 1 {
		t.Errorf("%d revocations were audited, want 1", n)
	}
	if n := o.Count("orbit_events WHERE type = 'credential.revoked'"); n != 1 {
		t.Errorf("%d revocations are in the events, want 1", n)
	}
}

// A key that opens no more ends its long polls, whatever became of it.
func TestALongPollEndsWithItsKey(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	_, wire := addWired(t, o, harness.Options{})
	o.CreateQueue("q", nil)
	ended := make(chan time.Time, 3)
	poll := func(c issued) (wait func() harness.Reply) {
		w := openWorker(t, o, "unused", "q").on(1)
		w.key, w.instance = c.Key, orbit.NewID(time.Now()).String()
		w.open("worker-"+c.Credential.ID, "q")
		look := wire.stop(harness.Commit)
		wait = later(t, func() (harness.Reply, error) {
			r, err := w.send("/v1/claims", map[string]any{"claim_seq": 1, "max": 1, "wait_ms": 30000})
			ended <- time.Now()
			return r, err
		})
		within(t, look.reached, "the poll to have looked for work")
		look.goOn()
		return wait
	}
	const grants = `"actions":["tasks:execute"],"queues":["*"]`
	revoked := createCredential(t, o, `{"name":"revoked",`+grants+`}`)
	expiring := createCredential(t, o, fmt.Sprintf(`{"name":"expiring",%s,"expires_at":"%s"}`, grants, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	replaced := createCredential(t, o, `{"name":"replaced",`+grants+`}`)
	polls := map[string]func() harness.Reply{"revoked": poll(revoked), "expired": poll(expiring), "replaced": poll(replaced)}
	o.Call("POST", "/v1/credentials/"+replaced.Credential.ID+":rotate", `{"overlap_ms":60000}`, harness.Key("k")).Want(t, 200)
	o.Call("POST", "/v1/credentials/"+revoked.Credential.ID+":revoke", `{"reason":"x"}`, harness.Key("k")).Want(t, 200)
	o.Advance(time.Hour)
	over := time.Now()
	for why, wait := range polls {
		if p := wait().WantProblem(t, 401, "unauthenticated"); !strings.Contains(p.Detail, why) {
			t.Errorf("the poll of a key that was %s ended with %q", why, p.Detail)
		}
	}
	for range polls {
		if took := (<-ended).Sub(over); took > seenEverywhere {
			t.Errorf("a poll ended %s after its key, want at most %s", took, seenEverywhere)
		}
	}
}

func TestManyRevocationsAreOne(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	c := createCredential(t, o, `{"name":"n","actions":["*"],"queues":["*"]}`)
	for i, got := range race(t, 8, func(i int) (credential, error) {
		r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/credentials/"+c.Credential.ID+":revoke", `{"reason":"x"}`, harness.Key(fmt.Sprint("k", i/2)))
		return parse[credential](r, err, 200)
	}) {
		if got.State != "revoked" || got.Revision != 2 {
			t.Errorf("caller %d got %+v", i, got)
		}
	}
	if n := o.Count("orbit_events WHERE type = 'credential.revoked'"); n != 1 {
		t.Errorf("%d events tell of one revocation", n)
	}
}

func TestARevocationIsRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	c := createCredential(t, o, `{"name":"n","actions":["tasks:read"],"queues":["*"]}`)
	path := "/v1/credentials/" + c.Credential.ID + ":revoke"
	since := ledger(t, o)
	o.CallAt(o.URL(), c.Key, "POST", path, `{"reason":"x"}`, harness.Key("k")).WantProblem(t, 403, "forbidden")
	for _, bad := range []string{`{}`, `{"reason":""}`, `{"reason":"` + strings.Repeat("x", 1001) + `"}`, `{"reason":1}`} {
		o.Call("POST", path, bad, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	}
	o.Call("POST", path, `{"reason":"x"}`).WantProblem(t, 400, "idempotency_missing")
	o.Call("POST", "/v1/credentials/"+strings.Repeat("0", 32)+":revoke", `{"reason":"x"}`, harness.Key("k")).WantProblem(t, 404, "not_found")
	wantLedger(t, o, since)
	wantOpens(t, o, 0, c.Key, true)
}
