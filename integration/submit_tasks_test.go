package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// submitResult is what became of one task of a batch.
type submitResult struct {
	Status  int     `json:"status"`
	Receipt rawJSON `json:"receipt"`
	Problem struct {
		harness.Problem
		RetryAfterMs int64 `json:"retry_after_ms"`
	} `json:"problem"`
	Replayed bool `json:"replayed"`
}

// submitBatch submits items as they are written.
func submitBatch(t testing.TB, o *harness.Orbit, url string, items ...string) []submitResult {
	t.Helper()
	r, err := sendBatch(t, url, o.Key, items...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sendBatch is submitBatch for calls beside the test.
func sendBatch(t testing.TB, url, key string, items ...string) ([]submitResult, error) {
	r, err := harness.Do(t.Context(), url, key, "POST", "/v1/tasks:batch", `{"items":[`+strings.Join(items, ",")+`]}`)
	got, err := parse[struct{ Items []submitResult }](r, err, 200)
	if err == nil && len(got.Items) != len(items) {
		err = fmt.Errorf("%d results for %d items", len(got.Items), len(items))
	}
	return got.Items, err
}

func taskOf(t testing.TB, r submitResult) string {
	t.Helper()
	var got receipt
	if err := json.Unmarshal([]byte(r.Receipt), &got); err != nil || got.TaskID == "" {
		t.Fatalf("no receipt in %+v: %v", r, err)
	}
	return got.TaskID
}

func TestABatchIsAnsweredItemByItem(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	o.CreateQueue("hidden", nil)
	key := o.Credential(o.Namespace, []string{"*"}, []string{"q"})
	items := []string{
		`{"queue":"q","type":"a","idempotency_key":"a"}`,
		`{"queue":"none","type":"b","idempotency_key":"b"}`,
		`{"queue_id":"` + queue + `","type":"c","delay_ms":60000,"idempotency_key":"c"}`,
		`{"queue":"hidden","type":"d","idempotency_key":"d"}`,
		`{"queue":"q","type":"e","idempotency_key":"e","deadline_at":"2001-01-01T00:00:00Z"}`,
		`{"queue":"q","type":"f","idempotency_key":"a"}`,
		`{"queue":"q","idempotency_key":"a","type":"a"}`,
		`{"queue":"q","type":"h"}`,
		`{"queue":"q","type":"i","idempotency_key":"i","deadline_at":"2100-01-01T00:00:00Z"}`,
		`{"queue":"q","idempotency_key":"a","type":"\u0061"}`,
	}
	want := []struct {
		status   int
		code     string
		replayed bool
	}{{201, "", false}, {404, "not_found", false}, {201, "", false}, {404, "not_found", false}, {400, "invalid_request", false},
		{422, "idempotency_conflict", false}, {201, "", true}, {400, "invalid_request", false}, {201, "", false}, {201, "", true}}
	var receipts []rawJSON
	for try := range 2 {
		got, err := sendBatch(t, o.URL(), key, items...)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			wantReplayed := w.replayed || try == 1 && w.status == 201
			if got[i].Status != w.status || got[i].Problem.Code != w.code || got[i].Replayed != wantReplayed || (w.status == 201) != (got[i].Receipt != "") {
				t.Errorf("try %d: item %d answered %+v, want %+v", try, i, got[i], w)
			}
			if w.status != 201 && (got[i].Problem.Problem.Status != w.status || got[i].Problem.Type == "" || got[i].Problem.Title == "" || got[i].Problem.RequestID == "") {
				t.Errorf("try %d: item %d has no whole problem: %+v", try, i, got[i].Problem)
			}
			if try == 0 {
				receipts = append(receipts, got[i].Receipt)
			} else if got[i].Receipt != receipts[i] {
				t.Errorf("item %d got the receipt %s, first %s", i, got[i].Receipt, receipts[i])
			}
		}
	}
	if receipts[6] != receipts[0] || receipts[9] != receipts[0] {
		t.Errorf("a key that stands thrice got %s, %s and %s", receipts[0], receipts[6], receipts[9])
	}
	if tasks, keys := o.Count("pulse_tasks"), o.Count("orbit_idempotency_keys WHERE operation = 'submitTask'"); tasks != 3 || keys != 3 {
		t.Errorf("%d tasks under %d keys, want 3 under 3", tasks, keys)
	}
	if n := o.Count("pulse_deadlines"); n != 1 {
		t.Errorf("%d deadlines, want 1", n)
	}
}

func TestABatchIsRefusedAsAWhole(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	reader := o.Credential(o.Namespace, []string{"tasks:read"}, []string{"*"})
	item := func(i int) string { return fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"k%d"}`, i) }
	many := func(n int) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return `{"items":[` + strings.Join(items, ",") + `]}`
	}
	since := ledger(t, o)
	for name, c := range map[string]struct{ body, pointer string }{
		"no items":          {`{"items":[]}`, "/items"},
		"1,001 items":       {many(1001), ""},
		"items missing":     {`{}`, "/items"},
		"items no list":     {`{"items":{}}`, "/items"},
		"unknown member":    {`{"items":[` + item(1) + `],"atomic":true}`, "/atomic"},
		"items twice":       {`{"items":[` + item(1) + `],"items":[` + item(2) + `]}`, ""},
		"broken at the end": {`{"items":[` + item(1) + `]`, ""},
		"broken in an item": {`{"items":[` + item(1) + `,{"queue":"q" "type":"t"}]}`, "/items/1"},
		"a list":            {`[` + item(1) + `]`, ""},
	} {
		p := o.Call("POST", "/v1/tasks:batch", c.body).WantProblem(t, 400, "invalid_request")
		if len(p.Errors) != 1 || c.pointer != "" && !strings.HasPrefix(p.Errors[0].Pointer, c.pointer) {
			t.Errorf("%s: refused with %+v, want one fault at %s", name, p.Errors, c.pointer)
		}
	}
	p := o.Call("POST", "/v1/tasks:batch", many(1), harness.Key("k")).WantProblem(t, 400, "invalid_request")
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "header/Idempotency-Key" {
		t.Errorf("a key in the header was refused with %+v", p.Errors)
	}
	o.CallAt(o.URL(), reader, "POST", "/v1/tasks:batch", many(1)).WantProblem(t, 403, "forbidden")
	wantLedger(t, o, since)
	o.Call("POST", "/v1/tasks:batch", many(1000)).Want(t, 200)
	if n := o.Count("pulse_tasks"); n != 1000 {
		t.Errorf("%d tasks of a batch of 1,000", n)
	}
}

func TestOneKeySinglyAndInABatchIsOneTask(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	// One after the other, either way round.
	single := o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","payload":{"a":1}}`, harness.Key("first-single")).Want(t, 201)
	if got := submitBatch(t, o, o.Replica(1).URL, `{"idempotency_key":"first-single","payload":{"a":1.0},"queue":"q","type":"t"}`)[0]; !got.Replayed || string(got.Receipt) != string(single.Body) {
		t.Errorf("the batch answered %+v, the single submit %s", got, single.Body)
	}
	item := submitBatch(t, o, o.URL(), `{"queue":"q","type":"t","payload":{"a":1},"idempotency_key":"first-batch"}`)[0]
	if r := o.CallAt(o.Replica(1).URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t","payload":{"a":1}}`, harness.Key("first-batch")).Want(t, 201); !replayed(r) || string(r.Body) != string(item.Receipt) ||
		r.Header.Get("Location") != "/v1/tasks/"+taskOf(t, item) {
		t.Errorf("the single submit answered %v %s, the batch %s", r.Header, r.Body, item.Receipt)
	}
	// At one moment, on two replicas, the key among neighbours.
	const rounds = 15
	for round := range rounds {
		key := fmt.Sprint("shared", round)
		items := make([]string, 9)
		for i := range items {
			items[i] = fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"n%d-%d"}`, round, i)
		}
		items[4] = `{"queue":"q","type":"t","idempotency_key":"` + key + `"}`
		receipts := race(t, 4, func(i int) (string, error) {
			url := o.Replica(i % 2).URL
			if i < 2 {
				r, err := harness.Do(t.Context(), url, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(key))
				_, err = parse[receipt](r, err, 201)
				return string(r.Body), err
			}
			got, err := sendBatch(t, url, o.Key, items...)
			for k, r := range got {
				if r.Status != 201 {
					err = fmt.Errorf("item %d: %+v", k, r)
				}
			}
			if err != nil {
				return "", err
			}
			return string(got[4].Receipt), nil
		})
		for i, r := range receipts {
			if r != receipts[0] {
				t.Errorf("round %d: caller %d got %s, caller 0 %s", round, i, r, receipts[0])
			}
		}
	}
	if n, want := o.Count("pulse_tasks"), 2+9*rounds; n != want {
		t.Errorf("%d tasks, want %d", n, want)
	}
}

// A first try that holds one key of a batch does not harm the others, and is waited for.
func TestABatchWaitsForAKeyThatIsHeld(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	wired, w := addWired(t, o, harness.Options{})
	o.CreateQueue("q", nil)
	commit := w.stop(harness.Commit)
	first := send(t, wired.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("b"))
	within(t, commit.reached, "the first try to be before its commit")
	batch := later(t, func() ([]submitResult, error) {
		return sendBatch(t, o.URL(), o.Key, `{"queue":"q","type":"t","idempotency_key":"a"}`, `{"queue":"q","type":"t","idempotency_key":"b"}`, `{"queue":"q","type":"t","idempotency_key":"c"}`)
	})
	awaitLockWaits(t, o, 1)
	commit.goOn()
	single, got := first().Want(t, 201), batch()
	for i, r := range got {
		if r.Status != 201 || r.Replayed != (i == 1) {
			t.Errorf("item %d answered %+v", i, r)
		}
	}
	if string(got[1].Receipt) != string(single.Body) {
		t.Errorf("the item got %s, the single submit %s", got[1].Receipt, single.Body)
	}
}

func TestBatchesOfTheSameKeysInAnyOrderAreEachTaskOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	const keys, rounds = 60, 4
	for round := range rounds {
		items := make([]string, keys)
		for i := range items {
			items[i] = fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"r%d-%d"}`, round, i)
		}
		got := race(t, 4, func(i int) (map[int]rawJSON, error) {
			order, sent := make([]int, keys), make([]string, keys)
			for k := range keys {
				order[k] = (k + 17*i) % keys
				if i%2 == 1 {
					order[k] = keys - 1 - order[k]
				}
				sent[k] = items[order[k]]
			}
			results, err := sendBatch(t, o.Replica(i%2).URL, o.Key, sent...)
			receipts := map[int]rawJSON{}
			for k, r := range results {
				if r.Status != 201 {
					return nil, fmt.Errorf("item %d: %+v", k, r)
				}
				receipts[order[k]] = r.Receipt
			}
			return receipts, err
		})
		for i := range got {
			for k := range keys {
				if got[i][k] != got[0][k] {
					t.Fatalf("round %d, key %d: caller %d got %s, caller 0 %s", round, k, i, got[i][k], got[0][k])
				}
			}
		}
	}
	if n := o.Count("pulse_tasks"); n != keys*rounds {
		t.Errorf("%d tasks, want %d", n, keys*rounds)
	}
}

