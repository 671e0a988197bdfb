package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

const (
	claimPath   = "/v1/claims"
	releasePath = "/v1/attempts:release"
)

type claimed struct {
	ClaimSeq int64   `json:"claim_seq"`
	Offers   []offer `json:"offers"`
}

// claimFrom claims from the queues named.
func (w *worker) claimFrom(max int, queues ...string) []offer {
	w.t.Helper()
	w.seq++
	var got claimed
	w.call(claimPath, map[string]any{"claim_seq": w.seq, "max": max, "queues": queues}).Want(w.t, 200).JSON(w.t, &got)
	return got.Offers
}

func taskIDs(offers []offer) []string {
	ids := make([]string, len(offers))
	for i, o := range offers {
		ids[i] = o.TaskID
	}
	return ids
}

func TestClaimTasksOffersATaskWithEverythingItsHandlerNeeds(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	id := o.CreateQueue("mail", policy("lease_ms", 7000, "offer_timeout_ms", 3000))
	deadline := time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
	body := map[string]any{"queue": "mail", "type": "a.b", "payload": rawJSON(`[1]`), "priority": 3, "deadline_at": deadline}
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var receipt struct {
		TaskID string    `json:"task_id"`
		RunAt  time.Time `json:"run_at"`
	}
	o.Call("POST", "/v1/tasks", body, harness.Key("k"), harness.Header{Name: "traceparent", Value: trace}).Want(t, 201).JSON(t, &receipt)
	w := openWorker(t, o, "w", "mail")
	before := value[time.Time](t, o, "SELECT NOW(6)")
	got := w.claimOne()
	after := value[time.Time](t, o, "SELECT NOW(6)")
	if got.TaskID != receipt.TaskID || got.QueueID != id || got.Type != "a.b" || got.Payload != `[1]` || got.Generation != 1 || got.AttemptNumber != 1 ||
		got.LeaseMs != 7000 || got.Priority != 3 || !got.RunAt.Equal(receipt.RunAt) || !got.DeadlineAt.Equal(deadline) {
		t.Fatalf("%+v", got)
	}
	if got.OfferExpiresAt.Before(before.Add(3*time.Second)) || got.OfferExpiresAt.After(after.Add(3*time.Second)) {
		t.Fatalf("the offer ends at %s, claimed between %s and %s", got.OfferExpiresAt, before, after)
	}
	if parts := strings.Split(got.Traceparent, "-"); len(parts) != 4 || parts[1] != strings.Split(trace, "-")[1] {
		t.Fatalf("traceparent %q, want the trace of %q", got.Traceparent, trace)
	}
	if len(got.Token) < 43 {
		t.Fatalf("token %q has no room for 256 bits", got.Token)
	}
	if got := wantState(t, o, receipt.TaskID, "offered"); got.AttemptsUsed != 0 || got.Generation != 1 || got.AttemptID == "" {
		t.Fatalf("%+v", got)
	}
}

func TestClaimsTakeByPriorityThenByTime(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	var want []string
	byPriority := map[int][]string{}
	for _, p := range []int{5, 9, 1, 5, 1, 9, 5} {
		byPriority[p] = append(byPriority[p], submit(t, o, "mail", "priority", p))
	}
	for _, p := range []int{1, 5, 9} {
		want = append(want, byPriority[p]...)
	}
	w := openWorker(t, o, "w", "mail")
	var got []string
	for _, n := range []int{2, 3, 100} {
		got = append(got, taskIDs(w.claim(n))...)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("claimed\n%v, want\n%v", got, want)
	}
	if more := w.claim(1); len(more) != 0 {
		t.Fatalf("%d offers of nothing", len(more))
	}
}

func TestARunAtInThePastGivesNoPlaceBeforeThoseThatWait(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	first := submit(t, o, "mail")
	second := submit(t, o, "mail", "run_at", "2001-01-01T00:00:00Z")
	w := openWorker(t, o, "w", "mail")
	if got := taskIDs(w.claim(2)); !slices.Equal(got, []string{first, second}) {
		t.Fatalf("claimed %v, want %v first", got, first)
	}
}

