package integration_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestACallerIsToldWhoItIs(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	c := createCredential(t, o, `{"name":"shop","actions":["tasks:submit"],"queues":["mail/*","x?"],"expires_at":"2100-01-01T00:00:00Z"}`)
	for replica := range 2 {
		got := string(o.CallAt(o.Replica(replica).URL, c.Key, "GET", "/v1/credential", nil).Want(t, 200).Body)
		want := fmt.Sprintf(`{"namespace_id":"%s","actor_id":"%s","credential_id":"%s","name":"shop","actions":["tasks:submit"],"queues":["mail/*","x?"],"expires_at":"2100-01-01T00:00:00.000000Z"}`,
			o.Namespace.ID, c.Credential.ActorID, c.Credential.ID)
		if got != want {
			t.Errorf("replica %d tells %s, want %s", replica, got, want)
		}
	}
}

func TestCredentialsAreReadByAdministratorsOnly(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	_, stranger := o.Tenant("other")
	c := createCredential(t, o, `{"name":"n","actions":["tasks:submit","tasks:read","tasks:manage","tasks:execute","queues:read","queues:manage","events:read","audit:read"],"queues":["*"]}`)
	for _, path := range []string{"/v1/credentials", "/v1/credentials/" + c.Credential.ID} {
		o.CallAt(o.URL(), c.Key, "GET", path, nil).WantProblem(t, 403, "forbidden")
	}
	o.CallAt(o.URL(), stranger, "GET", "/v1/credentials/"+c.Credential.ID, nil).WantProblem(t, 404, "not_found")
	o.Call("GET", "/v1/credentials/"+strings.Repeat("0", 32), nil).WantProblem(t, 404, "not_found")
	o.Call("GET", "/v1/credentials/x", nil).WantProblem(t, 400, "invalid_request")
	if body := string(o.Call("GET", "/v1/credentials/"+c.Credential.ID, nil).Want(t, 200).Body); strings.Contains(body, "digest") || strings.Contains(body, "secret") || strings.Contains(body, `"key"`) {
		t.Errorf("a credential shows %s", body)
	}
}

func TestCredentialsAreListedWhateverTheirState(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	_, stranger := o.Tenant("other")
	var want []string
	for i := range 7 {
		c := createCredential(t, o, fmt.Sprintf(`{"name":"n%d","actions":["*"],"queues":["*"]}`, i))
		want = append([]string{c.Credential.ID}, want...)
		if i%3 == 0 {
			o.Call("POST", "/v1/credentials/"+c.Credential.ID+":revoke", `{"reason":"x"}`, harness.Key("r")).Want(t, 200)
		}
	}
	for _, limit := range []string{"1", "3", "500", "99999"} {
		got := walk(t, o, o.Key, "/v1/credentials?limit="+limit)
		if len(got) != 8 || fmt.Sprint(got[:7]) != fmt.Sprint(want) {
			t.Errorf("limit %s: %v, want %v and the first credential", limit, got, want)
		}
	}
	if got := walk(t, o, stranger, "/v1/credentials?limit=10"); len(got) != 1 {
		t.Errorf("another tenant lists %v", got)
	}
	var page list
	o.Call("GET", "/v1/credentials?limit=1", nil).Want(t, 200).JSON(t, &page)
	o.Call("GET", "/v1/audit-events?cursor="+url.QueryEscape(page.NextCursor), nil).WantProblem(t, 400, "cursor_invalid")
	for _, bad := range []string{"limit=0", "limit=-1", "limit=1.5", "cursor="} {
		o.Call("GET", "/v1/credentials?"+bad, nil).WantProblem(t, 400, "invalid_request")
	}
}

func TestTheLastUseOfACredentialIsKeptToTheMinute(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	c := createCredential(t, o, `{"name":"n","actions":["*"],"queues":["*"]}`)
	lastUse := func() time.Time {
		var shown credential
		o.Call("GET", "/v1/credentials/"+c.Credential.ID, nil).Want(t, 200).JSON(t, &shown)
		return shown.LastUsedAt
	}
	if at := lastUse(); !at.IsZero() {
		t.Fatalf("never used, and shown as used at %s", at)
	}
	wantOpens(t, o, 1, c.Key, true)
	o.Pass("touch_credentials", 1)
	first := lastUse()
	if first.IsZero() {
		t.Fatal("its use was not kept")
	}
	o.Advance(10 * time.Minute)
	wantOpens(t, o, 0, c.Key, true)
	o.Pass("touch_credentials", 0)
	if d := lastUse().Sub(first); d < 9*time.Minute || d > 11*time.Minute {
		t.Errorf("used again 10 minutes later, and shown as %s later", d)
	}
}
