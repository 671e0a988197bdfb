package integration_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/service"
)

// credential is a credential as it is shown.
type credential struct {
	ID                   string    `json:"id"`
	ActorID              string    `json:"actor_id"`
	Name                 string    `json:"name"`
	Actions              []string  `json:"actions"`
	Queues               []string  `json:"queues"`
	State                string    `json:"state"`
	RateLimitPerSecond   int       `json:"rate_limit_per_second"`
	Revision             int64     `json:"revision"`
	ExpiresAt            time.Time `json:"expires_at"`
	PreviousKeyExpiresAt time.Time `json:"previous_key_expires_at"`
	LastUsedAt           time.Time `json:"last_used_at"`
}

// issued is a credential with the key that was made for it; a repeat has none.
type issued struct {
	Credential credential `json:"credential"`
	Key        string     `json:"key"`
}

// hostClock is a host's clock that the test moves. It measures for how long a replica believes what it read of a credential.
type hostClock struct{ ahead atomic.Int64 }

func (c *hostClock) now() time.Time        { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *hostClock) move(d time.Duration)  { c.ahead.Add(int64(d)) }
func (c *hostClock) of(o *service.Options) { o.HostClock = c.now }

// seenEverywhere is how long the change of a credential may take to be seen on every replica.
const seenEverywhere = 5 * time.Second

// wantOpens fails t unless the key opens on the replica, or does not with a refusal that says why.
func wantOpens(t testing.TB, o *harness.Orbit, replica int, key string, opens bool, why ...string) {
	t.Helper()
	r := o.CallAt(o.Replica(replica).URL, key, "GET", "/v1/credential", nil)
	if opens {
		r.Want(t, 200)
		return
	}
	p := r.WantProblem(t, 401, "unauthenticated")
	if r.Header.Get("WWW-Authenticate") == "" || !strings.Contains(p.Detail, strings.Join(why, "")) {
		t.Errorf("refused with %q (WWW-Authenticate %q), want %q", p.Detail, r.Header.Get("WWW-Authenticate"), why)
	}
}

// createCredential makes a credential of the first tenant by the API.
func createCredential(t testing.TB, o *harness.Orbit, body string) issued {
	t.Helper()
	submitted++
	var got issued
	o.Call("POST", "/v1/credentials", body, harness.Key(fmt.Sprint("credential-", submitted))).Want(t, 201).JSON(t, &got)
	if got.Key == "" || got.Credential.ID == "" {
		t.Fatalf("issued %+v", got)
	}
	return got
}

// wantNoSecrets fails t if any part of a key is in what the database keeps for people and callers.
func wantNoSecrets(t testing.TB, o *harness.Orbit, keys ...string) {
	t.Helper()
	for _, key := range keys {
		secret := strings.Split(key, "_")[3]
		for _, column := range []string{"orbit_replies WHERE body", "orbit_events WHERE data", "orbit_audit_events WHERE CAST(detail AS CHAR)", "orbit_credentials WHERE name"} {
			if n := o.Count(column+" LIKE ?", "%"+secret+"%"); n != 0 {
				t.Errorf("a secret stands in %s", column)
			}
		}
	}
	if n := o.Count("orbit_replies WHERE body LIKE '%orb!_%' ESCAPE '!'"); n != 0 {
		t.Errorf("%d replies are kept with a key", n)
	}
}

func TestACredentialIsCreatedWithAKeyThatIsShownOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	const body = `{"name":"shop","actions":["tasks:submit","tasks:read","tasks:read"],"queues":["mail/*"],"expires_at":"2100-01-01T00:00:00.1234567Z","rate_limit_per_second":7}`
	first := o.Call("POST", "/v1/credentials", body, harness.Key("k")).Want(t, 201)
	var got issued
	first.JSON(t, &got)
	c := got.Credential
	if c.Name != "shop" || c.State != "active" || fmt.Sprint(c.Actions, c.Queues) != "[tasks:submit tasks:read] [mail/*]" || c.RateLimitPerSecond != 7 || c.Revision != 1 ||
		!c.ExpiresAt.Equal(time.Date(2100, 1, 1, 0, 0, 0, 123456000, time.UTC)) || first.Header.Get("ETag") != `"1"` || first.Header.Get("Location") != "/v1/credentials/"+c.ID {
		t.Errorf("created %v %s", first.Header, first.Body)
	}
	if key, err := orbit.ParseCredentialKey(got.Key); err != nil || key.Credential.String() != c.ID || key.Namespace != o.Namespace.ID {
		t.Errorf("the key %s is not of the credential: %v", got.Key, err)
	}
	since := ledger(t, o)
	again := o.CallAt(o.Replica(1).URL, o.Key, "POST", "/v1/credentials", body, harness.Key("k")).Want(t, 201)
	var repeat issued
	again.JSON(t, &repeat)
	if !replayed(again) || repeat.Key != "" || fmt.Sprint(repeat.Credential) != fmt.Sprint(c) || again.Header.Get("Location") != first.Header.Get("Location") || again.Header.Get("ETag") != `"1"` {
		t.Errorf("the repeat answered %v %s", again.Header, again.Body)
	}
	wantLedger(t, o, since)
	o.Call("POST", "/v1/credentials", strings.Replace(body, "shop", "other", 1), harness.Key("k")).WantProblem(t, 422, "idempotency_conflict")
	wantLedger(t, o, since)
	wantOpens(t, o, 1, got.Key, true)
	wantNoSecrets(t, o, got.Key)

	var shown credential
	byID := o.Call("GET", "/v1/credentials/"+c.ID, nil).Want(t, 200)
	byID.JSON(t, &shown)
	if fmt.Sprint(shown) != fmt.Sprint(c) || byID.Header.Get("ETag") != `"1"` {
		t.Errorf("shown as %s, created as %s", byID.Body, first.Body)
	}
	if n := o.Count("orbit_audit_events WHERE action = 'createCredential' AND source = 'api' AND target_id = UNHEX(?) AND outcome = 'done'", c.ID); n != 1 {
		t.Errorf("%d creations were audited, want 1", n)
	}
}

