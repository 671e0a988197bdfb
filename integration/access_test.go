package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/service"
)

// stillClock is a host's clock that stands until the test moves it, for rates that are exact.
type stillClock struct {
	hostClock
	begin time.Time
}

func newStillClock() *stillClock { return &stillClock{begin: time.Now()} }

func (c *stillClock) of(o *service.Options) {
	o.HostClock = func() time.Time { return c.begin.Add(time.Duration(c.ahead.Load())) }
}

func TestAKeyThatOpensNothingIsRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	mine, err := orbit.ParseCredentialKey(o.Key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	swapped := func(i int) string {
		b := []byte(o.Key)
		b[i], b[i+1] = b[i+1], b[i]
		if string(b) == o.Key {
			b[i] ^= 1
		}
		return string(b)
	}
	since := ledger(t, o)
	for name, authorization := range map[string]string{
		"none":                 "",
		"another scheme":       "Basic " + o.Key,
		"no key":               "Bearer ",
		"not a key":            "Bearer hunter2",
		"cut short":            "Bearer " + o.Key[:len(o.Key)-1],
		"a typing error":       "Bearer " + swapped(80),
		"a wrong checksum":     "Bearer " + o.Key[:len(o.Key)-1] + map[bool]string{true: "b", false: "a"}[strings.HasSuffix(o.Key, "a")],
		"an unknown namespace": "Bearer " + orbit.NewCredentialKey(orbit.NewID(now), mine.Credential).Text(),
		"unknown":              "Bearer " + orbit.NewCredentialKey(mine.Namespace, orbit.NewID(now)).Text(),
		"a wrong secret":       "Bearer " + orbit.NewCredentialKey(mine.Namespace, mine.Credential).Text(),
	} {
		var headers []harness.Header
		if authorization != "" {
			headers = append(headers, harness.Header{Name: "Authorization", Value: authorization})
		}
		r := o.CallAt(o.URL(), "", "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, append(headers, harness.Key("k"))...)
		p := r.WantProblem(t, 401, "unauthenticated")
		if !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Bearer") || p.Detail == "" || strings.Contains(p.Detail, mine.Secret.Digest().String()) {
			t.Errorf("%s: refused with %v %s", name, r.Header, r.Body)
		}
	}
	wantLedger(t, o, since)
	// Whose fault it was is noted for the credential that exists, and for nobody else.
	o.Pass("audit_denials")
	if n := o.Count("orbit_audit_events WHERE outcome = 'denied'"); n != 1 {
		t.Errorf("%d denials were audited, want that of the wrong secret", n)
	}
}

func TestAnAssertedPrincipalIsCompared(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	var me struct {
		NamespaceID string `json:"namespace_id"`
		ActorID     string `json:"actor_id"`
	}
	o.Call("GET", "/v1/credential", nil).Want(t, 200).JSON(t, &me)
	other := orbit.NewID(time.Now()).String()
	namespace := func(v string) harness.Header { return harness.Header{Name: "Orbit-Namespace", Value: v} }
	actor := func(v string) harness.Header { return harness.Header{Name: "Orbit-Actor", Value: v} }
	since := ledger(t, o)
	for name, c := range map[string]struct {
		headers []harness.Header
		status  int
		pointer string
	}{
		"another namespace":  {[]harness.Header{namespace(other)}, 409, "header/Orbit-Namespace"},
		"another actor":      {[]harness.Header{actor(other)}, 409, "header/Orbit-Actor"},
		"one of both":        {[]harness.Header{namespace(me.NamespaceID), actor(me.NamespaceID)}, 409, "header/Orbit-Actor"},
		"no id":              {[]harness.Header{namespace("default")}, 400, "header/Orbit-Namespace"},
		"upper case":         {[]harness.Header{actor(strings.ToUpper(me.ActorID))}, 400, "header/Orbit-Actor"},
		"right and another":  {[]harness.Header{namespace(me.NamespaceID), namespace(other)}, 400, "header/Orbit-Namespace"},
		"twice the same one": {[]harness.Header{actor(me.ActorID), actor(me.ActorID)}, 400, "header/Orbit-Actor"},
	} {
		for _, call := range [][3]string{{"POST", "/v1/tasks", `{"queue":"q","type":"t"}`}, {"POST", "/v1/tasks:batch", `{"items":[{"queue":"q","type":"t","idempotency_key":"k"}]}`}, {"GET", "/v1/credential", ""}} {
			headers := c.headers
			if call[1] == "/v1/tasks" {
				headers = append([]harness.Header{harness.Key("k")}, headers...)
			}
			p := o.Call(call[0], call[1], call[2], headers...).WantProblem(t, c.status, map[int]string{400: "invalid_request", 409: "principal_mismatch"}[c.status])
			if len(p.Errors) != 1 || p.Errors[0].Pointer != c.pointer {
				t.Errorf("%s: refused with %+v, want %s", name, p.Errors, c.pointer)
			}
		}
	}
	wantLedger(t, o, since)
	o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"), namespace(me.NamespaceID), actor(me.ActorID)).Want(t, 201)
	// A swapped secret: the request of one tenant with the key of another lands nowhere.
	_, stranger := o.Tenant("other")
	o.CallAt(o.URL(), stranger, "POST", "/v1/queues", `{"name":"q"}`, harness.Key("q"), namespace(me.NamespaceID)).WantProblem(t, 409, "principal_mismatch")
	if n := o.Count("pulse_queues"); n != 1 {
		t.Errorf("%d queues, want 1", n)
	}
}

