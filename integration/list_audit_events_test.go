package integration_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// auditEvent is an entry of the audit.
type auditEvent struct {
	ID         string  `json:"id"`
	Actor      string  `json:"actor"`
	Action     string  `json:"action"`
	TargetKind string  `json:"target_kind"`
	TargetID   string  `json:"target_id"`
	Outcome    string  `json:"outcome"`
	RequestID  string  `json:"request_id"`
	Source     string  `json:"source"`
	Detail     rawJSON `json:"detail"`
}

// audit reads the whole audit of the first tenant, oldest first.
func audit(t testing.TB, o *harness.Orbit, filter string) []auditEvent {
	t.Helper()
	var all []auditEvent
	for cursor := ""; ; {
		var page struct {
			Items      []auditEvent `json:"items"`
			NextCursor string       `json:"next_cursor"`
		}
		o.Call("GET", "/v1/audit-events?limit=3"+filter+cursor, nil).Want(t, 200).JSON(t, &page)
		for _, e := range page.Items {
			all = append([]auditEvent{e}, all...)
		}
		if page.NextCursor == "" {
			return all
		}
		cursor = "&cursor=" + url.QueryEscape(page.NextCursor)
	}
}

// What people do is in the audit, with who, on what and why; what programs do is not; and business content is in neither audit nor events.
func TestActsOfPeopleAreAudited(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	const marker = "4111111111111111"
	queue := o.CreateQueue("q", map[string]any{"unknown_outcome": "review"})
	w := openWorker(t, o, "w", "q")
	secret := rawJSON(`{"card":"` + marker + `"}`)
	done, failed, cancelled := submit(t, o, "q", "payload", secret, "priority", 1), submit(t, o, "q", "payload", secret, "priority", 2), submit(t, o, "q", "payload", secret, "priority", 3)
	first, second := w.run(), w.run()
	wantItem(t, w.items("/v1/attempts:heartbeat", first.item("progress", secret))[0], 200, "")
	wantItem(t, w.succeed(first, string(secret)), 200, "")
	wantItem(t, w.succeed(first, `{"other":"`+marker+`"}`), 409, "result_conflict")
	wantItem(t, w.items("/v1/attempts:finish", second.item("outcome", "failed", "result", secret, "error", map[string]any{"code": "declined", "message": "no"}, "retry", false))[0], 200, "")
	if first.TaskID != done || second.TaskID != failed {
		t.Fatal("the tasks were not claimed in their order")
	}
	request := harness.Header{Name: "X-Request-Id", Value: "ticket-42"}
	o.Call("PATCH", "/v1/queues/"+queue, `{"max_attempts":9}`, mergePatch, ifMatch(`"1"`), request).Want(t, 200)
	o.Call("POST", "/v1/queues/"+queue+":pause", `{"reason":"because of A"}`, harness.Key("p")).Want(t, 200)
	o.Call("POST", "/v1/queues/"+queue+":resume", `{"reason":"because of B"}`, harness.Key("p")).Want(t, 200)
	o.Call("POST", "/v1/tasks/"+cancelled+":cancel", `{"reason":"because of C"}`, harness.Key("c")).Want(t, 200)
	o.Call("POST", "/v1/tasks/"+failed+":retry", `{"reason":"because of D"}`, harness.Key("r")).Want(t, 200)
	c := createCredential(t, o, `{"name":"n","actions":["tasks:read"],"queues":["q"]}`)
	o.Call("POST", "/v1/credentials/"+c.Credential.ID+":rotate", `{"overlap_ms":5}`, harness.Key("r")).Want(t, 200)
	o.Call("POST", "/v1/credentials/"+c.Credential.ID+":revoke", `{"reason":"because of E"}`, harness.Key("r")).Want(t, 200)
	for range 2 { // repeats are no acts
		o.Call("POST", "/v1/tasks/"+cancelled+":cancel", `{"reason":"because of C"}`, harness.Key("c")).Want(t, 200)
		o.Call("PATCH", "/v1/queues/"+queue, `{"max_attempts":9}`, mergePatch, ifMatch(`"1"`)).WantProblem(t, 412, "revision_mismatch")
	}

	var me struct {
		ActorID string `json:"actor_id"`
	}
	o.Call("GET", "/v1/credential", nil).Want(t, 200).JSON(t, &me)
	all := audit(t, o, "")
	want := []struct{ action, kind, id, source, detail string }{
		{"createNamespace", "namespace", o.Namespace.ID.String(), "host", "test@host"},
		{"createCredential", "credential", "", "host", "test@host"},
		{"createQueue", "queue", queue, "api", `"q"`},
		{"updateQueue", "queue", queue, "api", `"max_attempts"`},
		{"pauseQueue", "queue", queue, "api", "because of A"},
		{"resumeQueue", "queue", queue, "api", "because of B"},
		{"cancelTask", "task", cancelled, "api", "because of C"},
		{"retryTask", "task", failed, "api", "because of D"},
		{"createCredential", "credential", c.Credential.ID, "api", `"tasks:read"`},
		{"rotateCredential", "credential", c.Credential.ID, "api", `"overlap_ms"`},
		{"revokeCredential", "credential", c.Credential.ID, "api", "because of E"},
	}
	if len(all) != len(want) {
		t.Fatalf("%d acts were audited, want %d: %+v", len(all), len(want), all)
	}
	for i, e := range all {
		w := want[i]
		actor := map[string]string{"api": me.ActorID, "host": "system"}[w.source]
		if e.Action != w.action || e.TargetKind != w.kind || w.id != "" && e.TargetID != w.id || e.Source != w.source || e.Outcome != "done" || e.Actor != actor ||
			!strings.Contains(string(e.Detail), w.detail) || !json.Valid([]byte(e.Detail)) || w.source == "api" && e.RequestID == "" {
			t.Errorf("act %d is %+v, want %+v", i, e, w)
		}
	}
	if all[3].RequestID != "ticket-42" {
		t.Errorf("the request is audited as %q, want ticket-42", all[3].RequestID)
	}
	for _, kept := range []string{"orbit_audit_events WHERE CAST(detail AS CHAR)", "orbit_events WHERE data", "orbit_idempotency_keys k JOIN orbit_replies r ON r.id = k.reply_id WHERE r.body"} {
		if n := o.Count(kept+" LIKE ?", "%"+marker+"%"); n != 0 {
			t.Errorf("business content stands in %d rows of %s", n, kept)
		}
	}
}