func TestAnUnansweredCommitOfABatchIsSettledByItsKeys(t *testing.T) {
	items := []string{`{"queue":"q","type":"t","idempotency_key":"a"}`, `{"queue":"q","type":"t","idempotency_key":"b"}`}
	for name, c := range map[string]struct {
		end  func(*stoppedStatement)
		done bool
	}{"that was carried out": {(*stoppedStatement).lose, true}, "that never arrived": {(*stoppedStatement).cut, false}} {
		t.Run(name, func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			wired, w := addWired(t, o, harness.Options{})
			o.CreateQueue("q", nil)
			c.end(w.stop(harness.Commit))
			for i, r := range submitBatch(t, o, wired.URL, items...) {
				if r.Status != 503 || r.Problem.Code != "outcome_unknown" || r.Problem.RetryAfterMs < 1 {
					t.Errorf("item %d answered %+v", i, r)
				}
			}
			for i, r := range submitBatch(t, o, wired.URL, items...) {
				if r.Status != 201 || r.Replayed != c.done {
					t.Errorf("the repeat of item %d answered %+v, want replayed %t", i, r, c.done)
				}
			}
			if n := o.Count("pulse_tasks"); n != 2 {
				t.Errorf("%d tasks, want 2", n)
			}
		})
	}
}

