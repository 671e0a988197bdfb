package integration_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// poller is a service whose waiting claims are seen to have looked once.
type poller struct {
	*harness.Orbit
	b *breakpoint
}

// startPoller makes two replicas; claims on the first can be waited for.
func startPoller(t *testing.T) poller {
	t.Helper()
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{Between: harness.Around(b.around)})
	o.AddReplica(harness.Options{})
	return poller{o, b}
}

// poll has a worker wait for work on the first replica, and returns once its claim has looked and found nothing.
func (p poller) poll(t *testing.T, w *worker) (wait func() []offer) {
	t.Helper()
	answer := p.sendPoll(t, w)
	return func() []offer {
		t.Helper()
		var got claimed
		answer().Want(t, 200).JSON(t, &got)
		return got.Offers
	}
}

func (p poller) sendPoll(t *testing.T, w *worker) (answer func() harness.Reply) {
	t.Helper()
	w.seq++
	seq := w.seq
	reached, goOn := p.b.next(harness.Commit)
	defer goOn()
	answer = later(t, func() (harness.Reply, error) {
		return w.send(claimPath, map[string]any{"claim_seq": seq, "max": 10, "wait_ms": 30_000})
	})
	within(t, reached, "the claim to look")
	return answer
}

func wantOffer(t *testing.T, offers []offer, taskID string) offer {
	t.Helper()
	if len(offers) != 1 || offers[0].TaskID != taskID {
		t.Fatalf("offers %+v, want task %s", offers, taskID)
	}
	return offers[0]
}