func TestTheAuditIsFilteredAndPaged(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	_, stranger := o.Tenant("other")
	queues := map[string]string{}
	for i := range 5 {
		name := fmt.Sprint("q", i)
		queues[name] = o.CreateQueue(name, nil)
		o.Call("POST", "/v1/queues/"+queues[name]+":pause", `{"reason":"x"}`, harness.Key("p")).Want(t, 200)
	}
	var me struct {
		ActorID string `json:"actor_id"`
	}
	o.Call("GET", "/v1/credential", nil).Want(t, 200).JSON(t, &me)
	for filter, want := range map[string]int{
		"": 12, "&actor_id=" + me.ActorID: 10, "&action=pauseQueue": 5, "&action=nothing": 0, "&target_id=" + queues["q3"]: 2,
		"&action=pauseQueue&target_id=" + queues["q3"]: 1, "&action=createQueue&target_id=" + strings.Repeat("0", 32): 0,
	} {
		if got := audit(t, o, filter); len(got) != want {
			t.Errorf("%q: %d acts, want %d", filter, len(got), want)
		}
	}
	reader := o.Credential(o.Namespace, []string{"audit:read"}, nil)
	if got := walk(t, o, reader, "/v1/audit-events?limit=500"); len(got) != 13 {
		t.Errorf("a reader without queues reads %d acts, want all 13", len(got))
	}
	if got := walk(t, o, stranger, "/v1/audit-events?limit=500"); len(got) != 2 {
		t.Errorf("another tenant reads %d acts, want its own 2", len(got))
	}
	o.CallAt(o.URL(), o.Credential(o.Namespace, []string{"events:read"}, nil), "GET", "/v1/audit-events", nil).WantProblem(t, 403, "forbidden")
	var page list
	o.Call("GET", "/v1/audit-events?limit=1&action=pauseQueue", nil).Want(t, 200).JSON(t, &page)
	cursor := "cursor=" + url.QueryEscape(page.NextCursor)
	o.Call("GET", "/v1/audit-events?action=pauseQueue&"+cursor, nil).Want(t, 200)
	for _, bad := range []string{cursor, "action=createQueue&" + cursor, "action=pauseQueue&target_id=" + queues["q1"] + "&" + cursor, "cursor=AQ"} {
		o.Call("GET", "/v1/audit-events?"+bad, nil).WantProblem(t, 400, "cursor_invalid")
	}
	for _, bad := range []string{"limit=-1", "limit=0", "actor_id=me", "target_id=x", "action="} {
		o.Call("GET", "/v1/audit-events?"+bad, nil).WantProblem(t, 400, "invalid_request")
	}
}

func TestHistoryIsNeverChanged(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	submit(t, o, "q")
	w := openWorker(t, o, "w", "q")
	offered := w.run()
	wantItem(t, w.succeed(offered, `1`), 200, "")
	wantItem(t, w.succeed(offered, `2`), 409, "result_conflict")
	for _, statement := range []string{"UPDATE orbit_events SET type = 'x'", "UPDATE orbit_audit_events SET outcome = 'x'", "UPDATE pulse_attempt_receipts SET result = '2'", "UPDATE pulse_attempt_evidence SET result = '1'"} {
		if _, err := o.DB.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "is history") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}