func TestClaimsOrderQueuesByTheirFirstTask(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	for _, name := range []string{"a", "b", "c"} {
		o.CreateQueue(name, nil)
	}
	late := submit(t, o, "a", "priority", 5)
	b1 := submit(t, o, "b", "priority", 2)
	c1 := submit(t, o, "c", "priority", 5)
	b2 := submit(t, o, "b", "priority", 9)
	w := openWorker(t, o, "w", "c", "a", "b")
	// One queue after the other until there are enough: b has the first task, a is older than c.
	if got, want := taskIDs(w.claim(3)), []string{b1, b2, late}; !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v", got, want)
	}
	if got := taskIDs(w.claim(3)); !slices.Equal(got, []string{c1}) {
		t.Fatalf("claimed %v, want %v", got, c1)
	}
}

func TestClaimsTakeFromTheQueuesNamedAndElseFromThoseOfTheSession(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	ids := map[string]string{}
	tasks := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		ids[name] = o.CreateQueue(name, nil)
		tasks[name] = submit(t, o, name)
	}
	w := openWorker(t, o, "w", "a")
	if got := taskIDs(w.claimFrom(10, "b")); !slices.Equal(got, []string{tasks["b"]}) {
		t.Fatalf("claimed %v by name", got)
	}
	if got := taskIDs(w.claimFrom(10, ids["c"])); !slices.Equal(got, []string{tasks["c"]}) {
		t.Fatalf("claimed %v by id", got)
	}
	if got := taskIDs(w.claim(10)); !slices.Equal(got, []string{tasks["a"]}) {
		t.Fatalf("claimed %v from the session's", got)
	}
}

func TestPausedQueuesGiveNoOffers(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	paused := o.CreateQueue("paused", nil)
	o.CreateQueue("open", nil)
	held := submit(t, o, "paused", "priority", 1)
	free := submit(t, o, "open")
	o.Call("POST", "/v1/queues/"+paused+":pause", map[string]any{"reason": "r"}, harness.Key("p")).Want(t, 200)
	w := openWorker(t, o, "w", "paused", "open")
	if got := taskIDs(w.claim(10)); !slices.Equal(got, []string{free}) {
		t.Fatalf("claimed %v", got)
	}
	wantState(t, o, held, "queued")
	o.Call("POST", "/v1/queues/"+paused+":resume", nil, harness.Key("r")).Want(t, 200)
	if got := taskIDs(w.claim(10)); !slices.Equal(got, []string{held}) {
		t.Fatalf("claimed %v after the resume", got)
	}
}

func TestClaimTasksRefuses(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	o.CreateQueue("sms", nil)
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	wantForeign(t, w, claimPath, map[string]any{"claim_seq": 1, "max": 1})
	w.call(claimPath, map[string]any{"claim_seq": 1, "max": 1, "queues": []string{"nope"}}).WantProblem(t, 404, "not_found")
	for name, change := range map[string]map[string]any{
		"no seq":        {"claim_seq": 0},
		"no offers":     {"max": 0},
		"too many":      {"max": 101},
		"too long":      {"wait_ms": 30001},
		"negative wait": {"wait_ms": -1},
		"no queue":      {"queues": []string{}},
		"unknown field": {"types": []string{"a"}},
		"no epoch":      {"epoch": 0},
	} {
		t.Run(name, func(t *testing.T) {
			body := map[string]any{"instance_id": w.instance, "epoch": w.epoch, "claim_seq": 1, "max": 1}
			for k, v := range change {
				body[k] = v
			}
			o.Call("POST", claimPath, body).WantProblem(t, 400, "invalid_request")
		})
	}
	ahead := *w
	ahead.epoch++
	ahead.call(claimPath, map[string]any{"claim_seq": 1, "max": 1}).WantProblem(t, 409, "session_superseded")
	if n := o.Count("pulse_attempts"); n != 0 {
		t.Fatalf("%d offers of refused claims", n)
	}
}