func TestAWaitingClaimIsWokenByWhateverMakesATaskReady(t *testing.T) {
	p := startPoller(t)
	queue := p.CreateQueue("mail", policy())
	w, other := openWorker(t, p.Orbit, "w", "mail"), openWorker(t, p.Orbit, "other", "mail")
	other.url = p.Replica(0).URL // what happens on the replica of the poll wakes it, without any loop

	wait := p.poll(t, w)
	id := submit(t, p.Orbit, "mail")
	first := wantOffer(t, wait(), id)

	wait = p.poll(t, other)
	wantItem(t, w.release(first, "shutdown"), 200, "")
	second := wantOffer(t, wait(), id)
	wantItem(t, other.start(second), 200, "")

	wait = p.poll(t, w)
	wantItem(t, other.finish(second, "outcome", "failed", "retry_after_ms", 1), 200, "")
	p.Advance(time.Second)
	p.Pass("promote_scheduled")
	third := wantOffer(t, wait(), id)
	wantItem(t, w.start(third), 200, "")

	p.StayFresh(6 * time.Second)
	wait = p.poll(t, other)
	p.Pass("recover_leases")
	p.Advance(time.Minute)
	p.Pass("promote_scheduled")
	fourth := wantOffer(t, wait(), id)

	p.Call("POST", "/v1/queues/"+queue+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
	wantItem(t, other.start(fourth), 409, "start_refused")
	wait = p.poll(t, w)
	resume(t, p.Orbit, queue, "r")
	p.Pass("unblock_gates")
	fifth := wantOffer(t, wait(), id)
	wantItem(t, w.start(fifth), 200, "")
	wantItem(t, w.fail(fifth, false), 200, "")

	wait = p.poll(t, other)
	act(p.Orbit, id, "retry", nil, harness.Key("retry")).Want(t, 200)
	wantOffer(t, wait(), id)
}

func TestAWaitingClaimIsWokenBySubmitsOnAnotherReplica(t *testing.T) {
	p := startPoller(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	wait := p.poll(t, w)
	if n := p.Pass("wake_waiters", 0); n != 0 {
		t.Fatalf("%d queues woken for nothing", n)
	}
	var receipt struct {
		TaskID string `json:"task_id"`
	}
	p.CallAt(p.Replica(1).URL, p.Key, "POST", "/v1/tasks", map[string]any{"queue": "mail", "type": "t"}, harness.Key("k")).Want(t, 201).JSON(t, &receipt)
	if n := p.Pass("wake_waiters", 1); n != 0 {
		t.Fatalf("%d queues woken on a replica that nobody waits on", n)
	}
	if n := p.Pass("wake_waiters", 0); n != 1 {
		t.Fatalf("%d queues woken, want 1", n)
	}
	wantOffer(t, wait(), receipt.TaskID)
}

func TestAPausedQueueWakesNobody(t *testing.T) {
	p := startPoller(t)
	queue := p.CreateQueue("mail", policy())
	id := submit(t, p.Orbit, "mail")
	p.Call("POST", "/v1/queues/"+queue+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
	w := openWorker(t, p.Orbit, "w", "mail")
	wait := p.poll(t, w)
	if n := p.Pass("wake_waiters"); n != 0 {
		t.Fatal("a paused queue wakes those who wait for it")
	}
	elsewhere := p.CallAt(p.Replica(1).URL, p.Key, "POST", "/v1/queues/"+queue+":resume", map[string]any{"reason": "r"}, harness.Key("elsewhere"))
	elsewhere.Want(t, 200)
	if n := p.Pass("wake_waiters"); n != 1 {
		t.Fatal("a queue that was resumed on another replica wakes nobody")
	}
	first := wantOffer(t, wait(), id)

	wantItem(t, w.release(first, "shutdown"), 200, "")
	p.Call("POST", "/v1/queues/"+queue+":pause", map[string]any{"reason": "r"}, harness.Key("p2")).Want(t, 200)
	wait = p.poll(t, w)
	resume(t, p.Orbit, queue, "r2") // on the replica of the poll, which is woken without any loop
	wantOffer(t, wait(), id)
}

func TestOneTaskForManyWaitingClaimsIsOfferedOnce(t *testing.T) {
	p := startPoller(t)
	p.CreateQueue("mail", policy())
	type answer struct {
		claimed
		err error
	}
	answers := make(chan answer, 4)
	for _, name := range []string{"a", "b", "c", "d"} {
		w := openWorker(t, p.Orbit, name, "mail")
		reached, goOn := p.b.next(harness.Commit)
		go func() {
			r, err := w.send(claimPath, map[string]any{"claim_seq": 1, "max": 10, "wait_ms": 30_000})
			got, err := parse[claimed](r, err, 200)
			answers <- answer{got, err}
		}()
		within(t, reached, "the claim to look")
		goOn()
	}
	for range 4 {
		id := submit(t, p.Orbit, "mail")
		// Whoever was woken and came too late waits on, and is woken again.
		p.Pass("wake_waiters")
		got := <-answers // at the latest when its wait is over
		if got.err != nil {
			t.Fatal(got.err)
		}
		wantOffer(t, got.Offers, id)
	}
}

func TestAWaitingClaimEndsWhenItsTimeIsUpOrItsReplicaDrains(t *testing.T) {
	p := startPoller(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	w.seq++
	begin := time.Now()
	var got claimed
	w.call(claimPath, map[string]any{"claim_seq": w.seq, "max": 1, "wait_ms": 150}).Want(t, 200).JSON(t, &got)
	if took := time.Since(begin); len(got.Offers) != 0 || got.ClaimSeq != w.seq || took < 150*time.Millisecond {
		t.Fatalf("%+v after %s", got, took)
	}
	wait := p.poll(t, w)
	p.Replica(0).Service.Drain()
	if offers := wait(); len(offers) != 0 {
		t.Fatalf("%d offers while draining", len(offers))
	}
	// From then on no poll waits, and everything else is answered.
	w.seq++
	w.call(claimPath, map[string]any{"claim_seq": w.seq, "max": 1, "wait_ms": 30_000}).Want(t, 200)
	id := submit(t, p.Orbit, "mail")
	wantOffer(t, w.claim(1), id)
}

func TestAWaitingClaimIsFencedLikeAnyOther(t *testing.T) {
	p := startPoller(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	claim := p.sendPoll(t, w)
	next := openWorker(t, p.Orbit, "w", "mail")
	id := submit(t, p.Orbit, "mail")
	claim().WantProblem(t, 409, "session_superseded")
	wantOffer(t, next.claim(1), id)
}

func TestAWaitingClaimWhoseCallerIsGoneTakesNothing(t *testing.T) {
	p := startPoller(t)
	p.CreateQueue("mail", policy())
	w := openWorker(t, p.Orbit, "w", "mail")
	over := make(chan struct{})
	var once sync.Once
	handler := p.Replica(0).Service.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(rw, r)
		once.Do(func() { close(over) })
	}))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	reached, goOn := p.b.next(harness.Commit)
	defer goOn()
	gone := make(chan error, 1)
	go func() {
		_, err := harness.Do(ctx, server.URL, p.Key, "POST", claimPath, map[string]any{
			"instance_id": w.instance, "epoch": w.epoch, "claim_seq": 1, "max": 1, "wait_ms": 30_000})
		gone <- err
	}()
	within(t, reached, "the claim to look")
	goOn()
	leave()
	if err := <-gone; err == nil {
		t.Fatal("a cancelled call was answered")
	}
	within(t, over, "the service to notice that its caller is gone")
	id := submit(t, p.Orbit, "mail")
	if n := p.Pass("wake_waiters"); n != 0 {
		t.Fatal("somebody still waits")
	}
	wantState(t, p.Orbit, id, "queued")
}

func TestAWaitingClaimEndsSoonAfterItsCredentialIsRevoked(t *testing.T) {
	p := startPoller(t)
	p.CreateQueue("mail", policy())
	var issued struct {
		Key        string `json:"key"`
		Credential struct {
			ID string `json:"id"`
		} `json:"credential"`
	}
	p.Call("POST", "/v1/credentials", map[string]any{"name": "worker", "actions": []string{"tasks:execute"}, "queues": []string{"*"}}, harness.Key("k")).Want(t, 201).JSON(t, &issued)
	w := &worker{t: t, o: p.Orbit, url: p.URL(), key: issued.Key, instance: newInstance()}
	w.open("w", "mail")
	claim := p.sendPoll(t, w)
	p.Call("POST", "/v1/credentials/"+issued.Credential.ID+":revoke", map[string]any{"reason": "r"}, harness.Key("revoke")).Want(t, 200)
	begin := time.Now()
	claim().WantProblem(t, 401, "unauthenticated")
	if took := time.Since(begin); took > 5*time.Second {
		t.Fatalf("the poll went on for %s", took)
	}
}
