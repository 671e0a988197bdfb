package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestARotationOverlaps(t *testing.T) {
	clock := &hostClock{}
	o := harness.Start(t, harness.Options{Replicas: 2, Change: clock.of})
	o.CreateQueue("q", nil)
	old := createCredential(t, o, `{"name":"n","actions":["*"],"queues":["*"]}`)
	path := "/v1/credentials/" + old.Credential.ID + ":rotate"
	first := o.CallAt(o.URL(), old.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("task")).Want(t, 201)
	wantOpens(t, o, 1, old.Key, true)

	var rotated issued
	reply := o.Call("POST", path, `{"overlap_ms":600000}`, harness.Key("r")).Want(t, 200)
	reply.JSON(t, &rotated)
	if rotated.Key == "" || rotated.Key == old.Key || rotated.Credential.ActorID != old.Credential.ActorID || rotated.Credential.Revision != 2 || reply.Header.Get("ETag") != `"2"` || rotated.Credential.PreviousKeyExpiresAt.IsZero() {
		t.Fatalf("rotated to %s", reply.Body)
	}
	for replica := range 2 {
		wantOpens(t, o, replica, rotated.Key, true) // at once, whatever the replica remembers
		wantOpens(t, o, replica, old.Key, true)
	}
	// A key of the caller's is not the credential's, but the actor's.
	if r := o.CallAt(o.URL(), rotated.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("task")).Want(t, 201); !replayed(r) || string(r.Body) != string(first.Body) {
		t.Errorf("after the rotation the repeat got %s, want %s", r.Body, first.Body)
	}
	since := ledger(t, o)
	again := o.Call("POST", path, `{"overlap_ms":600000}`, harness.Key("r")).Want(t, 200)
	var repeat issued
	if again.JSON(t, &repeat); !replayed(again) || repeat.Key != "" || repeat.Credential.Revision != 2 {
		t.Errorf("a repeat answered %s", again.Body)
	}
	o.Call("POST", path, `{"overlap_ms":1}`, harness.Key("r")).WantProblem(t, 422, "idempotency_conflict")
	wantLedger(t, o, since)

	o.Advance(10*time.Minute - time.Second)
	wantOpens(t, o, 0, old.Key, true)
	o.Advance(time.Second)
	for replica := range 2 {
		wantOpens(t, o, replica, old.Key, false, "replaced")
		wantOpens(t, o, replica, rotated.Key, true)
	}
	var shown credential
	if o.Call("GET", "/v1/credentials/"+old.Credential.ID, nil).Want(t, 200).JSON(t, &shown); !shown.PreviousKeyExpiresAt.IsZero() {
		t.Errorf("the overlap is over, and shown as %+v", shown)
	}
	wantNoSecrets(t, o, old.Key, rotated.Key)
}

func TestASecondRotationEndsTheFirstKeyAtOnce(t *testing.T) {
	clock := &hostClock{}
	o := harness.Start(t, harness.Options{Replicas: 2, Change: clock.of})
	c := createCredential(t, o, `{"name":"n","actions":["*"],"queues":["*"]}`)
	keys := []string{c.Key}
	for i, overlap := range []any{nil, `{"overlap_ms":3600000}`, `{"overlap_ms":0}`} {
		for replica := range 2 {
			wantOpens(t, o, replica, keys[len(keys)-1], true)
		}
		var got issued
		o.Call("POST", "/v1/credentials/"+c.Credential.ID+":rotate", overlap, harness.Key(fmt.Sprint("r", i))).Want(t, 200).JSON(t, &got)
		keys = append(keys, got.Key)
		clock.move(seenEverywhere)
		for replica := range 2 {
			for k, key := range keys {
				opens := k == len(keys)-1 || k == len(keys)-2 && overlap != `{"overlap_ms":0}`
				wantOpens(t, o, replica, key, opens)
			}
		}
	}
}

func TestOfManyRotationsEachIsOne(t *testing.T) {
	clock := &hostClock{}
	o := harness.Start(t, harness.Options{Replicas: 2, Change: clock.of})
	c := createCredential(t, o, `{"name":"n","actions":["*"],"queues":["*"]}`)
	path := "/v1/credentials/" + c.Credential.ID + ":rotate"
	rotate := func(n int, key func(i int) string) (keys []string, revisions map[int64]int) {
		revisions = map[int64]int{}
		for _, g := range race(t, n, func(i int) (issued, error) {
			r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", path, `{}`, harness.Key(key(i)))
			return parse[issued](r, err, 200)
		}) {
			revisions[g.Credential.Revision]++
			if g.Key != "" {
				keys = append(keys, g.Key)
			}
		}
		return keys, revisions
	}
	if keys, revisions := rotate(10, func(int) string { return "same" }); len(keys) != 1 || revisions[2] != 10 {
		t.Errorf("ten repeats showed %d keys, of revisions %v", len(keys), revisions)
	}
	keys, revisions := rotate(6, func(i int) string { return fmt.Sprint("own", i) })
	if len(keys) != 6 || len(revisions) != 6 || revisions[8] != 1 {
		t.Errorf("six rotations showed %d keys, of revisions %v", len(keys), revisions)
	}
	clock.move(seenEverywhere)
	open := 0
	for _, key := range keys {
		if o.CallAt(o.Replica(1).URL, key, "GET", "/v1/credential", nil).Status == 200 {
			open++
		}
	}
	if open != 2 {
		t.Errorf("%d of six keys open, want the last two", open)
	}
	if n := o.Count("orbit_audit_events WHERE action = 'rotateCredential'"); n != 7 {
		t.Errorf("%d rotations were audited, want 7", n)
	}
}

func TestARotationIsRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	c := createCredential(t, o, `{"name":"n","actions":["tasks:read"],"queues":["*"]}`)
	path := "/v1/credentials/" + c.Credential.ID
	o.CallAt(o.URL(), c.Key, "POST", path+":rotate", nil, harness.Key("k")).WantProblem(t, 403, "forbidden")
	for _, bad := range []string{`{"overlap_ms":-1}`, `{"overlap_ms":604800001}`, `{"overlap_ms":"1"}`, `{"overlap":1}`} {
		o.Call("POST", path+":rotate", bad, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	}
	o.Call("POST", path+":rotate", `{}`).WantProblem(t, 400, "idempotency_missing")
	o.Call("POST", "/v1/credentials/"+strings.Repeat("0", 32)+":rotate", `{}`, harness.Key("k")).WantProblem(t, 404, "not_found")
	o.Call("POST", path+":revoke", `{"reason":"lost"}`, harness.Key("k")).Want(t, 200)
	since := ledger(t, o)
	o.Call("POST", path+":rotate", `{}`, harness.Key("k")).WantProblem(t, 409, "state_conflict")
	wantLedger(t, o, since)
}