func TestACredentialHasARate(t *testing.T) {
	clock := newStillClock()
	o := harness.Start(t, harness.Options{Change: func(options *service.Options) {
		clock.of(options)
		options.RateLimitPerSecond = 40
	}})
	o.CreateQueue("q", nil)
	c := createCredential(t, o, `{"name":"n","actions":["*"],"queues":["*"],"rate_limit_per_second":4}`)
	call := func(key string, i int) harness.Reply {
		return o.CallAt(o.URL(), key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(fmt.Sprint("k", i)))
	}
	for i := range 4 {
		call(c.Key, i).Want(t, 201)
	}
	since := ledger(t, o)
	for range 3 {
		over := call(c.Key, 4)
		over.WantProblem(t, 429, "rate_limited")
		var p struct {
			RetryAfterMs int64 `json:"retry_after_ms"`
		}
		if over.JSON(t, &p); over.Header.Get("Retry-After") != "1" || p.RetryAfterMs != 250 {
			t.Errorf("Retry-After %q, %d ms: want 1, and 250 ms", over.Header.Get("Retry-After"), p.RetryAfterMs)
		}
	}
	// Not even what was done before is repeated then.
	call(c.Key, 0).WantProblem(t, 429, "rate_limited")
	wantLedger(t, o, since)
	clock.move(250 * time.Millisecond)
	call(c.Key, 4).Want(t, 201)
	call(c.Key, 5).WantProblem(t, 429, "rate_limited")

	// Others have theirs: the configured one if they carry none.
	clock.move(time.Second)
	for i := range 40 {
		o.Call("GET", "/v1/credential", nil).Want(t, 200)
		if i < 4 {
			call(c.Key, 6+i).Want(t, 201)
		}
	}
	o.Call("GET", "/v1/credential", nil).WantProblem(t, 429, "rate_limited")
}

func TestGuessingKeysIsSlowedDown(t *testing.T) {
	clock := newStillClock()
	o := harness.Start(t, harness.Options{Change: clock.of})
	mine, err := orbit.ParseCredentialKey(o.Key)
	if err != nil {
		t.Fatal(err)
	}
	fresh := o.Credential(o.Namespace, []string{"*"}, []string{"*"})
	wantOpens(t, o, 0, o.Key, true)
	guess := func() harness.Reply {
		return o.CallAt(o.URL(), orbit.NewCredentialKey(mine.Namespace, mine.Credential).Text(), "GET", "/v1/credential", nil)
	}
	for range 20 {
		guess().WantProblem(t, 401, "unauthenticated")
	}
	blocked := guess()
	if blocked.WantProblem(t, 429, "rate_limited"); blocked.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q, want 1", blocked.Header.Get("Retry-After"))
	}
	// Whoever was let in before is not shut out by a neighbour.
	wantOpens(t, o, 0, o.Key, true)
	clock.move(3 * time.Second)
	wantOpens(t, o, 0, o.Key, true)
	wantOpens(t, o, 0, fresh, true)
	guess().WantProblem(t, 401, "unauthenticated")
}

