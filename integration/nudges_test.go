package integration_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/service"
)

// startNudged makes two replicas that nudge each other; claims on the first can be waited for. No loop runs.
func startNudged(t *testing.T) poller {
	t.Helper()
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{Nudges: true, Between: harness.Around(b.around)})
	o.AddReplica(harness.Options{Nudges: true})
	meet(o, 0, 1)
	return poller{o, b}
}

// meet has replicas know of each other.
func meet(o *harness.Orbit, replicas ...int) {
	for range 2 {
		for _, i := range replicas {
			o.Pass("renew_replica", i)
		}
	}
}

func submitAt(t *testing.T, p *harness.Orbit, replica int, key string, more ...any) (taskID string) {
	t.Helper()
	body := map[string]any{"queue": "mail", "type": "t"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	var receipt struct {
		TaskID string `json:"task_id"`
	}
	p.CallAt(p.Replica(replica).URL, p.Key, "POST", "/v1/tasks", body, harness.Key(key)).Want(t, 201).JSON(t, &receipt)
	return receipt.TaskID
}

func TestANudgeWakesAClaimThatWaitsOnAnotherReplica(t *testing.T) {
	p := startNudged(t)
	queue := p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")

	wait := p.poll(t, w)
	id := submitAt(t, p.Orbit, 1, "k")
	first := wantOffer(t, wait(), id)

	wait = p.poll(t, w)
	wantItem(t, w.on(1).release(first, "shutdown"), 200, "")
	second := wantOffer(t, wait(), id)
	wantItem(t, w.start(second), 200, "")

	wait = p.poll(t, w)
	wantItem(t, w.on(1).finish(second, "outcome", "failed", "retry_after_ms", 1), 200, "")
	p.Advance(time.Second)
	p.Pass("promote_scheduled", 1)
	third := wantOffer(t, wait(), id)

	wantItem(t, w.release(third, "shutdown"), 200, "")
	resumed := p.CallAt(p.Replica(1).URL, p.Key, "POST", "/v1/queues/"+queue+":pause", map[string]any{"reason": "r"}, harness.Key("p"))
	resumed.Want(t, 200)
	wait = p.poll(t, w)
	p.CallAt(p.Replica(1).URL, p.Key, "POST", "/v1/queues/"+queue+":resume", map[string]any{"reason": "r"}, harness.Key("r")).Want(t, 200)
	wantOffer(t, wait(), id)
}

func TestAsManyClaimsAreNudgedAsTasksBecameReady(t *testing.T) {
	p := startNudged(t)
	p.CreateQueue("mail", policy())
	var waits []func() []offer
	for i := range 3 {
		waits = append(waits, p.poll(t, openWorker(t, p.Orbit, fmt.Sprint("w", i), "mail")))
	}
	var items []any
	for i := range 40 { // each poll takes up to 10
		items = append(items, map[string]any{"queue": "mail", "type": "t", "idempotency_key": fmt.Sprint("k", i)})
	}
	p.CallAt(p.Replica(1).URL, p.Key, "POST", "/v1/tasks:batch", map[string]any{"items": items}).Want(t, 200)
	for i, wait := range waits {
		if got := wait(); len(got) != 10 {
			t.Errorf("poll %d got %d offers, want 10", i, len(got))
		}
	}
}

func TestWithoutNudgesTheBackstopAloneBringsTasks(t *testing.T) {
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{Nudges: true, Between: harness.Around(b.around)})
	o.AddReplica(harness.Options{}) // its nudges are off
	meet(o, 0, 1)
	p := poller{o, b}
	p.CreateQueue("mail", policy())
	w := openWorker(t, o, "w", "mail")
	wait := p.poll(t, w)
	id := submitAt(t, o, 1, "k")
	if n := p.Pass("wake_waiters"); n != 1 {
		t.Fatalf("%d queues woken, want 1", n)
	}
	wantOffer(t, wait(), id)

	wait = p.poll(t, w)
	scheduled := submitAt(t, o, 1, "later", "delay_ms", 1000)
	p.Advance(2 * time.Second)
	p.Pass("promote_scheduled", 1)
	if n := p.Pass("wake_waiters"); n != 1 {
		t.Fatalf("%d queues woken, want 1", n)
	}
	wantOffer(t, wait(), scheduled)
}

