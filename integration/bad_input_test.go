package integration_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"
)

// badJSON is a value that no business JSON may hold, with how it is refused. At is where, from the value on; "-" means that it breaks the syntax,
// which cannot be laid to one item of a batch.
var badJSON = map[string]struct{ value, code, at string }{
	"101 containers deep":           {strings.Repeat("[", 100) + strings.Repeat("]", 100), "too_deep", strings.Repeat("/0", 99)},
	"10,000 containers deep":        {strings.Repeat("[", 9999) + strings.Repeat("]", 9999), "too_deep", strings.Repeat("/0", 99)},
	"10,000 objects deep":           {strings.Repeat(`{"a":`, 9999) + "1" + strings.Repeat("}", 9999), "too_deep", strings.Repeat("/a", 99)},
	"a lone high surrogate":         {`{"a":"x\ud800y"}`, "lone_surrogate", "/a"},
	"a lone low surrogate":          {`["\udc00"]`, "lone_surrogate", "/0"},
	"surrogates in wrong order":     {`"\udc00\ud800"`, "lone_surrogate", ""},
	"a lone surrogate in a name":    {`{"\ud83d":1}`, "lone_surrogate", ""},
	"a key twice":                   {`{"a":1,"b":2,"a":1}`, "duplicate_key", "/a"},
	"a key twice by escapes":        {`{"a":{"key":1,"k\u0065y":2}}`, "duplicate_key", "/a/key"},
	"1e400":                         {`{"n":1e400}`, "number_out_of_range", "/n"},
	"-1e309":                        {`[-1e309]`, "number_out_of_range", "/0"},
	"1.7976931348623158e308":        {`1.7976931348623158e308`, "number_out_of_range", ""},
	"an integer of 310 digits":      {strings.Repeat("9", 310), "number_out_of_range", ""},
	"a number of 1,001 digits":      {"0." + strings.Repeat("1", 1000), "number_too_long", ""},
	"an exponent of 1,001 digits":   {"1e-" + strings.Repeat("1", 1001), "number_too_long", ""},
	"invalid UTF-8":                 {"{\"a\":\"\xff\"}", "invalid_utf8", "/a"},
	"a character cut in two":        {"\"\xc3\"", "invalid_utf8", ""},
	"an overlong form":              {"\"\xc0\xaf\"", "invalid_utf8", ""},
	"a surrogate in UTF-8":          {"\"\xed\xa0\x80\"", "invalid_utf8", ""},
	"a control character":           {"\"a\nb\"", "invalid_json", "-"},
	"NaN":                           {`NaN`, "invalid_json", "-"},
	"a leading zero":                {`01`, "invalid_json", "-"},
	"a comma too many":              {`[1,]`, "invalid_json", "-"},
	"an escape that does not exist": {`"\x41"`, "invalid_json", "-"},
	"single quotes":                 {`{'a':1}`, "invalid_json", "-"},
	"a comment":                     {`/* a */ 1`, "invalid_json", "-"},
}

// wantFault fails t unless the problem has exactly one fault, of that code at that place.
func wantFault(t testing.TB, p harness.Problem, pointer, code string) {
	t.Helper()
	if len(p.Errors) != 1 || p.Errors[0].Code != code || pointer != "-" && p.Errors[0].Pointer != pointer || p.Errors[0].Detail == "" || p.Detail == "" {
		t.Errorf("refused with %+v (%s), want %s at %s", p.Errors, p.Detail, code, pointer)
	}
}

func TestBadJSONIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	cases := 0
	for name, c := range badJSON {
		cases++
		t.Run(name, func(t *testing.T) {
			since := ledger(t, o)
			at := func(member string) string {
				if c.at == "-" {
					return "-"
				}
				return member + c.at
			}
			p := o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","payload":`+c.value+`}`, harness.Key("k")).WantProblem(t, 400, "invalid_request")
			wantFault(t, p, at("/payload"), c.code)
			item := func(key, payload string) string {
				return `{"queue":"q","type":"t","idempotency_key":"` + key + `","payload":` + payload + `}`
			}
			if c.at == "-" {
				p := o.Call("POST", "/v1/tasks:batch", `{"items":[`+item("a", "1")+`,`+item("b", c.value)+`]}`).WantProblem(t, 400, "invalid_request")
				wantFault(t, p, "-", c.code)
				wantLedger(t, o, since)
				return
			}
			wantLedger(t, o, since)

			got := submitBatch(t, o, o.URL(), item(fmt.Sprint("before-", cases), "1"), item("bad", c.value), item(fmt.Sprint("after-", cases), "2"))
			if got[0].Status != 201 || got[2].Status != 201 || got[1].Status != 400 {
				t.Fatalf("a batch answered %+v", got)
			}
			wantFault(t, got[1].Problem.Problem, at("/payload"), c.code)
			if n := o.Count("orbit_idempotency_keys WHERE idempotency_key = 'bad'"); n != 0 {
				t.Error("the refused item left its key")
			}

			good, bad := w.run(), w.run()
			attempt := func(o offer, more string) string {
				return fmt.Sprintf(`{"attempt_id":"%s","token":"%s"%s}`, o.AttemptID, o.Token, more)
			}
			beats := rawItems(t, w, "/v1/attempts:heartbeat", attempt(good, `,"progress":1`), attempt(bad, `,"progress":`+c.value))
			wantItem(t, beats[0], 200, "")
			wantItem(t, beats[1], 400, "invalid_request")
			wantFault(t, beats[1].Problem, at("/progress"), c.code)
			if shown := getAttempt(t, o, bad.AttemptID); shown.Progress != "" {
				t.Errorf("the refused progress is kept as %s", shown.Progress)
			}
			ends := rawItems(t, w, "/v1/attempts:finish", attempt(bad, `,"outcome":"succeeded","result":`+c.value), attempt(good, `,"outcome":"succeeded","result":1`))
			wantItem(t, ends[0], 400, "invalid_request")
			wantFault(t, ends[0].Problem, at("/result"), c.code)
			wantItem(t, ends[1], 200, "")
			wantState(t, o, bad.TaskID, "running")
			if got := listEvidence(t, o, bad.AttemptID); len(got) != 0 {
				t.Errorf("the refused result is evidence: %+v", got)
			}
			wantItem(t, w.succeed(bad, `2`), 200, "")
		})
	}
}

// rawItems makes a worker's call with items as they are written.
func rawItems(t testing.TB, w *worker, path string, items ...string) []itemResult {
	t.Helper()
	var got struct{ Items []itemResult }
	body := fmt.Sprintf(`{"instance_id":"%s","epoch":%d,"items":[%s]}`, w.instance, w.epoch, strings.Join(items, ","))
	w.o.CallAt(w.url, w.key, "POST", path, body).Want(t, 200).JSON(t, &got)
	if len(got.Items) != len(items) {
		t.Fatalf("%d results for %d items", len(got.Items), len(items))
	}
	return got.Items
}

// What looks odd and is good JSON is taken, and comes back as it was sent.
func TestUnusualJSONIsTakenAsItIs(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	for i, value := range []string{
		strings.Repeat("[", 99) + strings.Repeat("]", 99),
		"1234567890123456789012345678901234567890",
		"-0", "0e5", "1E+2", "1e-400", "0.1000", "100000000000000000000.00",
		strings.Repeat("9", 308), "0." + strings.Repeat("1", 999), "1.7976931348623157e308",
		`"\ud83d\ude00"`, `"\u0000"`, `"😀 "`, `"\/\b\f"`, `{"":{"":0}}`, `{"é":1,"é":2}`, ` { "a" : [ 1 ,	2 ] } `, "null", `"\\"`,
	} {
		var r receipt
		o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","payload":`+value+`}`, harness.Key(fmt.Sprint("k", i))).Want(t, 201).JSON(t, &r)
		want := rawJSON(strings.TrimSpace(value))
		if got := getTask(t, o, r.TaskID); got.Payload != want {
			t.Errorf("read as %s, sent as %s", got.Payload, want)
		}
		offered := w.run()
		if offered.Payload != want {
			t.Errorf("offered as %s, sent as %s", offered.Payload, want)
		}
		wantItem(t, rawItems(t, w, "/v1/attempts:finish", fmt.Sprintf(`{"attempt_id":"%s","token":"%s","outcome":"succeeded","result":%s}`, offered.AttemptID, offered.Token, value))[0], 200, "")
		if got := getTask(t, o, r.TaskID); got.Result != want {
			t.Errorf("the result is read as %s, sent as %s", got.Result, want)
		}
		if got := getAttempt(t, o, offered.AttemptID); got.Result != want {
			t.Errorf("the attempt's result is read as %s, sent as %s", got.Result, want)
		}
	}
}

func TestBadEnvelopesAreRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	since := ledger(t, o)
	for name, c := range map[string]struct{ body, pointer, code string }{
		"a member twice":          {`{"queue":"q","type":"t","type":"t"}`, "/type", "duplicate_key"},
		"an unknown member":       {`{"queue":"q","type":"t","colour":"red"}`, "/colour", "unknown_field"},
		"a member of other case":  {`{"Queue":"q","type":"t"}`, "/Queue", "unknown_field"},
		"nothing":                 {``, "", "required"},
		"only white space":        {` `, "", "invalid_json"},
		"cut short":               {`{"queue":"q","type":"t"`, "-", "invalid_json"},
		"more behind it":          {`{"queue":"q","type":"t"}{}`, "-", "invalid_json"},
		"a byte order mark":       {"\ufeff" + `{"queue":"q","type":"t"}`, "", "byte_order_mark"},
		"UTF-16":                  {"{\x00}\x00", "-", "invalid_json"},
		"a lone surrogate in one": {`{"queue":"q","type":"t\ud800"}`, "/type", "lone_surrogate"},
	} {
		t.Run(name, func(t *testing.T) {
			wantFault(t, o.Call("POST", "/v1/tasks", c.body, harness.Key("k")).WantProblem(t, 400, "invalid_request"), c.pointer, c.code)
			wantLedger(t, o, since)
		})
	}
	// Several faults are told at once.
	p := o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","payload":[1e400,"\ud800",{"a":1,"a":2}]}`, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	if len(p.Errors) != 3 || p.Errors[0].Pointer != "/payload/0" || p.Errors[1].Pointer != "/payload/1" || p.Errors[2].Pointer != "/payload/2/a" {
		t.Errorf("three faults are told as %+v", p.Errors)
	}
	p = o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","priority":10,"max_attempts":0}`, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	if len(p.Errors) != 2 {
		t.Errorf("two faults are told as %+v", p.Errors)
	}
	p = o.Call("POST", "/v1/queues", `{"name":"bad name!"}`, harness.Key("k")).WantProblem(t, 400, "invalid_request")
	if want := "/name: it must be 1 to 128 characters, each one of A-Z a-z 0-9 . _ : / -"; p.Detail != want {
		t.Errorf("a bad name: %s, want %s", p.Detail, want)
	}
	for _, c := range []struct{ contentType, encoding string }{{"text/plain", ""}, {"application/xml", ""}, {"application/json", "gzip"}, {"application/merge-patch+json", ""}, {";;", ""}} {
		headers := []harness.Header{harness.Key("k"), {Name: "Content-Type", Value: c.contentType}}
		if c.encoding != "" {
			headers = append(headers, harness.Header{Name: "Content-Encoding", Value: c.encoding})
		}
		o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, headers...).WantProblem(t, 415, "unsupported_media_type")
	}
	// The one type that the operation takes is named, and no other.
	for _, c := range []struct{ method, path, contentType, takes string }{
		{"POST", "/v1/tasks", "text/plain", "application/json"},
		{"POST", "/v1/tasks", "", "application/json"},
		{"PATCH", "/v1/queues/" + queue, "text/plain", "application/merge-patch+json"},
		{"PATCH", "/v1/queues/" + queue, ";;", "application/merge-patch+json"},
	} {
		p := o.Call(c.method, c.path, `{}`, harness.Key("k"), harness.Header{Name: "If-Match", Value: `"1"`}, harness.Header{Name: "Content-Type", Value: c.contentType}).WantProblem(t, 415, "unsupported_media_type")
		if !strings.Contains(p.Detail, " as "+c.takes+",") || strings.Count(p.Detail, "application/") != 1 {
			t.Errorf("%s with %q: %s", c.method, c.contentType, p.Detail)
		}
	}
	wantLedger(t, o, since)
	o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key("k"), harness.Header{Name: "Content-Type", Value: "application/json; charset=utf-8"}).Want(t, 201)
}

func TestBadIdempotencyKeysAreRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	id := submit(t, o, "q")
	since := ledger(t, o)
	for name, keys := range map[string][]string{
		"two headers":             {"a", "b"},
		"the same one twice":      {"a", "a"},
		"not ASCII":               {"schlüssel"},
		"UTF-8 and ASCII":         {"key-\u00a0"},
		"with a space":            {"a b"},
		"with a tab":              {"a\tb"},
		"of 129 characters":       {strings.Repeat("k", 129)},
		"quoted of 129":           {`"` + strings.Repeat("k", 129) + `"`},
		"quoted and not ASCII":    {`"ü"`},
		"quoted and with a space": {`"a b"`},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []harness.Header
			for _, k := range keys {
				headers = append(headers, harness.Key(k))
			}
			for _, call := range [][2]string{{"/v1/tasks", `{"queue":"q","type":"t"}`}, {"/v1/queues", `{"name":"q2"}`}, {"/v1/queues/" + queue + ":pause", `{"reason":"x"}`}, {"/v1/tasks/" + id + ":cancel", `{}`},
				{"/v1/credentials", `{"name":"n","actions":["*"],"queues":[]}`}} {
				p := o.Call("POST", call[0], call[1], headers...).WantProblem(t, 400, "invalid_request")
				if len(p.Errors) != 1 || p.Errors[0].Pointer != "header/Idempotency-Key" {
					t.Errorf("%s: refused with %+v", call[0], p.Errors)
				}
			}
			wantLedger(t, o, since)
		})
	}
	for name, keys := range map[string][]harness.Header{"no header": nil, "an empty one": {harness.Key("")}, "an empty quoted one": {harness.Key(`""`)}} {
		t.Run(name, func(t *testing.T) {
			o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, keys...).WantProblem(t, 400, "idempotency_missing")
			wantLedger(t, o, since)
		})
	}
	t.Run("of an item", func(t *testing.T) {
		good := `{"queue":"q","type":"t","idempotency_key":"good"}`
		got := submitBatch(t, o, o.URL(), `{"queue":"q","type":"t","idempotency_key":""}`, `{"queue":"q","type":"t","idempotency_key":"schlüssel"}`, good,
			`{"queue":"q","type":"t","idempotency_key":"a b"}`, `{"queue":"q","type":"t","idempotency_key":"`+strings.Repeat("k", 129)+`"}`, `{"queue":"q","type":"t"}`, `{"queue":"q","type":"t","idempotency_key":7}`)
		for i, r := range got {
			if i == 2 {
				if r.Status != 201 {
					t.Errorf("the good item answered %+v", r)
				}
				continue
			}
			if r.Status != 400 || len(r.Problem.Errors) != 1 || r.Problem.Errors[0].Pointer != "/idempotency_key" {
				t.Errorf("item %d answered %+v", i, r)
			}
		}
	})
	// The greatest key and the oddest are keys; only the quotes of a whole string are not part of one.
	for _, key := range []string{strings.Repeat("k", 128), "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", `a"b`, `"a`, "~"} {
		o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(key)).Want(t, 201)
		wantKey(t, o, "submitTask", key, "done")
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if r := o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(quoted)).Want(t, 201); !replayed(r) {
			t.Errorf("%s and %s are two keys", key, quoted)
		}
	}
}

// endless is a body of n bytes whose length is not said before.
func endless(t testing.TB, o *harness.Orbit, path string, body io.Reader) harness.Reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.URL()+path, io.MultiReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.Key)
	req.Header.Set("Idempotency-Key", "k")
	if strings.HasSuffix(path, ":batch") {
		req.Header.Del("Idempotency-Key")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return harness.Reply{Status: resp.StatusCode, Header: resp.Header, Body: raw}
}

func TestBodiesOverTheLimitAreRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	single := func(n int) string { return `{"queue":"q","type":"t","payload":` + text(n) + `}` }
	item := func(key string, n int) string {
		return `{"queue":"q","type":"t","idempotency_key":"` + key + `","payload":` + text(n) + `}`
	}
	since := ledger(t, o)
	const mib = 1 << 20
	o.Call("POST", "/v1/tasks", single(9*mib), harness.Key("k")).WantProblem(t, 413, "payload_too_large")
	endless(t, o, "/v1/tasks", strings.NewReader(single(9*mib))).WantProblem(t, 413, "payload_too_large")
	o.Call("POST", "/v1/tasks", single(8*mib+1), harness.Key("k")).WantProblem(t, 413, "payload_too_large")
	whole := `{"items":[` + item("a", 8*mib) + "," + item("b", 8*mib) + "," + item("c", 8*mib) + "," + item("d", 8*mib) + `]}`
	o.Call("POST", "/v1/tasks:batch", whole).WantProblem(t, 413, "payload_too_large")
	endless(t, o, "/v1/tasks:batch", strings.NewReader(whole)).WantProblem(t, 413, "payload_too_large")
	wantLedger(t, o, since)

	got := submitBatch(t, o, o.URL(), item("a", 10), item("b", 8*mib+1), item("c", 8*mib), item("d", 9*mib))
	for i, status := range []int{201, 413, 201, 413} {
		if got[i].Status != status || status == 413 && got[i].Problem.Code != "payload_too_large" {
			t.Errorf("item %d answered %d %+v", i, got[i].Status, got[i].Problem)
		}
	}
	good, bad := w.run(), w.run()
	attempt := func(o offer, more string) string {
		return fmt.Sprintf(`{"attempt_id":"%s","token":"%s"%s}`, o.AttemptID, o.Token, more)
	}
	beats := rawItems(t, w, "/v1/attempts:heartbeat", attempt(bad, `,"progress":`+text(64<<10+1)), attempt(good, `,"progress":`+text(64<<10)))
	wantItem(t, beats[0], 413, "payload_too_large")
	wantItem(t, beats[1], 200, "")
	if a, b := getAttempt(t, o, bad.AttemptID), getAttempt(t, o, good.AttemptID); a.Progress != "" || len(b.Progress) != 64<<10 {
		t.Errorf("progress of %d and %d bytes is kept, want none and 65,536", len(a.Progress), len(b.Progress))
	}
	ends := rawItems(t, w, "/v1/attempts:finish", attempt(bad, `,"outcome":"succeeded","result":`+text(8*mib+1)), attempt(good, `,"outcome":"succeeded","result":`+text(8*mib)))
	wantItem(t, ends[0], 413, "payload_too_large")
	wantItem(t, ends[1], 200, "")
	wantState(t, o, bad.TaskID, "running")
	if done := wantState(t, o, good.TaskID, "succeeded"); len(done.Result) != 8*mib {
		t.Errorf("the result has %d bytes", len(done.Result))
	}
}