// A batch that fails before its commit is done item by item, and the caller does not notice.
func TestABatchThatFailsBeforeItsCommitIsDoneSingly(t *testing.T) {
	for _, at := range []harness.Statement{"InsertKey", "InsertTask", "InsertSpool"} {
		t.Run(string(at), func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			wired, w := addWired(t, o, harness.Options{})
			o.CreateQueue("q", nil)
			w.stop(at).cut()
			for i, r := range submitBatch(t, o, wired.URL, `{"queue":"q","type":"t","idempotency_key":"a"}`, `{"queue":"q","type":"t","idempotency_key":"b"}`) {
				if r.Status != 201 || r.Replayed {
					t.Errorf("item %d answered %+v", i, r)
				}
			}
			if n := o.Count("pulse_tasks"); n != 2 {
				t.Errorf("%d tasks, want 2", n)
			}
		})
	}
}

// Items that do not fit in one transaction are answered like the others.
func TestLargeItemsOfABatchAreAccepted(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	var items []string
	payloads := []string{strings.Repeat("ä", 2_000_000), strings.Repeat("\\u0041", 1_300_000), "x", strings.Repeat("y", 8<<20-2), strings.Repeat("z", 3<<20)}
	for i, p := range payloads {
		items = append(items, fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"k%d","payload":"%s"}`, i, p))
	}
	for i, r := range submitBatch(t, o, o.URL(), items...) {
		if r.Status != 201 {
			t.Fatalf("item %d answered %d %+v", i, r.Status, r.Problem)
		}
		if got := getTask(t, o, taskOf(t, r)); string(got.Payload) != `"`+payloads[i]+`"` {
			t.Errorf("payload %d came back with %d bytes, sent with %d", i, len(got.Payload), len(payloads[i])+2)
		}
	}
}

// A try that holds a key of its own, and others that are done, send no stranger's batch to the single lane, however small or large the tables are.
func TestABatchIsOneTransactionBesideStrangers(t *testing.T) {
	for _, done := range []int{0, 60, 1000} {
		t.Run(fmt.Sprint("after ", done, " tasks"), func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			wired, w := addWired(t, o, harness.Options{})
			asked := &recorder{}
			recorded := o.AddReplica(harness.Options{Between: harness.Around(asked.around)})
			o.CreateQueue("q", nil)
			if done > 0 {
				submitMany(t, o, "q", done)
			}
			commit := w.stop(harness.Commit)
			stranger := send(t, wired.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("m-stranger"))
			within(t, commit.reached, "the stranger to be before its commit")
			var items []string
			for i := range 80 {
				late := ""
				if i%2 == 1 {
					late = `,"deadline_at":"2001-01-01T00:00:00Z"`
				}
				items = append(items, fmt.Sprintf(`{"queue":"q","type":"t","idempotency_key":"%c-%d"%s}`, 'a'+i%26, i, late))
			}
			for i, r := range submitBatch(t, o, recorded.URL, items...) {
				if want := 201 + 199*(i%2); r.Status != want {
					t.Errorf("item %d answered %d, want %d", i, r.Status, want)
				}
			}
			commit.goOn()
			stranger().Want(t, 201)
			ran := map[string]int{}
			for _, name := range asked.take() {
				ran[name]++
			}
			if ran["BEGIN"] != 1 || ran["COMMIT"] != 1 {
				t.Errorf("it took %v", ran)
			}
		})
	}
}