func TestClaimsOfACredentialSeeGrantedQueuesOnly(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	o.CreateQueue("sms", nil)
	submit(t, o, "sms")
	id := submit(t, o, "mail")
	w := &worker{t: t, o: o, url: o.URL(), key: o.Credential(o.Namespace, []string{"tasks:execute"}, []string{"mail"}), instance: newInstance()}
	w.open("w", "mail")
	w.call(claimPath, map[string]any{"claim_seq": 1, "max": 10, "queues": []string{"sms"}}).WantProblem(t, 404, "not_found")
	if got := taskIDs(w.claim(10)); !slices.Equal(got, []string{id}) {
		t.Fatalf("claimed %v", got)
	}
}

func TestARepeatedClaimIsANewClaim(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	submit(t, o, "mail")
	submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	one := w.claimOne()
	w.seq--
	if two := w.claimOne(); two.TaskID == one.TaskID || two.Token == one.Token {
		t.Fatalf("%+v and %+v", one, two)
	}
}

func TestClaimsOfLargePayloadsStayWithinOneReply(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", nil)
	payload := rawJSON(`"` + strings.Repeat("x", 6<<20) + `"`)
	var want []string
	for range 3 {
		want = append(want, submit(t, o, "mail", "payload", payload))
	}
	w := openWorker(t, o, "w", "mail")
	first, second := w.claim(3), w.claim(3)
	if len(first) != 2 || len(second) != 1 || !slices.Equal(append(taskIDs(first), taskIDs(second)...), want) {
		t.Fatalf("%d and then %d offers of 6 MiB each, want 2 and 1", len(first), len(second))
	}
	for _, o := range append(first, second...) {
		if o.Payload != payload {
			t.Fatalf("a payload of %d bytes came with %d", len(payload), len(o.Payload))
		}
	}
}

func TestClaimsAtOnceGetEachTaskExactlyOnce(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("mail", nil)
	o.CreateQueue("sms", nil)
	want := map[string]bool{}
	for i := range 120 {
		want[submit(t, o, []string{"mail", "sms"}[i%2], "priority", 1+i%9)] = true
	}
	workers := make([]*worker, 8)
	for i := range workers {
		workers[i] = openWorker(t, o, fmt.Sprint("w", i), "mail", "sms").on(i % 2)
	}
	var left atomic.Int64
	left.Store(int64(len(want)))
	offers := race(t, len(workers), func(i int) ([]offer, error) {
		var mine []offer
		for left.Load() > 0 {
			workers[i].seq++
			r, err := workers[i].send(claimPath, map[string]any{"claim_seq": workers[i].seq, "max": 1 + i})
			got, err := parse[claimed](r, err, 200)
			if err != nil {
				return mine, err
			}
			left.Add(-int64(len(got.Offers)))
			mine = append(mine, got.Offers...)
		}
		return mine, nil
	})
	for _, o := range slices.Concat(offers...) {
		if !want[o.TaskID] {
			t.Fatalf("task %s was offered twice", o.TaskID)
		}
		delete(want, o.TaskID)
	}
	if len(want) != 0 {
		t.Fatalf("%d tasks were not offered", len(want))
	}
}

