package integration_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"
)

// zoo is a queue with a task in every state and everything that hangs on them.
type zoo struct {
	queue, queueName string
	tasks            map[string]string // by state
	attempts         map[string]offer  // by state of the attempt
	evidence         string            // of the succeeded attempt
	instance         string
	schedule         string
	epoch            int64
}

// newZoo makes a zoo with a credential, which then is the first one's no more.
func newZoo(t *testing.T, o *harness.Orbit, key, name string) zoo {
	t.Helper()
	first := o.Key
	o.Key = key
	defer func() { o.Key = first }()
	z := zoo{queueName: name, tasks: map[string]string{}, attempts: map[string]offer{}}
	z.queue = o.CreateQueue(name, map[string]any{"offer_timeout_ms": 3_600_000, "lease_ms": 5000, "backoff_initial_ms": 0})
	z.schedule = createSchedule(t, o, everyMinute("s-"+name, "task", map[string]any{"queue": name, "type": "t"})).ID
	w := openWorker(t, o, "worker-"+name, name)
	z.instance, z.epoch = w.instance, w.epoch
	run := func(state string) offer {
		submit(t, o, name)
		a := w.run()
		z.tasks[state], z.attempts[state] = a.TaskID, a
		return a
	}
	run("review")
	o.StayFresh(6 * time.Second)
	o.Pass("recover_leases")
	wantState(t, o, z.tasks["review"], "review")
	o.Call("PATCH", "/v1/queues/"+z.queue, `{"lease_ms":3600000}`, mergePatch, ifMatch(`"1"`)).Want(t, 200)
	succeeded := run("succeeded")
	wantItem(t, w.succeed(succeeded, `1`), 200, "")
	got := w.succeed(succeeded, `2`)
	wantItem(t, got, 409, "result_conflict")
	z.evidence = got.EvidenceID
	wantItem(t, w.fail(run("failed"), false), 200, "")
	run("running")
	submit(t, o, name)
	z.attempts["offered"] = w.claimOne()
	z.tasks["offered"] = z.attempts["offered"].TaskID
	z.tasks["queued"] = submit(t, o, name)
	z.tasks["scheduled"] = submit(t, o, name, "delay_ms", 3_600_000)
	z.tasks["cancelled"] = submit(t, o, name)
	o.Call("POST", "/v1/tasks/"+z.tasks["cancelled"]+":cancel", nil, harness.Key("zoo")).Want(t, 200)
	for state, id := range z.tasks {
		if shown := strings.Replace(state, "scheduled", "queued", 1); shown != wantState(t, o, id, shown).State {
			t.Fatal(state)
		}
	}
	return z
}

// wallCall is a call about something; {id} stands for it.
type wallCall struct {
	name, method, path, body string
	keyed, matched           bool // takes an Idempotency-Key, an If-Match
}

// manners are the ways to make a call: as it should be, and with what it needs missing or wrong.
func (c wallCall) manners() map[string][]harness.Header {
	ways := map[string][]harness.Header{"": nil}
	if c.method == "PATCH" {
		ways[""] = append(ways[""], mergePatch)
	}
	extend := func(name string, values map[string]string) {
		longer := map[string][]harness.Header{}
		for way, headers := range ways {
			for what, value := range values {
				if value == "" {
					longer[way+what] = headers
				} else {
					longer[way+what] = append(slices.Clone(headers), harness.Header{Name: name, Value: value})
				}
			}
		}
		ways = longer
	}
	if c.keyed {
		extend("Idempotency-Key", map[string]string{"": "*", ", no key": "", ", a bad key": "a b"})
	}
	if c.matched {
		extend("If-Match", map[string]string{"": `"1-1-0"`, ", no If-Match": "", ", a bad If-Match": "W/1"})
	}
	return ways
}

// wall is what stands between a caller and what it must not see.
type wall struct {
	t     *testing.T
	o     *harness.Orbit
	key   string
	calls int
}