// A list knows its limit and its cursors, and refuses others.
func TestBadPagesAreRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	queue := o.CreateQueue("q", nil)
	o.CreateQueue("q2", nil)
	w := openWorker(t, o, "w", "q")
	for i := range 2 {
		submit(t, o, "q")
		createCredential(t, o, fmt.Sprintf(`{"name":"n%d","actions":["*"],"queues":["*"]}`, i))
	}
	offered := w.run()
	openWorker(t, o, "w2", "q")
	wantItem(t, w.fail(offered, true), 200, "")
	o.Advance(time.Hour)
	o.Pass("promote_scheduled")
	retried := w.run()
	for retried.TaskID != offered.TaskID {
		wantItem(t, w.succeed(retried, `1`), 200, "")
		retried = w.run()
	}
	wantItem(t, w.succeed(retried, `1`), 200, "")
	wantItem(t, w.succeed(retried, `2`), 409, "result_conflict")
	wantItem(t, w.succeed(retried, `3`), 409, "result_conflict")

	lists := []string{"/v1/tasks?", "/v1/tasks?type=test.kind&", "/v1/queues?", "/v1/workers?", "/v1/credentials?", "/v1/audit-events?", "/v1/audit-events?action=createQueue&",
		"/v1/tasks/" + offered.TaskID + "/attempts?", "/v1/attempts/" + retried.AttemptID + "/evidence?", "/v1/tasks?queue_id=" + queue + "&"}
	cursors := map[string]string{}
	for _, path := range lists {
		for _, limit := range []string{"-1", "0", "-9223372036854775808", "1.5", "x", "99999999999999999999", "1&limit=2", ""} {
			p := o.Call("GET", path+"limit="+limit, nil).WantProblem(t, 400, "invalid_request")
			if len(p.Errors) != 1 || p.Errors[0].Pointer != "query/limit" {
				t.Errorf("%slimit=%s: refused with %+v", path, limit, p.Errors)
			}
		}
		o.Call("GET", path+"limit=1000000", nil).Want(t, 200)
		var page list
		if o.Call("GET", path+"limit=1", nil).Want(t, 200).JSON(t, &page); page.NextCursor == "" {
			t.Fatalf("%s: everything is on the first page, so that nothing can be tested", path)
		}
		cursors[path] = page.NextCursor
	}
	for of, cursor := range cursors {
		for _, path := range lists {
			call := path + "limit=1&cursor=" + url.QueryEscape(cursor)
			if path == of {
				o.Call("GET", call, nil).Want(t, 200)
				continue
			}
			o.Call("GET", call, nil).WantProblem(t, 400, "cursor_invalid")
		}
		for _, spoiled := range []string{cursor[:len(cursor)-1], cursor + "A", "B" + cursor[1:], cursor + "=", strings.ToUpper(cursor), "../" + cursor, "%00", "ü"} {
			if r := o.Call("GET", of+"cursor="+url.QueryEscape(spoiled), nil); r.Status != 400 {
				t.Errorf("%scursor=%s: %d %s", of, spoiled, r.Status, r.Body)
			}
		}
	}
}

func TestBadPathsAndMethodsAreRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := strings.Repeat("0", 32)
	for _, path := range []string{"/", "/v1", "/v1/", "/v2/tasks", "/v1/task", "/v1/tasks/" + id + "/", "/v1/tasks/" + id + ":explode", "/v1/tasks//attempts", "/v1/../etc/passwd", "/v1/tasks/" + id + "/attempts/x"} {
		r := o.Call("GET", path, nil)
		if r.Status != 404 && r.Status != 405 && r.Status != 400 {
			t.Errorf("GET %s: %d %s", path, r.Status, r.Body)
			continue
		}
		r.WantProblem(t, r.Status, map[int]string{404: "not_found", 405: "method_not_allowed", 400: "invalid_request"}[r.Status])
	}
	for _, bad := range []string{"x", strings.Repeat("0", 31), strings.Repeat("0", 33), strings.Repeat("A", 32), strings.Repeat("g", 32), "%00", "..%2f..", strings.Repeat("ä", 16)} {
		p := o.Call("GET", "/v1/tasks/"+url.PathEscape(bad), nil).WantProblem(t, 400, "invalid_request")
		if len(p.Errors) != 1 || p.Errors[0].Pointer != "path/task_id" {
			t.Errorf("%s: refused with %+v", bad, p.Errors)
		}
	}
	for _, c := range [][3]string{{"DELETE", "/v1/tasks/" + id, "GET"}, {"PUT", "/v1/tasks", "GET,POST"}, {"GET", "/v1/tasks:batch", "POST"}, {"OPTIONS", "/v1/credential", "GET"}, {"POST", "/v1/workers", "GET"}} {
		r := o.Call(c[0], c[1], nil)
		r.WantProblem(t, 405, "method_not_allowed")
		if got := strings.ReplaceAll(r.Header.Get("Allow"), " ", ""); got != c[2] {
			t.Errorf("%s %s: Allow %q, want %q", c[0], c[1], got, c[2])
		}
	}
	for given, echoed := range map[string]bool{"ticket-7": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false, "a b": false, "ü": false, "": false} {
		r := o.Call("GET", "/v1/tasks/"+id, nil, harness.Header{Name: "X-Request-Id", Value: given})
		p := r.WantProblem(t, 404, "not_found")
		if got := r.Header.Get("X-Request-Id"); got == "" || (got == given) != echoed || p.RequestID != got {
			t.Errorf("the id %q came back as %q and %q", given, got, p.RequestID)
		}
	}
}

