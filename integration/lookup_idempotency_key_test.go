package integration_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// keyState is what is known of a key.
type keyState struct {
	State        string `json:"state"`
	ResourceKind string `json:"resource_kind"`
	ResourceID   string `json:"resource_id"`
	Reply        struct {
		Status int     `json:"status"`
		Body   rawJSON `json:"body"`
	} `json:"reply"`
}

func keyPath(operation, key, path string) string {
	q := url.Values{"operation": {operation}, "key": {key}}
	if path != "" {
		q.Set("path", path)
	}
	return "/v1/idempotency-keys?" + q.Encode()
}

// wantKey looks a key of the first credential up and fails t unless it is in that state.
func wantKey(t testing.TB, o *harness.Orbit, operation, key, state string, path ...string) keyState {
	t.Helper()
	return wantKeyOf(t, o, o.Key, operation, key, state, path...)
}

func wantKeyOf(t testing.TB, o *harness.Orbit, credential, operation, key, state string, path ...string) keyState {
	t.Helper()
	var got keyState
	r := o.CallAt(o.URL(), credential, "GET", keyPath(operation, key, strings.Join(path, "")), nil).Want(t, 200)
	r.JSON(t, &got)
	if got.State != state || (state == "done") != (got.Reply.Status != 0) {
		t.Fatalf("key %q of %s is %s, want %s", key, operation, r.Body, state)
	}
	return got
}

func TestAKeyTellsWhatBecameOfItsRequest(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	queue := o.CreateQueue("q", nil)
	wantKey(t, o, "submitTask", "a/b?c", "unknown")
	accepted := o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("a/b?c")).Want(t, 201)
	var r receipt
	accepted.JSON(t, &r)
	got := wantKey(t, o, "submitTask", "a/b?c", "done")
	if got.ResourceKind != "task" || got.ResourceID != r.TaskID || got.Reply.Status != 201 || string(got.Reply.Body) != string(accepted.Body) {
		t.Errorf("the key tells %+v, the reply was %s", got, accepted.Body)
	}
	wantKey(t, o, "submitTask", "a/b?c", "done", "/v1/tasks")

	// A task of a batch is a submitTask; an act on one thing is asked for with its path.
	batch := submitBatch(t, o, o.URL(), `{"queue":"q","type":"t","idempotency_key":"item"}`)
	if got := wantKey(t, o, "submitTask", "item", "done"); got.Reply.Body != batch[0].Receipt {
		t.Errorf("the key of an item tells %+v, its receipt was %s", got, batch[0].Receipt)
	}
	path := "/v1/tasks/" + r.TaskID + ":cancel"
	cancelled := o.Call("POST", path, nil, harness.Key("c")).Want(t, 200)
	if got := wantKey(t, o, "cancelTask", "c", "done", path); got.Reply.Status != 200 || string(got.Reply.Body) != string(cancelled.Body) || got.ResourceID != r.TaskID {
		t.Errorf("the key of a cancel tells %+v, its reply was %s", got, cancelled.Body)
	}
	wantKey(t, o, "cancelTask", "c", "unknown", "/v1/tasks/"+taskOf(t, batch[0])+":cancel")
	wantKey(t, o, "retryTask", "c", "unknown", "/v1/tasks/"+r.TaskID+":retry")
	if got := wantKey(t, o, "createQueue", "queue-q", "done"); got.ResourceKind != "queue" || got.ResourceID != queue {
		t.Errorf("the key of a new queue tells %+v", got)
	}
}

func TestAKeyIsToldToWhoMaySeeItsResourceNow(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k")).Want(t, 201)
	_, stranger := o.Tenant("other")
	wantKeyOf(t, o, stranger, "submitTask", "k", "unknown")
	wantKeyOf(t, o, o.Credential(o.Namespace, []string{"*"}, []string{"*"}), "submitTask", "k", "unknown")

	var me struct {
		ActorID string `json:"actor_id"`
	}
	o.Call("GET", "/v1/credential", nil).Want(t, 200).JSON(t, &me)
	sibling := func(name, actions, queues string) string {
		var issued struct {
			Key string `json:"key"`
		}
		o.Call("POST", "/v1/credentials", `{"name":"sibling","actor_id":"`+me.ActorID+`","actions":`+actions+`,"queues":`+queues+`}`, harness.Key(name)).
			Want(t, 201).JSON(t, &issued)
		return issued.Key
	}
	wantKeyOf(t, o, sibling("same", `["tasks:submit"]`, `["q"]`), "submitTask", "k", "done")
	wantKeyOf(t, o, sibling("elsewhere", `["tasks:submit"]`, `["z"]`), "submitTask", "k", "unknown")
	o.CallAt(o.URL(), sibling("reader", `["tasks:read"]`, `["*"]`), "GET", keyPath("submitTask", "k", ""), nil).WantProblem(t, 403, "forbidden")
}

func TestALookUpThatNamesNoRequestIsRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := strings.Repeat("0", 32)
	for path, pointer := range map[string]string{
		keyPath("claimTasks", "k", ""):                             "query/operation",
		keyPath("submitTasks", "k", ""):                            "query/operation",
		keyPath("voidIdempotencyKey", "k", ""):                     "query/operation",
		keyPath("submitTask", "k", "/v1/queues"):                   "query/path",
		keyPath("cancelTask", "k", ""):                             "query/path",
		keyPath("cancelTask", "k", "/v1/tasks/"+id+":retry"):       "query/path",
		keyPath("cancelTask", "k", "/v1/tasks/"+id+"/../x:cancel"): "query/path",
		keyPath("submitTask", strings.Repeat("k", 129), ""):        "query/key",
		keyPath("submitTask", "k k", ""):                           "query/key",
		keyPath("submitTask", "ключ", ""):                          "query/key",
		"/v1/idempotency-keys?operation=submitTask":                "query/key",
		"/v1/idempotency-keys?key=k":                               "query/operation",
		"/v1/idempotency-keys?operation=submitTask&key=k&key=k":    "query/key",
		"/v1/idempotency-keys?operation=submitTask&key=k&path=":    "query/path",
	} {
		r := o.Call("GET", path, nil)
		p := r.WantProblem(t, 400, "invalid_request")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: refused with %s, want %s", path, r.Body, pointer)
		}
	}
}