// answer is the reply to a call about id, without what names the request and the id.
func (w *wall) answer(c wallCall, headers []harness.Header, id string) string {
	w.t.Helper()
	w.calls++
	sent := slices.Clone(headers)
	for i, h := range sent {
		if h.Value == "*" {
			sent[i].Value = fmt.Sprint("wall-", w.calls)
		}
	}
	var body any
	if c.body != "" {
		body = strings.ReplaceAll(c.body, "{id}", id)
	}
	r := w.o.CallAt(w.o.URL(), w.key, c.method, strings.ReplaceAll(c.path, "{id}", id), body, sent...)
	request := r.Header.Get("X-Request-Id")
	header := http.Header{}
	for name, values := range r.Header {
		if name != "Date" {
			header[name] = values
		}
	}
	return strings.NewReplacer(request, "REQUEST", id, "ID").Replace(fmt.Sprintf("%d %v\n%s", r.Status, header, r.Body))
}

// hides fails the test unless the call answers about each hidden thing as it does about one that does not exist.
func (w *wall) hides(c wallCall, absent string, hidden map[string]string) {
	w.t.Helper()
	for way, headers := range c.manners() {
		want := w.answer(c, headers, absent)
		for what, id := range hidden {
			if got := w.answer(c, headers, id); got != want {
				w.t.Errorf("%s%s: about %s it answers\n%s\nabout nothing\n%s", c.name, way, what, got, want)
				break
			}
		}
	}
}