func TestManyCreationsUnderOneKeyMakeOneCredential(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	before := o.Count("orbit_credentials")
	got := race(t, 12, func(i int) (issued, error) {
		r, err := harness.Do(t.Context(), o.Replica(i%2).URL, o.Key, "POST", "/v1/credentials", `{"name":"n","actions":["*"],"queues":["*"]}`, harness.Key("k"))
		return parse[issued](r, err, 201)
	})
	keys := 0
	for i, g := range got {
		if g.Key != "" {
			keys++
			wantOpens(t, o, 0, g.Key, true)
		}
		if g.Credential.ID != got[0].Credential.ID {
			t.Errorf("caller %d made another credential", i)
		}
	}
	if n := o.Count("orbit_credentials") - before; keys != 1 || n != 1 {
		t.Errorf("%d keys were shown of %d credentials, want 1 of 1", keys, n)
	}
}

func TestACredentialThatCannotBeIsRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	submitter := o.Credential(o.Namespace, []string{"tasks:submit", "queues:manage", "audit:read"}, []string{"*"})
	since := ledger(t, o)
	for _, c := range []struct{ body, pointer, code string }{
		{`{"actions":["*"],"queues":[]}`, "/name", "required"},
		{`{"name":"","actions":["*"],"queues":[]}`, "/name", "too_short"},
		{`{"name":"` + strings.Repeat("ü", 129) + `","actions":["*"],"queues":[]}`, "/name", "too_long"},
		{`{"name":"n","queues":[]}`, "/actions", "required"},
		{`{"name":"n","actions":[],"queues":[]}`, "/actions", "too_short"},
		{`{"name":"n","actions":["tasks:submit","tasks:destroy"],"queues":[]}`, "/actions/1", "unknown_action"},
		{`{"name":"n","actions":["*"]}`, "/queues", "required"},
		{`{"name":"n","actions":["*"],"queues":["a","b c"]}`, "/queues/1", "pattern"},
		{`{"name":"n","actions":["*"],"queues":["[a-z]"]}`, "/queues/0", "pattern"},
		{`{"name":"n","actions":["*"],"queues":[],"expires_at":"2001-01-01T00:00:00Z"}`, "/expires_at", "not_in_future"},
		{`{"name":"n","actions":["*"],"queues":[],"expires_at":"soon"}`, "/expires_at", "date_time"},
		{`{"name":"n","actions":["*"],"queues":[],"rate_limit_per_second":0}`, "/rate_limit_per_second", "out_of_range"},
		{`{"name":"n","actions":["*"],"queues":[],"actor_id":"me"}`, "/actor_id", "pattern"},
		{`{"name":"n","actions":["*"],"queues":[],"namespace_id":"` + strings.Repeat("0", 32) + `"}`, "/namespace_id", "unknown_field"},
	} {
		p := o.Call("POST", "/v1/credentials", c.body, harness.Key("k")).WantProblem(t, 400, "invalid_request")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != c.pointer || p.Errors[0].Code != c.code {
			t.Errorf("%s: refused with %+v, want %s at %s", c.body, p.Errors, c.code, c.pointer)
		}
	}
	const good = `{"name":"n","actions":["*"],"queues":["*"]}`
	o.Call("POST", "/v1/credentials", good).WantProblem(t, 400, "idempotency_missing")
	o.CallAt(o.URL(), submitter, "POST", "/v1/credentials", good, harness.Key("k")).WantProblem(t, 403, "forbidden")
	wantLedger(t, o, since)
}

func TestAnExpiredCredentialOpensNothing(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	got := createCredential(t, o, fmt.Sprintf(`{"name":"brief","actions":["*"],"queues":["*"],"expires_at":"%s"}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)))
	wantOpens(t, o, 0, got.Key, true)
	wantOpens(t, o, 1, got.Key, true)
	o.CallAt(o.URL(), got.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).Want(t, 201)
	w := openWorker(t, o, "w", "q")
	w.key = got.Key // of another actor: its worker
	w.instance = orbit.NewID(time.Now()).String()
	w.open("brief", "q")
	since := ledger(t, o)
	o.Advance(time.Hour)
	for replica := range 2 {
		wantOpens(t, o, replica, got.Key, false, "expired")
		url := o.Replica(replica).URL
		// Its own repeat too: rights are judged as they are now.
		o.CallAt(url, got.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).WantProblem(t, 401, "unauthenticated")
		o.CallAt(url, got.Key, "POST", "/v1/tasks:batch", `{"items":[{"queue":"q","type":"t","idempotency_key":"k"}]}`).WantProblem(t, 401, "unauthenticated")
		o.CallAt(url, got.Key, "GET", keyPath("submitTask", "k", ""), nil).WantProblem(t, 401, "unauthenticated")
		o.CallAt(url, got.Key, "POST", "/v1/claims", map[string]any{"instance_id": w.instance, "epoch": w.epoch, "claim_seq": 1, "max": 1}).WantProblem(t, 401, "unauthenticated")
	}
	wantLedger(t, o, since)
}