// Each operation with the actions of which one is needed; none means that it needs none.
func TestEachOperationNeedsItsAction(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	id := submit(t, o, "q")
	w := openWorker(t, o, "w", "q")
	offered := w.claimOne()
	zero := strings.Repeat("0", 32)
	worker := func(more string) string {
		return fmt.Sprintf(`{"instance_id":"%s","epoch":%d%s}`, w.instance, w.epoch, more)
	}
	item := fmt.Sprintf(`,"items":[{"attempt_id":"%s","token":"x"`, offered.AttemptID)
	operations := []struct{ action, method, path, body string }{
		{"admin", "GET", "/v1/credentials", ""},
		{"admin", "POST", "/v1/credentials", `{"name":"n","actions":["*"],"queues":[]}`},
		{"admin", "GET", "/v1/credentials/" + zero, ""},
		{"admin", "POST", "/v1/credentials/" + zero + ":rotate", ""},
		{"admin", "POST", "/v1/credentials/" + zero + ":revoke", `{"reason":"x"}`},
		{"tasks:submit", "GET", keyPath("submitTask", "k", ""), ""},
		{"tasks:manage", "GET", keyPath("cancelTask", "k", "/v1/tasks/"+zero+":cancel"), ""},
		{"queues:manage", "GET", keyPath("createQueue", "k", ""), ""},
		{"admin", "GET", keyPath("createCredential", "k", ""), ""},
		{"tasks:submit", "POST", "/v1/idempotency-keys:void", `{"operation":"submitTask","key":"v"}`},
		{"queues:manage", "POST", "/v1/idempotency-keys:void", `{"operation":"createQueue","key":"v"}`},
		{"events:read", "GET", "/v1/events", ""},
		{"audit:read", "GET", "/v1/audit-events", ""},
		{"queues:manage", "POST", "/v1/queues", `{"name":"new"}`},
		{"queues:read", "GET", "/v1/queues", ""},
		{"queues:read", "GET", "/v1/queues/" + queue, ""},
		{"queues:manage", "PATCH", "/v1/queues/" + queue, `{"max_attempts":3}`},
		{"queues:manage", "POST", "/v1/queues/" + queue + ":pause", `{"reason":"x"}`},
		{"queues:manage", "POST", "/v1/queues/" + queue + ":resume", ""},
		{"queues:read", "GET", "/v1/queues/" + queue + "/depth", ""},
		{"schedules:manage", "POST", "/v1/schedules", `{"name":"new","timetable":{"cron":"@daily"},"task":{"queue":"q","type":"t"}}`},
		{"schedules:read", "GET", "/v1/schedules", ""},
		{"schedules:read", "POST", "/v1/schedules:preview", `{"timetable":{"cron":"@daily"}}`},
		{"schedules:read", "GET", "/v1/schedules/" + zero, ""},
		{"schedules:manage", "PUT", "/v1/schedules/" + zero, `{"timetable":{"cron":"@daily"},"task":{"queue":"q","type":"t"}}`},
		{"schedules:manage", "POST", "/v1/schedules/" + zero + ":pause", `{"reason":"x"}`},
		{"schedules:manage", "POST", "/v1/schedules/" + zero + ":resume", ""},
		{"schedules:manage", "POST", "/v1/schedules/" + zero + ":archive", `{"reason":"x"}`},
		{"schedules:manage", "POST", "/v1/schedules/" + zero + ":trigger", ""},
		{"schedules:manage", "POST", "/v1/schedules/" + zero + ":backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}`},
		{"schedules:read", "GET", "/v1/schedules/" + zero + "/versions", ""},
		{"schedules:read", "GET", "/v1/schedules/" + zero + "/versions/1", ""},
		{"schedules:read", "GET", "/v1/schedules/" + zero + "/occurrences", ""},
		{"schedules:manage", "GET", keyPath("createSchedule", "k", ""), ""},
		{"tasks:submit", "POST", "/v1/tasks", `{"queue":"q","type":"t"}`},
		{"tasks:submit", "POST", "/v1/tasks:batch", `{"items":[{"queue":"q","type":"t","idempotency_key":"b"}]}`},
		{"tasks:read", "GET", "/v1/tasks", ""},
		{"tasks:read", "GET", "/v1/tasks/" + id, ""},
		{"tasks:read", "GET", "/v1/tasks/" + id + "/attempts", ""},
		{"tasks:read", "GET", "/v1/attempts/" + offered.AttemptID, ""},
		{"tasks:read", "GET", "/v1/attempts/" + offered.AttemptID + "/evidence", ""},
		{"tasks:read", "GET", "/v1/attempts/" + offered.AttemptID + "/evidence/" + zero, ""},
		{"tasks:manage", "POST", "/v1/tasks/" + zero + ":cancel", ""},
		{"tasks:manage", "POST", "/v1/tasks/" + zero + ":retry", ""},
		{"tasks:manage", "POST", "/v1/tasks/" + zero + ":resolve", `{"resolution":"fail","reason":"x"}`},
		{"tasks:read", "GET", "/v1/workers", ""},
		{"tasks:execute", "POST", "/v1/worker-sessions", `{"worker_name":"v","instance_id":"` + zero + `","queues":["q"],"types":[],"slots":1}`},
		{"tasks:execute", "POST", "/v1/worker-sessions:close", worker("")},
		{"tasks:execute", "POST", "/v1/claims", worker(`,"claim_seq":1,"max":1`)},
		{"tasks:execute", "POST", "/v1/attempts:start", worker(item + `}]`)},
		{"tasks:execute", "POST", "/v1/attempts:heartbeat", worker(item + `}]`)},
		{"tasks:execute", "POST", "/v1/attempts:finish", worker(item + `,"outcome":"succeeded"}]`)},
		{"tasks:execute", "POST", "/v1/attempts:release", worker(item + `}]`)},
	}
	actions := []string{"tasks:submit", "tasks:read", "tasks:manage", "tasks:execute", "queues:read", "queues:manage", "schedules:read", "schedules:manage", "events:read", "audit:read", "admin"}
	with, without := map[string]string{}, map[string]string{}
	for _, action := range actions {
		var others []string
		for _, a := range actions {
			if a != action {
				others = append(others, a)
			}
		}
		with[action] = o.Credential(o.Namespace, []string{action}, []string{"*"})
		without[action] = o.Credential(o.Namespace, others, []string{"*"})
	}
	for i, op := range operations {
		call := func(key string) harness.Reply {
			headers := []harness.Header{ifMatch(`"1"`)}
			if !strings.HasSuffix(op.path, ":batch") && !strings.HasSuffix(op.path, ":preview") {
				headers = append(headers, harness.Key(fmt.Sprint("op", i)))
			}
			if op.method == "PATCH" {
				headers = append(headers, mergePatch)
			}
			var body any
			if op.body != "" {
				body = op.body
			}
			return o.CallAt(o.URL(), key, op.method, op.path, body, headers...)
		}
		since := ledger(t, o)
		call(without[op.action]).WantProblem(t, 403, "forbidden")
		wantLedger(t, o, since)
		if r := call(with[op.action]); r.Status == 403 || r.Status == 401 || r.Status >= 500 {
			t.Errorf("%s %s with %s alone: %d %s", op.method, op.path, op.action, r.Status, r.Body)
		}
	}
	// One row a credential, operation and reason, however many refusals there were.
	for range 5 {
		o.CallAt(o.URL(), without["events:read"], "GET", "/v1/events", nil).WantProblem(t, 403, "forbidden")
	}
	o.Pass("audit_denials")
	var detail string
	if err := o.DB.QueryRow("SELECT CAST(detail AS CHAR) FROM orbit_audit_events WHERE outcome = 'denied' AND action = 'listEvents'").Scan(&detail); err != nil {
		t.Fatal(err)
	}
	var denied struct {
		Code  string `json:"code"`
		Count int    `json:"count"`
	}
	if err := json.Unmarshal([]byte(detail), &denied); err != nil || denied.Code != "forbidden" || denied.Count != 6 {
		t.Errorf("six denials were audited as %s", detail)
	}
}