func TestWhatIsHiddenAnswersAsIfItWereNotThere(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	_, stranger := o.Tenant("other")
	hidden := newZoo(t, o, o.Key, "hidden")
	foreign := newZoo(t, o, stranger, "abroad")
	mine := newZoo(t, o, o.Key, "open")
	me := createCredential(t, o, `{"name":"me","actions":["*"],"queues":["open"]}`)
	var foreignCredential list
	o.CallAt(o.URL(), stranger, "GET", "/v1/credentials", nil).Want(t, 200).JSON(t, &foreignCredential)
	absent := orbit.NewID(time.Now()).String()
	w := &wall{t: t, o: o, key: me.Key}
	// A credential of the actor whose keys and workers the hidden ones are, with fewer queues.
	var owner struct {
		ActorID string `json:"actor_id"`
	}
	o.Call("GET", "/v1/credential", nil).Want(t, 200).JSON(t, &owner)
	sibling := &wall{t: t, o: o, calls: 1_000_000, key: createCredential(t, o, `{"name":"sibling","actor_id":"`+owner.ActorID+`","actions":["*"],"queues":["open"]}`).Key}
	const acts = "orbit_audit_events WHERE action IN ('retryTask', 'resolveTask', 'updateQueue', 'pauseQueue', 'resumeQueue', 'rotateCredential', 'revokeCredential') AND outcome = 'done'"
	before := o.Count(acts)

	queues := map[string]string{"a hidden queue": hidden.queue, "a foreign queue": foreign.queue}
	tasks, attempts, evidence := map[string]string{}, map[string]string{}, map[string]string{"hidden evidence": hidden.evidence, "foreign evidence": foreign.evidence}
	for name, z := range map[string]zoo{"hidden": hidden, "foreign": foreign} {
		for state, id := range z.tasks {
			tasks["a "+name+" task, "+state] = id
		}
		for state, a := range z.attempts {
			attempts["a "+name+" attempt, "+state] = a.AttemptID
		}
	}

	for _, c := range []wallCall{
		{"getQueue", "GET", "/v1/queues/{id}", "", false, false},
		{"updateQueue", "PATCH", "/v1/queues/{id}", `{"max_attempts":3}`, false, true},
		{"updateQueue with a bad body", "PATCH", "/v1/queues/{id}", `{"max_attempts":0}`, false, true},
		{"pauseQueue", "POST", "/v1/queues/{id}:pause", `{"reason":"x"}`, true, false},
		{"pauseQueue without a reason", "POST", "/v1/queues/{id}:pause", `{}`, true, false},
		{"resumeQueue", "POST", "/v1/queues/{id}:resume", ``, true, false},
		{"getQueueDepth", "GET", "/v1/queues/{id}/depth", "", false, false},
		{"listTasks", "GET", "/v1/tasks?queue_id={id}", "", false, false},
		{"listTasks by state", "GET", "/v1/tasks?queue_id={id}&state=running", "", false, false},
		{"submitTask", "POST", "/v1/tasks", `{"queue_id":"{id}","type":"t"}`, true, false},
		{"submitTask with a late deadline", "POST", "/v1/tasks", `{"queue_id":"{id}","type":"t","deadline_at":"2001-01-01T00:00:00Z"}`, true, false},
		{"submitTasks", "POST", "/v1/tasks:batch", `{"items":[{"queue_id":"{id}","type":"t","idempotency_key":"wall"}]}`, false, false},
		{"openWorkerSession", "POST", "/v1/worker-sessions", `{"worker_name":"wall","instance_id":"` + absent + `","queues":["{id}"],"types":[],"slots":1}`, false, false},
		{"claimTasks of a queue", "POST", "/v1/claims", `{"instance_id":"` + mine.instance + `","epoch":1,"claim_seq":90,"max":1,"queues":["{id}"]}`, false, false},
		{"createSchedule by queue id", "POST", "/v1/schedules", `{"name":"wall","timetable":{"cron":"@daily"},"task":{"queue_id":"{id}","type":"t"}}`, true, false},
		{"lookupIdempotencyKey of pauseQueue", "GET", "/v1/idempotency-keys?operation=pauseQueue&key=zoo&path=/v1/queues/{id}:pause", "", false, false},
	} {
		w.hides(c, absent, queues)
		sibling.hides(c, absent, queues)
	}
	schedules := map[string]string{"a hidden schedule": hidden.schedule, "a foreign schedule": foreign.schedule}
	definition := `"timetable":{"cron":"@daily"},"task":{"queue":"open","type":"t"}`
	for _, c := range []wallCall{
		{"getSchedule", "GET", "/v1/schedules/{id}", "", false, false},
		{"updateSchedule", "PUT", "/v1/schedules/{id}", "{" + definition + "}", false, true},
		{"updateSchedule with a bad body", "PUT", "/v1/schedules/{id}", "{}", false, true},
		{"pauseSchedule", "POST", "/v1/schedules/{id}:pause", `{"reason":"x"}`, true, false},
		{"resumeSchedule", "POST", "/v1/schedules/{id}:resume", "", true, false},
		{"archiveSchedule", "POST", "/v1/schedules/{id}:archive", `{"reason":"x"}`, true, false},
		{"triggerSchedule", "POST", "/v1/schedules/{id}:trigger", "", true, false},
		{"backfillSchedule", "POST", "/v1/schedules/{id}:backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:01:00Z"}`, true, false},
		{"previewSchedule", "POST", "/v1/schedules:preview", `{"schedule_id":"{id}"}`, false, false},
		{"listScheduleVersions", "GET", "/v1/schedules/{id}/versions", "", false, false},
		{"getScheduleVersion", "GET", "/v1/schedules/{id}/versions/1", "", false, false},
		{"listScheduleOccurrences", "GET", "/v1/schedules/{id}/occurrences", "", false, false},
		{"lookupIdempotencyKey of pauseSchedule", "GET", "/v1/idempotency-keys?operation=pauseSchedule&key=zoo&path=/v1/schedules/{id}:pause", "", false, false},
		{"voidIdempotencyKey of pauseSchedule", "POST", "/v1/idempotency-keys:void", `{"operation":"pauseSchedule","key":"wall","path":"/v1/schedules/{id}:pause"}`, false, false},
	} {
		w.hides(c, absent, schedules)
		sibling.hides(c, absent, schedules)
	}
	names := map[string]string{"a hidden queue's name": hidden.queueName, "a foreign queue's name": foreign.queueName} // as long as the absent one
	for _, c := range []wallCall{
		{"submitTask by name", "POST", "/v1/tasks", `{"queue":"{id}","type":"t"}`, true, false},
		{"submitTasks by name", "POST", "/v1/tasks:batch", `{"items":[{"queue":"{id}","type":"t","idempotency_key":"wall"}]}`, false, false},
		{"listQueues by name", "GET", "/v1/queues?name={id}", "", false, false},
		{"createQueue", "POST", "/v1/queues", `{"name":"{id}"}`, true, false},
		{"openWorkerSession by name", "POST", "/v1/worker-sessions", `{"worker_name":"wall","instance_id":"` + absent + `","queues":["{id}"],"types":[],"slots":1}`, false, false},
		{"claimTasks by name", "POST", "/v1/claims", `{"instance_id":"` + mine.instance + `","epoch":1,"claim_seq":90,"max":1,"queues":["{id}"]}`, false, false},
	} {
		w.hides(c, "absent", names)
		sibling.hides(c, "absent", names)
	}
	for _, c := range []wallCall{
		{"getTask", "GET", "/v1/tasks/{id}", "", false, false},
		{"listTaskAttempts", "GET", "/v1/tasks/{id}/attempts", "", false, false},
		{"listTaskAttempts with a bad cursor", "GET", "/v1/tasks/{id}/attempts?cursor=x", "", false, false},
		{"cancelTask", "POST", "/v1/tasks/{id}:cancel", "", true, true},
		{"retryTask", "POST", "/v1/tasks/{id}:retry", `{"max_attempts":1}`, true, true},
		{"resolveTask", "POST", "/v1/tasks/{id}:resolve", `{"resolution":"fail","reason":"x"}`, true, true},
		{"resolveTask by evidence", "POST", "/v1/tasks/{id}:resolve", `{"resolution":"accept_evidence","evidence_id":"` + mine.evidence + `","reason":"x"}`, true, true},
		{"lookupIdempotencyKey of cancelTask", "GET", "/v1/idempotency-keys?operation=cancelTask&key=zoo&path=/v1/tasks/{id}:cancel", "", false, false},
		{"voidIdempotencyKey of cancelTask", "POST", "/v1/idempotency-keys:void", `{"operation":"cancelTask","key":"wall","path":"/v1/tasks/{id}:cancel"}`, false, false},
	} {
		w.hides(c, absent, tasks)
		sibling.hides(c, absent, tasks)
	}
	worker := fmt.Sprintf(`{"instance_id":"%s","epoch":%d,`, mine.instance, mine.epoch)
	item := `"items":[{"attempt_id":"{id}","token":"` + orbit.NewToken().Text() + `"`
	for _, c := range []wallCall{
		{"getAttempt", "GET", "/v1/attempts/{id}", "", false, false},
		{"listAttemptEvidence", "GET", "/v1/attempts/{id}/evidence", "", false, false},
		{"getEvidence of an attempt", "GET", "/v1/attempts/{id}/evidence/" + mine.evidence, "", false, false},
	} {
		w.hides(c, absent, attempts)
		sibling.hides(c, absent, attempts)
	}
	for _, c := range []wallCall{
		{"getEvidence", "GET", "/v1/attempts/" + mine.attempts["succeeded"].AttemptID + "/evidence/{id}", "", false, false},
		{"resolveTask by hidden evidence", "POST", "/v1/tasks/" + mine.tasks["review"] + ":resolve", `{"resolution":"accept_evidence","evidence_id":"{id}","reason":"x"}`, true, true},
	} {
		w.hides(c, absent, evidence)
		sibling.hides(c, absent, evidence)
	}
	// The instance is the first credential's, whose actor has all queues: what it is told about attempts of another tenant.
	foreignAttempts := map[string]string{}
	for what, id := range attempts {
		if strings.Contains(what, "foreign") {
			foreignAttempts[what] = id
		}
	}
	whole := &wall{t: t, o: o, key: o.Key}
	own := createWorker(t, o, me.Key)
	for _, c := range []wallCall{
		{"startAttempts", "POST", "/v1/attempts:start", item + `}]}`, false, false},
		{"heartbeatAttempts", "POST", "/v1/attempts:heartbeat", item + `,"progress":1}]}`, false, false},
		{"finishAttempts", "POST", "/v1/attempts:finish", item + `,"outcome":"succeeded","result":1}]}`, false, false},
		{"releaseAttempts", "POST", "/v1/attempts:release", item + `}]}`, false, false},
	} {
		body := c.body
		c.body = worker + body
		whole.hides(c, absent, foreignAttempts)
		sibling.hides(c, absent, attempts)
		c.body = own + body
		w.hides(c, absent, attempts)
	}
	instances := map[string]string{"a foreign instance": foreign.instance, "another actor's instance": hidden.instance}
	for _, c := range []wallCall{
		{"closeWorkerSession", "POST", "/v1/worker-sessions:close", `{"instance_id":"{id}","epoch":1}`, false, false},
		{"claimTasks", "POST", "/v1/claims", `{"instance_id":"{id}","epoch":1,"claim_seq":1,"max":1}`, false, false},
		{"claimTasks of a queue by an instance", "POST", "/v1/claims", `{"instance_id":"{id}","epoch":1,"claim_seq":1,"max":1,"queues":["open"]}`, false, false},
		{"startAttempts by an instance", "POST", "/v1/attempts:start", `{"instance_id":"{id}","epoch":1,` + strings.ReplaceAll(item, "{id}", absent) + `}]}`, false, false},
		{"heartbeatAttempts by an instance", "POST", "/v1/attempts:heartbeat", `{"instance_id":"{id}","epoch":1,"items":[]}`, false, false},
		{"finishAttempts by an instance", "POST", "/v1/attempts:finish", `{"instance_id":"{id}","epoch":1,` + strings.ReplaceAll(item, "{id}", absent) + `,"outcome":"succeeded"}]}`, false, false},
		{"releaseAttempts by an instance", "POST", "/v1/attempts:release", `{"instance_id":"{id}","epoch":1,` + strings.ReplaceAll(item, "{id}", absent) + `}]}`, false, false},
		{"releaseAttempts of a claim", "POST", "/v1/attempts:release", `{"instance_id":"{id}","epoch":1,"claim_seq":1}`, false, false},
	} {
		w.hides(c, absent, instances)
	}
	credentials := map[string]string{"a foreign credential": foreignCredential.Items[0].ID}
	for _, c := range []wallCall{
		{"getCredentialById", "GET", "/v1/credentials/{id}", "", false, false},
		{"rotateCredential", "POST", "/v1/credentials/{id}:rotate", `{}`, true, false},
		{"revokeCredential", "POST", "/v1/credentials/{id}:revoke", `{"reason":"x"}`, true, false},
		{"lookupIdempotencyKey of rotateCredential", "GET", "/v1/idempotency-keys?operation=rotateCredential&key=zoo&path=/v1/credentials/{id}:rotate", "", false, false},
		{"listAuditEvents", "GET", "/v1/audit-events?target_id={id}", "", false, false},
		{"listAuditEvents of an actor", "GET", "/v1/audit-events?actor_id={id}", "", false, false},
	} {
		w.hides(c, absent, credentials)
	}
	w.hides(wallCall{"listAuditEvents of a task", "GET", "/v1/audit-events?target_id={id}", "", false, false}, absent, map[string]string{"a foreign task": foreign.tasks["cancelled"]})

	// And none of it was touched.
	for key, z := range map[string]zoo{o.Key: hidden, stranger: foreign} {
		for state, id := range z.tasks {
			var got task
			o.CallAt(o.URL(), key, "GET", "/v1/tasks/"+id, nil).Want(t, 200).JSON(t, &got)
			if shown := strings.Replace(state, "scheduled", "queued", 1); got.State != shown {
				t.Errorf("a %s task has become %s", shown, got.State)
			}
		}
	}
	if n := o.Count(acts) - before; n != 0 {
		t.Errorf("%d acts were done through the wall", n)
	}
}

// createWorker opens a worker session of a credential and answers the beginning of its calls.
func createWorker(t testing.TB, o *harness.Orbit, key string) string {
	t.Helper()
	w := openWorker(t, o, "unused", "open")
	w.key, w.instance = key, orbit.NewID(time.Now()).String()
	w.open("wall-worker", "open")
	return fmt.Sprintf(`{"instance_id":"%s","epoch":%d,`, w.instance, w.epoch)
}
