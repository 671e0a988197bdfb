package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orbit-run/orbit/sdk/go/client"
)

// batchServer answers each item by its key: a status per time it comes, then 201.
type batchServer struct {
	server
	status map[string][]int
	calls  [][]string // keys of each call
}

func newBatchServer(status map[string][]int) *batchServer {
	b := &batchServer{status: status}
	b.answer = func(_ int, r seen) (*http.Response, error) {
		var req struct {
			Items []struct {
				Key string `json:"idempotency_key"`
			} `json:"items"`
		}
		if err := json.Unmarshal([]byte(r.body), &req); err != nil {
			return refuse(400, client.CodeInvalidRequest), nil
		}
		var keys, items []string
		for _, it := range req.Items {
			keys = append(keys, it.Key)
			items = append(items, b.item(it.Key))
		}
		b.calls = append(b.calls, keys)
		return reply(200, "application/json", `{"items":[`+strings.Join(items, ",")+`]}`), nil
	}
	return b
}

func (b *batchServer) item(key string) string {
	if q := b.status[key]; len(q) > 0 {
		b.status[key] = q[1:]
		code := map[int]string{503: "outcome_unknown", 409: "idempotency_in_progress", 422: "idempotency_conflict"}[q[0]]
		return fmt.Sprintf(`{"status":%d,"replayed":false,"problem":{"type":"/","title":"T","status":%d,"code":%q,"request_id":"r","retry_after_ms":3000}}`, q[0], q[0], code)
	}
	return fmt.Sprintf(`{"status":201,"replayed":false,"receipt":{"task_id":"%032x","queue_id":%q,"type":"t","accepted_at":"2026-01-02T03:04:05.000000Z","run_at":"2026-01-02T03:04:05.000000Z"}}`, len(key), queueID)
}

func items(keys ...string) (out []client.Item) {
	for _, key := range keys {
		out = append(out, client.Item{Key: key, Submission: client.Submission{Queue: "q", Type: "t"}})
	}
	return out
}

func TestSubmitBatchSendsOnlyTheUnknownAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatchServer(map[string][]int{"bb": {503, 409}, "cccc": {422}, "ddddd": {503}})
		in := items("a", "bb", "eee", "cccc", "ddddd")
		in[2].Payload = json.RawMessage("{")
		in = append(in, client.Item{Submission: in[0].Submission})
		from := time.Now()
		got, err := b.client(t).SubmitBatch(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]string{{"a", "bb", "cccc", "ddddd"}, {"bb", "ddddd"}, {"bb"}}, b.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if took := time.Since(from); took != 6*time.Second {
			t.Errorf("took %v, want twice the 3 s the server asked for", took)
		}
		for i, wantOK := range []bool{true, true, false, false, true, false} {
			r := got[i]
			if (r.Err == nil) != wantOK || wantOK && r.Receipt.TaskID != fmt.Sprintf("%032x", len(in[i].Key)) {
				t.Errorf("item %d = %+v", i, r)
			}
		}
		if !client.HasCode(got[3].Err, client.CodeIdempotencyConflict) {
			t.Errorf("the refused item: %v", got[3].Err)
		}
	})
}

func TestSubmitBatchCuts(t *testing.T) {
	b := newBatchServer(nil)
	var keys []string
	for i := range 2500 {
		keys = append(keys, fmt.Sprintf("%d", i))
	}
	got, err := b.client(t).SubmitBatch(t.Context(), items(keys...))
	if err != nil {
		t.Fatal(err)
	}
	var sizes, sent = []int{}, 0
	for _, call := range b.calls {
		sizes = append(sizes, len(call))
		sent += len(call)
	}
	if diff := cmp.Diff([]int{1000, 1000, 500}, sizes); diff != "" {
		t.Errorf("items per call (-want +got):\n%s", diff)
	}
	for i := range got {
		if got[i].Err != nil {
			t.Fatalf("item %d: %v", i, got[i].Err)
		}
	}

	b = newBatchServer(nil)
	large := items("a", "b", "c", "d", "e")
	for i := range large {
		large[i].Payload = json.RawMessage(`"` + strings.Repeat("x", 7<<20) + `"`)
	}
	if _, err := b.client(t).SubmitBatch(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"a", "b", "c", "d"}, {"e"}}, b.calls); diff != "" {
		t.Errorf("large items per call (-want +got):\n%s", diff)
	}
	if got, err := b.client(t).SubmitBatch(t.Context(), nil); len(got) != 0 || err != nil || len(b.calls) != 2 {
		t.Errorf("an empty batch = %v, %v", got, err)
	}
}

func TestSubmitBatchStopsWhenTheCallIsRefused(t *testing.T) {
	s := &server{answer: func(int, seen) (*http.Response, error) { return refuse(401, client.CodeUnauthenticated), nil }}
	var keys []string
	for i := range 1500 {
		keys = append(keys, fmt.Sprintf("%d", i))
	}
	got, err := s.client(t).SubmitBatch(t.Context(), items(keys...))
	if !client.HasCode(err, client.CodeUnauthenticated) || len(s.request) != 1 {
		t.Errorf("%d calls, %v", len(s.request), err)
	}
	for i, r := range got {
		if !client.HasCode(r.Err, client.CodeUnauthenticated) {
			t.Fatalf("item %d: %v", i, r.Err)
		}
		if notSent := strings.Contains(r.Err.Error(), "not sent"); notSent != (i >= 1000) {
			t.Fatalf("item %d: %v", i, r.Err)
		}
	}
}