// nudges is a replica's count of nudges with an outcome.
func nudges(t *testing.T, counts *prometheus.Registry, outcome string) int {
	t.Helper()
	families, err := counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "orbit_nudges_total" && m.GetLabel()[0].GetValue() == outcome {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

func TestAReplicaThatIsNotAliveIsNotNudged(t *testing.T) {
	b, counts := &breakpoint{}, prometheus.NewRegistry()
	o := harness.Start(t, harness.Options{Nudges: true, Between: harness.Around(b.around)})
	o.AddReplica(harness.Options{Nudges: true, Change: func(s *service.Options) { s.Registerer = counts }})
	p := poller{o, b}
	o.CreateQueue("mail", policy())
	meet(o, 0, 1)
	o.Advance(time.Minute)
	o.Pass("renew_replica", 1) // it finds nobody else alive
	id := submitAt(t, o, 1, "first")
	w := openWorker(t, o, "w", "mail")
	wantOffer(t, w.claim(1), id)
	meet(o, 0, 1)
	wait := p.poll(t, w)
	id = submitAt(t, o, 1, "second")
	wantOffer(t, wait(), id)
	if n := nudges(t, counts, "sent"); n != 1 {
		t.Fatalf("%d nudges were sent, want the second task's alone", n)
	}
}

// Whoever does not know a replica's key cannot even make its claims look.
func TestFalseNudgesMakeNobodyLook(t *testing.T) {
	b, counts := &breakpoint{}, prometheus.NewRegistry()
	var looks atomic.Int64
	o := harness.Start(t, harness.Options{Nudges: true, Change: func(s *service.Options) { s.Registerer = counts },
		Between: harness.Around(func(s harness.Statement, run func() error) error {
			if s.Name() == "LockReady" {
				looks.Add(1)
			}
			return b.around(s, run)
		})})
	o.AddReplica(harness.Options{Nudges: true})
	meet(o, 0, 1)
	p := poller{o, b}
	queue := o.CreateQueue("mail", policy())
	o.CreateQueue("other", policy())
	wait := p.poll(t, openWorker(t, o, "w", "mail"))
	other := p.poll(t, openWorker(t, o, "other", "other"))
	before := looks.Load()

	stranger, err := net.Dial("udp", o.Replica(0).Nudges.String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	ids := o.Namespace.ID.String() + queue
	honest := slices.Concat([]byte("orn1"), make([]byte, 16), []byte{0, 0, 0, 0, 0, 0, 0, 1}, unhex(t, ids), []byte{0, 1}, make([]byte, 16))
	for _, datagram := range [][]byte{{}, {0}, honest, honest[:40], bytes.Repeat(honest, 20), []byte(strings.Repeat("x", 5000))} {
		if _, err := stranger.Write(datagram); err != nil {
			t.Fatal(err)
		}
	}
	id := submitAt(t, o, 1, "k", "queue", "other")
	wantOffer(t, other(), id)
	if n := looks.Load() - before; n != 1 {
		t.Errorf("claims looked %d times, want once", n)
	}
	if n := nudges(t, counts, "refused"); n != 6 {
		t.Errorf("%d nudges were refused, want 6", n)
	}
	p.Replica(0).Service.Drain()
	if got := wait(); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A replica that drains has no claims that wait; a nudge to it does no harm, and what it makes ready wakes the claims of others.
func TestADrainingReplicaNudgesOn(t *testing.T) {
	p := startNudged(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	wait := p.poll(t, w)
	p.Replica(1).Service.Drain()
	id := submitAt(t, p.Orbit, 1, "k")
	offer := wantOffer(t, wait(), id)
	wait = p.poll(t, w)
	p.Replica(0).Service.Drain()
	if got := wait(); len(got) != 0 {
		t.Fatalf("%d offers while draining", len(got))
	}
	wantItem(t, w.on(1).release(offer, "shutdown"), 200, "")
	wantOffer(t, w.claim(1), id)
}
