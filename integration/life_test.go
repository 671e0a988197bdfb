package integration_test

import (
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestATaskIsAcceptedOfferedStartedAndEndedWithAReceipt(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	// Compact, because encoding/json compacts what a test sends through it.
	payload := rawJSON(`{"n":3889108265204450030,"amount":0.1000,"long":12345678901234567890123456789012345678}`)
	id := submit(t, o, "mail", "payload", payload)
	if got := wantState(t, o, id, "queued"); got.Waiting.Kind != "ready" {
		t.Fatalf("waiting: %+v", got.Waiting)
	}
	w := openWorker(t, o, "w", "mail")
	offered := w.claimOne()
	wantState(t, o, id, "offered")
	if offered.Payload != payload {
		t.Fatalf("payload %s, want %s", offered.Payload, payload)
	}
	wantItem(t, w.start(offered), 200, "")
	wantState(t, o, id, "running")
	wantItem(t, w.heartbeat(offered), 200, "")
	first := w.succeed(offered, `{"total":0.1000}`)
	wantItem(t, first, 200, "")
	again := w.succeed(offered, `{"total":0.1000}`)
	if !again.Replayed || again.Receipt != first.Receipt {
		t.Fatalf("a repeat got %+v, want the receipt %s", again, first.Receipt)
	}
	if got := wantState(t, o, id, "succeeded"); got.Result != `{"total":0.1000}` {
		t.Fatalf("result %s", got.Result)
	}
}