// What a worker may get wrong about an attempt harms neither the attempt nor its neighbours in the call.
func TestBadTokensAndEpochsAreRefused(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", map[string]any{"unknown_outcome": "retry"})
	w := openWorker(t, o, "w", "q")
	for range 4 {
		submit(t, o, "q")
	}
	good, bad, released := w.run(), w.run(), w.claimOne()
	wantItem(t, w.release(released, "shutdown"), 200, "")
	attempt := func(id, token string) string { return fmt.Sprintf(`{"attempt_id":"%s","token":"%s"`, id, token) }
	neighbour := attempt(good.AttemptID, good.Token)
	unknown := orbit.NewID(time.Now()).String()
	for name, c := range map[string]struct {
		item, code string
		status     int
	}{
		"a token of another attempt": {attempt(bad.AttemptID, good.Token), "stale_attempt", 409},
		"no such token":              {attempt(bad.AttemptID, orbit.NewToken().Text()), "stale_attempt", 409},
		"not a token":                {attempt(bad.AttemptID, "hunter2"), "stale_attempt", 409},
		"a stale token":              {attempt(released.AttemptID, released.Token), "stale_attempt", 409},
		"no such attempt":            {attempt(unknown, bad.Token), "not_found", 404},
		"no id":                      {attempt("x", bad.Token), "invalid_request", 400},
		"an empty token":             {attempt(bad.AttemptID, ""), "invalid_request", 400},
	} {
		t.Run(name, func(t *testing.T) {
			for path, more := range map[string]string{"/v1/attempts:start": "}", "/v1/attempts:heartbeat": `,"progress":1}`, "/v1/attempts:finish": `,"outcome":"succeeded","result":1}`, "/v1/attempts:release": "}"} {
				neighbours := []string{c.item + more}
				if path != "/v1/attempts:finish" && path != "/v1/attempts:release" {
					neighbours = append(neighbours, neighbour+more)
				}
				if path == "/v1/attempts:release" && name == "a stale token" {
					continue // that is the repeat of its release
				}
				got := rawItems(t, w, path, neighbours...)
				wantItem(t, got[0], c.status, c.code)
				if len(got) == 2 {
					wantItem(t, got[1], 200, "")
				}
			}
			wantState(t, o, bad.TaskID, "running")
			if got := getAttempt(t, o, bad.AttemptID); got.Progress != "" || len(listEvidence(t, o, bad.AttemptID)) != 0 {
				t.Errorf("the attempt was touched: %+v", got)
			}
		})
	}
	t.Run("an old epoch", func(t *testing.T) {
		newer := openWorker(t, o, "w", "q")
		since := ledger(t, o)
		for path, body := range map[string]string{
			"/v1/claims":             `"claim_seq":99,"max":1`,
			"/v1/attempts:start":     `"items":[` + neighbour + `}]`,
			"/v1/attempts:heartbeat": `"items":[` + neighbour + `}]`,
			"/v1/attempts:release":   `"items":[` + neighbour + `}]`,
		} {
			o.Call("POST", path, fmt.Sprintf(`{"instance_id":"%s","epoch":%d,%s}`, w.instance, w.epoch, body)).WantProblem(t, 409, "session_superseded")
			o.Call("POST", path, fmt.Sprintf(`{"instance_id":"%s","epoch":%d,%s}`, newer.instance, w.epoch, body)).WantProblem(t, 409, "session_superseded")
			o.Call("POST", path, fmt.Sprintf(`{"instance_id":"%s","epoch":%d,%s}`, newer.instance, newer.epoch+1, body)).WantProblem(t, 409, "session_superseded")
		}
		wantLedger(t, o, since)
		if offered := newer.claimOne(); offered.TaskID == good.TaskID || offered.TaskID == bad.TaskID {
			t.Error("a running task was offered")
		}
	})
}