// A lost reply of a claim: the worker knows its claim_seq and nothing else.
func TestAClaimWhoseReplyWasLostIsAbandonedByItsClaimSeq(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("mail", policy())
	for range 5 {
		submit(t, o, "mail")
	}
	w := openWorker(t, o, "w", "mail")
	kept := w.claimOne()
	lost := w.claim(3)
	wantItem(t, w.start(lost[2]), 200, "") // not lost after all: a started attempt is no longer an offer
	var got struct {
		Items []struct {
			Status  int `json:"status"`
			Attempt struct {
				AttemptID string `json:"attempt_id"`
				TaskID    string `json:"task_id"`
				State     string `json:"state"`
			} `json:"attempt"`
		} `json:"items"`
	}
	w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200).JSON(t, &got)
	var released []string
	for _, i := range got.Items {
		if i.Status != 200 || i.Attempt.State != "released" {
			t.Fatalf("%+v", i)
		}
		released = append(released, i.Attempt.TaskID)
	}
	if slices.Sort(released); !slices.Equal(released, slices.Sorted(slices.Values(taskIDs(lost[:2])))) {
		t.Fatalf("released %v, want %v", released, taskIDs(lost[:2]))
	}
	for _, l := range lost[:2] {
		if got := wantState(t, o, l.TaskID, "queued"); got.Waiting.Kind != "ready" || got.AttemptsUsed != 0 || got.Generation != 1 || got.Failure.Code != "" {
			t.Fatalf("%+v", got)
		}
		wantItem(t, w.start(l), 409, "stale_attempt")
	}
	wantState(t, o, kept.TaskID, "offered")
	wantState(t, o, lost[2].TaskID, "running")
	for _, seq := range []int64{w.seq, w.seq - 1} {
		w.call(claimPath, map[string]any{"claim_seq": seq, "max": 1}).WantProblem(t, 409, "state_conflict")
	}
	w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200).JSON(t, &got)
	if len(got.Items) != 0 {
		t.Fatalf("a repeat released %d more", len(got.Items))
	}
	// Abandoned once more and once more: a claim that is given up never makes a task wait.
	for range 3 {
		if n := len(w.claim(10)); n != 3 {
			t.Fatalf("%d offers, want 3 without a wait", n)
		}
		w.call(releasePath, map[string]any{"claim_seq": w.seq}).Want(t, 200)
	}
}

func TestAClaimStillUnderWayIsRefusedOnceItsClaimSeqWasReleased(t *testing.T) {
	b := &breakpoint{}
	o := harness.Start(t, harness.Options{})
	o.AddReplica(harness.Options{Between: harness.Around(b.around)})
	o.CreateQueue("mail", policy())
	id := submit(t, o, "mail")
	w := openWorker(t, o, "w", "mail")
	slow := w.on(1)
	slow.call("/v1/attempts:heartbeat", map[string]any{"items": []any{}}).Want(t, 200) // the credential is known there from now on

	t.Run("released before the claim begins", func(t *testing.T) {
		reached, goOn := b.next(harness.Begin)
		defer goOn()
		claim := later(t, func() (harness.Reply, error) { return slow.send(claimPath, map[string]any{"claim_seq": 1, "max": 1}) })
		within(t, reached, "the claim to begin")
		w.call(releasePath, map[string]any{"claim_seq": 1}).Want(t, 200)
		goOn()
		claim().WantProblem(t, 409, "state_conflict")
		wantState(t, o, id, "queued")
	})
	t.Run("released while the claim commits", func(t *testing.T) {
		reached, goOn := b.next(harness.Commit)
		defer goOn()
		claim := later(t, func() (harness.Reply, error) { return slow.send(claimPath, map[string]any{"claim_seq": 2, "max": 1}) })
		within(t, reached, "the claim to commit")
		release := later(t, func() (harness.Reply, error) { return w.send(releasePath, map[string]any{"claim_seq": 2}) })
		awaitLockWait(t, o, "pulse_worker_sessions")
		goOn()
		var taken claimed
		claim().Want(t, 200).JSON(t, &taken)
		var given struct {
			Items []itemResult `json:"items"`
		}
		release().Want(t, 200).JSON(t, &given)
		if len(taken.Offers) != 1 || len(given.Items) != 1 {
			t.Fatalf("%d offers taken, %d given back, want 1 and 1", len(taken.Offers), len(given.Items))
		}
		wantState(t, o, id, "queued")
		wantItem(t, w.start(taken.Offers[0]), 409, "stale_attempt")
	})
	t.Run("released while the claim waits for work", func(t *testing.T) {
		o.Call("POST", "/v1/tasks/"+id+":cancel", nil, harness.Key("c")).Want(t, 200)
		reached, goOn := b.next(harness.Commit)
		defer goOn()
		claim := later(t, func() (harness.Reply, error) {
			return slow.send(claimPath, map[string]any{"claim_seq": 3, "max": 1, "wait_ms": 30000})
		})
		within(t, reached, "the claim's first look to end")
		goOn()
		w.call(releasePath, map[string]any{"claim_seq": 3}).Want(t, 200)
		next := submit(t, o, "mail")
		o.Pass("wake_waiters", 1)
		claim().WantProblem(t, 409, "state_conflict")
		wantState(t, o, next, "queued")
	})
}
