package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// Business JSON comes back to worker, reader and receipt as it was sent, to the digit and the space.
func TestDigitsSurvive(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", map[string]any{"unknown_outcome": "review"})
	w := openWorker(t, o, "w", "q")
	const numbers = `"id":3889108265204450030,"amount":0.1000,"exact":12345678901234567890123456789012345678.90`
	said := func(what string) string {
		return "{ \"" + what + "\" : {" + numbers + "},\n\t\"list\":[1.0, 1e2 ,-0.0],\"text\":\"\\u00e9\\/é\" }"
	}
	accept := func(key string) string {
		var r receipt
		o.Call("POST", "/v1/tasks", `{"queue":"q","type":"t","payload":`+said("payload")+`}`, harness.Key(key)).Want(t, 201).JSON(t, &r)
		return r.TaskID
	}
	wantRaw := func(what, path, member string) {
		t.Helper()
		body := string(o.Call("GET", path, nil).Want(t, 200).Body)
		if want := `"` + member + `":` + said(what); !strings.Contains(body, want) {
			t.Errorf("%s is not as it was sent in %s: %s", what, path, body)
		}
	}
	end := func(a offer, more string) itemResult {
		return rawItems(t, w, "/v1/attempts:finish", fmt.Sprintf(`{"attempt_id":"%s","token":"%s",%s}`, a.AttemptID, a.Token, more))[0]
	}

	id := accept("single")
	wantRaw("payload", "/v1/tasks/"+id, "payload")
	a := w.run()
	if string(a.Payload) != said("payload") {
		t.Errorf("the worker got %s", a.Payload)
	}
	wantItem(t, rawItems(t, w, "/v1/attempts:heartbeat", fmt.Sprintf(`{"attempt_id":"%s","token":"%s","progress":%s}`, a.AttemptID, a.Token, said("progress")))[0], 200, "")
	wantRaw("progress", "/v1/attempts/"+a.AttemptID, "progress")
	first := end(a, `"outcome":"succeeded","result":`+said("result"))
	wantItem(t, first, 200, "")
	wantRaw("result", "/v1/attempts/"+a.AttemptID, "result")
	wantRaw("result", "/v1/tasks/"+id, "result")
	wantRaw("payload", "/v1/tasks/"+id, "payload")
	// The same value in other digits is the same result; its receipt and what is read stay the first ones.
	other := strings.NewReplacer("0.1000", "1e-1", "3889108265204450030", "388910826520445003.0e1").Replace(said("result"))
	if again := end(a, `"outcome":"succeeded","result":`+other); !again.Replayed || again.Receipt != first.Receipt {
		t.Errorf("a repeat in other digits answered %+v", again)
	}
	wantRaw("result", "/v1/tasks/"+id, "result")
	// A digit more is another result, and kept to the digit as evidence.
	late := end(a, `"outcome":"succeeded","result":`+strings.Replace(said("late"), "4450030", "4450031", 1))
	wantItem(t, late, 409, "result_conflict")
	if body := string(o.Call("GET", "/v1/attempts/"+a.AttemptID+"/evidence/"+late.EvidenceID, nil).Want(t, 200).Body); !strings.Contains(body, strings.Replace(said("late"), "4450030", "4450031", 1)) {
		t.Errorf("the evidence is %s", body)
	}

	// In a batch, and from evidence that a person accepts.
	got := submitBatch(t, o, o.URL(), `{"queue":"q","type":"t","idempotency_key":"item","payload":`+said("payload")+`}`)
	id = taskOf(t, got[0])
	wantRaw("payload", "/v1/tasks/"+id, "payload")
	a = w.run()
	if string(a.Payload) != said("payload") {
		t.Errorf("the worker got %s of an item", a.Payload)
	}
	openWorker(t, o, "w", "q")
	o.Pass("sweep_instances")
	wantState(t, o, id, "review")
	kept := end(a, `"outcome":"succeeded","result":`+said("result"))
	wantItem(t, kept, 409, "session_superseded")
	tag := o.Call("GET", "/v1/tasks/"+id, nil).Want(t, 200).Header.Get("ETag")
	o.Call("POST", "/v1/tasks/"+id+":resolve", `{"resolution":"accept_evidence","evidence_id":"`+kept.EvidenceID+`","reason":"seen"}`, harness.Key("r"), ifMatch(tag)).Want(t, 200)
	wantRaw("result", "/v1/tasks/"+id, "result")
}
