package integration_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/service"
)

// eventPage is a page of the feed.
type eventPage struct {
	Items     []event `json:"items"`
	NextAfter string  `json:"next_after"`
}

// follower reads the feed from its beginning, and checks that positions grow by one.
type follower struct {
	url, key string
	after    string
	seen     []event
}

// read takes one page.
func (f *follower) read(ctx context.Context) error {
	r, err := harness.Do(ctx, f.url, f.key, "GET", "/v1/events?limit=200&after="+f.after, nil)
	page, err := parse[eventPage](r, err, 200)
	if err != nil {
		return err
	}
	for _, e := range page.Items {
		if want := strconv.Itoa(len(f.seen) + 1); e.Position != want {
			return fmt.Errorf("position %s follows %d", e.Position, len(f.seen))
		}
		f.seen = append(f.seen, e)
	}
	if page.NextAfter != strconv.Itoa(len(f.seen)) {
		return fmt.Errorf("next_after is %s after %d events", page.NextAfter, len(f.seen))
	}
	f.after = page.NextAfter
	return nil
}

// readAll takes pages until one is empty.
func (f *follower) readAll(t testing.TB) {
	t.Helper()
	for before := -1; len(f.seen) > before; {
		before = len(f.seen)
		if err := f.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// repeatedly calls do until the test calls stop, which fails t for the first error.
func repeatedly(t testing.TB, do func() error) (stop func()) {
	t.Helper()
	var over atomic.Bool
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !over.Load() {
			err = do()
		}
		done <- err
	}()
	return func() {
		t.Helper()
		over.Store(true)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// wantWholeFeed fails t unless the followed events are exactly those that were written, each once, those of one thing in the order of its versions.
func wantWholeFeed(t testing.TB, o *harness.Orbit, f *follower) {
	t.Helper()
	if n := o.Count("orbit_events WHERE namespace_id = UNHEX(?)", o.Namespace.ID.String()); n != len(f.seen) {
		t.Errorf("%d events were written, %d were read", n, len(f.seen))
	}
	versions := map[string]int64{}
	for _, e := range f.seen {
		of := e.AggregateKind + " " + e.AggregateID
		if versions[of]++; e.Version != versions[of] {
			t.Fatalf("position %s has version %d of %s, want %d", e.Position, e.Version, of, versions[of])
		}
	}
	again := &follower{url: o.URL(), key: o.Key, after: "0"}
	again.readAll(t)
	for i, e := range again.seen {
		if i >= len(f.seen) || e != f.seen[i] {
			t.Fatalf("read again, position %s is %+v", e.Position, e)
		}
	}
}

// Transactions are held open with their events written, some with their place in the spool taken, while a thousand others commit.
func TestTheFeedMissesAndRepeatsNothing(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	wired, w := addWired(t, o, harness.Options{Change: func(options *service.Options) {
		options.StatementTime = time.Minute // the held transactions wait for the others, however slow the server is
	}})
	o.CreateQueue("q", nil)
	hold := func(key string, at harness.Statement) (*stoppedStatement, func() harness.Reply) {
		s := w.stop(at)
		wait := send(t, wired.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"held"}`, harness.Key(key))
		within(t, s.reached, "a transaction to be held")
		return s, wait
	}
	beforeSpool, first := hold("before-spool", "InsertSpool")
	beforeCommit, second := hold("before-commit", harness.Commit)
	rolledBack, third := hold("rolled-back", harness.Commit)
	rolledBackEarly, fourth := hold("rolled-back-early", "InsertSpool")

	f := &follower{url: o.Replica(1).URL, key: o.Key, after: "0"}
	var read atomic.Int64
	stopReading := repeatedly(t, func() error {
		err := f.read(t.Context())
		read.Store(int64(len(f.seen)))
		return err
	})
	var stops []func()
	for replica := range 2 {
		stops = append(stops, repeatedly(t, func() error {
			_, err := pass(t, o, "sequence_events", replica)
			return err
		}))
	}
	commits := func(from, to int) {
		race(t, 20, func(caller int) (struct{}, error) {
			for i := from + caller; i < to; i += 20 {
				url, key := o.Replica(i%2).URL, fmt.Sprint("k", i)
				r, err := harness.Do(t.Context(), url, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(key))
				got, err := parse[receipt](r, err, 201)
				if err != nil {
					return struct{}{}, err
				}
				// On the other replica: its event depends on the first one, which nobody may then miss.
				r, err = harness.Do(t.Context(), o.Replica(1-i%2).URL, o.Key, "POST", "/v1/tasks/"+got.TaskID+":cancel", nil, harness.Key(key))
				if _, err = parse[struct{}](r, err, 200); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
	}
	commits(0, 400)
	await(t, "the feed to have what was committed beside the held transactions", func() bool { return read.Load() == 802 })
	beforeSpool.goOn()
	var late [2]receipt
	first().Want(t, 201).JSON(t, &late[0])
	commits(400, 500)
	beforeCommit.goOn()
	second().Want(t, 201).JSON(t, &late[1])
	rolledBack.cut()
	third().WantProblem(t, 503, "outcome_unknown")
	rolledBackEarly.cut()
	fourth().Want(t, 201) // its batch was rolled back before the commit, and it was accepted by itself
	await(t, "the feed to have everything", func() bool { return read.Load() == 1005 })
	stopReading()
	for _, stop := range stops {
		stop()
	}
	if n := o.Count("orbit_event_spool"); n != 0 {
		t.Errorf("%d batches are left in the spool", n)
	}
	wantWholeFeed(t, o, f)
	// Nobody who had read the first 802 is told anything below them.
	for _, r := range late {
		if i := slices.IndexFunc(f.seen, func(e event) bool { return e.AggregateID == r.TaskID }); i < 802 {
			t.Errorf("the event of a transaction that was held open is at position %d", i+1)
		}
	}
}

// However few batches there are beside it, one that is not yet committed is neither waited for nor passed by for good.
func TestTheSequencerWaitsForNoOpenTransaction(t *testing.T) {
	for _, others := range []int{0, 1, 2, 7, 40} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			o := harness.Start(t, harness.Options{})
			wired, w := addWired(t, o, harness.Options{})
			o.CreateQueue("q", nil)
			o.Pass("sequence_events")
			commit := w.stop(harness.Commit)
			held := send(t, wired.URL, o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"held"}`, harness.Key("held"))
			within(t, commit.reached, "a transaction to be held")
			for range others {
				submit(t, o, "q")
			}
			if n := o.Pass("sequence_events"); n != others {
				t.Errorf("%d batches were placed, want %d", n, others)
			}
			commit.goOn()
			held().Want(t, 201)
			if n := o.Pass("sequence_events"); n != 1 {
				t.Errorf("%d batches were placed, want the one that was held", n)
			}
			f := &follower{url: o.URL(), key: o.Key, after: "0"}
			f.readAll(t)
			wantWholeFeed(t, o, f)
		})
	}
}

// A replica that dies at any statement of its sequencing leaves everything to the next one.
func TestASequencerThatDiesLosesAndRepeatsNothing(t *testing.T) {
	for _, at := range []harness.Statement{"LockEventHead", "ListSpool", "InsertLog", "DeleteSpool", "AdvanceEventHead", harness.Commit} {
		for name, end := range map[string]func(*stoppedStatement){"before": (*stoppedStatement).cut, "after": (*stoppedStatement).lose} {
			t.Run(fmt.Sprint(name, " ", at), func(t *testing.T) {
				o := harness.Start(t, harness.Options{})
				_, w := addWired(t, o, harness.Options{})
				o.CreateQueue("q", nil)
				submit(t, o, "q")
				stopped := w.stop(at)
				wait := later(t, func() (error, error) {
					_, err := pass(t, o, "sequence_events", 1)
					return err, nil
				})
				within(t, stopped.reached, "the sequencer to be stopped")
				submit(t, o, "q")
				if n := o.Pass("sequence_events"); n != 0 && at != "LockEventHead" {
					t.Errorf("%d batches were placed beside another sequencer", n)
				}
				end(stopped)
				if err := wait(); err == nil {
					t.Error("the pass did not fail")
				}
				await(t, "everything to be placed", func() bool {
					o.Pass("sequence_events")
					return o.Count("orbit_event_spool") == 0
				})
				f := &follower{url: o.URL(), key: o.Key, after: "0"}
				f.readAll(t)
				wantWholeFeed(t, o, f)
			})
		}
	}
}

func TestTheFeedIsReadByPosition(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", nil)
	_, stranger := o.Tenant("other")
	for range 3 {
		submit(t, o, "q")
	}
	read := func(query string) eventPage {
		t.Helper()
		var page eventPage
		o.Call("GET", "/v1/events"+query, nil).Want(t, 200).JSON(t, &page)
		return page
	}
	if page := read(""); len(page.Items) != 0 || page.NextAfter != "0" {
		t.Errorf("before the sequencer ran the feed has %+v", page)
	}
	o.Pass("sequence_events")
	all := read("?limit=1000")
	wantTypes := []string{"credential.created", "queue.created", "task.accepted", "task.accepted", "task.accepted"}
	if len(all.Items) != len(wantTypes) || all.NextAfter != "5" {
		t.Fatalf("the feed has %+v, want %v", all, wantTypes)
	}
	for i, e := range all.Items {
		if e.Position != strconv.Itoa(i+1) || e.Type != wantTypes[i] || e.Version != 1 {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	for _, c := range []struct {
		query string
		first int // index into all; -1 for none
		count int
		next  string
	}{{"?after=0&limit=1", 0, 1, "1"}, {"?after=3", 3, 2, "5"}, {"?after=1&limit=2", 1, 2, "3"}, {"?after=5", -1, 0, "5"}} {
		page := read(c.query)
		if len(page.Items) != c.count || page.NextAfter != c.next || c.first >= 0 && page.Items[0] != all.Items[c.first] {
			t.Errorf("%s: %+v", c.query, page)
		}
	}
	// A batch of several events can be read from its middle.
	submitMany(t, o, "q", 5)
	o.Pass("sequence_events")
	if page := read("?after=7&limit=2"); len(page.Items) != 2 || page.Items[0].Position != "8" || page.NextAfter != "9" {
		t.Errorf("from the middle of a batch: %+v", page)
	}
	for _, bad := range []string{"after=-1", "after=x", "after=01", "after=1.0", "after=9223372036854775808", "after=99999999999999999999", "after=11", "after=9223372036854775807",
		"limit=0", "limit=-5", "limit=x", "after=1&after=2"} {
		if p := o.Call("GET", "/v1/events?"+bad, nil).WantProblem(t, 400, "invalid_request"); len(p.Errors) != 1 || !strings.HasPrefix(p.Errors[0].Pointer, "query/") {
			t.Errorf("%s: refused with %+v", bad, p.Errors)
		}
	}
	var foreign eventPage
	if o.CallAt(o.URL(), stranger, "GET", "/v1/events", nil).Want(t, 200).JSON(t, &foreign); len(foreign.Items) != 1 || foreign.Items[0].Type != "credential.created" || foreign.Items[0] == all.Items[0] {
		t.Errorf("another tenant reads %+v, want that its credential was made", foreign)
	}
	o.CallAt(o.URL(), stranger, "GET", "/v1/events?after=3", nil).WantProblem(t, 400, "invalid_request")
	blind := o.Credential(o.Namespace, []string{"tasks:read"}, []string{"*"})
	o.CallAt(o.URL(), blind, "GET", "/v1/events", nil).WantProblem(t, 403, "forbidden")
	narrow := o.Credential(o.Namespace, []string{"events:read"}, nil)
	var whole eventPage
	if o.CallAt(o.URL(), narrow, "GET", "/v1/events?after=0", nil).Want(t, 200).JSON(t, &whole); len(whole.Items) != 10 {
		t.Errorf("a reader of events without queues reads %d, want all 10", len(whole.Items))
	}
}

func TestOldEventsAreTrimmedAndMissedOnesAreTold(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	submitMany(t, o, "q", 3)
	o.Pass("sequence_events")
	o.Advance(30*24*time.Hour - time.Minute)
	if n := o.Pass("trim_events"); n != 0 {
		t.Fatalf("%d batches were trimmed before their time", n)
	}
	submit(t, o, "q")
	o.Pass("sequence_events")
	o.Advance(2 * time.Minute)
	for replica := range 2 {
		o.Pass("trim_events", replica)
	}
	for _, after := range []string{"0", "4"} {
		if p := o.Call("GET", "/v1/events?after="+after, nil).WantProblem(t, 410, "events_trimmed"); !strings.Contains(p.Detail, "read on after 5") {
			t.Errorf("the reader is told %q", p.Detail)
		}
	}
	f := eventPage{}
	o.Call("GET", "/v1/events?after=5", nil).Want(t, 200).JSON(t, &f)
	if len(f.Items) != 1 || f.Items[0].Position != "6" {
		t.Errorf("what is left is %+v", f)
	}
	submit(t, o, "q")
	o.Pass("sequence_events")
	o.Call("GET", "/v1/events?after=6", nil).Want(t, 200).JSON(t, &f)
	if len(f.Items) != 1 || f.Items[0].Position != "7" {
		t.Errorf("the next event is %+v", f)
	}
}

// A reader beside retention is given what follows his position without a gap, or told that it is gone.
func TestAReaderBesideRetentionMissesNothingUnknowingly(t *testing.T) {
	o := harness.Start(t, harness.Options{Replicas: 2})
	o.CreateQueue("q", nil)
	const batches = 600
	race(t, 10, func(caller int) (struct{}, error) {
		for i := caller; i < batches; i += 10 {
			r, err := harness.Do(t.Context(), o.URL(), o.Key, "POST", "/v1/tasks", `{"queue":"q","type":"t"}`, harness.Key(fmt.Sprint("k", i)))
			if _, err = parse[receipt](r, err, 201); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	o.Pass("sequence_events")
	o.Advance(31 * 24 * time.Hour)
	var told atomic.Int64
	stop := repeatedly(t, func() error {
		for after := 0; after < batches; after += 37 {
			r, err := harness.Do(t.Context(), o.Replica(1).URL, o.Key, "GET", fmt.Sprint("/v1/events?limit=50&after=", after), nil)
			if err == nil && r.Status == 410 {
				told.Add(1)
				continue
			}
			page, err := parse[eventPage](r, err, 200)
			if err != nil {
				return err
			}
			for i, e := range page.Items {
				if e.Position != strconv.Itoa(after+1+i) {
					return fmt.Errorf("after %d, event %d is at position %s", after, i, e.Position)
				}
			}
			if len(page.Items) != 50 && after+50 < batches {
				return fmt.Errorf("after %d there are %d events", after, len(page.Items))
			}
		}
		return nil
	})
	await(t, "all events to be trimmed", func() bool {
		o.Pass("trim_events", 0)
		o.Pass("trim_events", 1)
		return o.Count("orbit_event_log") == 0
	})
	await(t, "a reader to be told", func() bool { return told.Load() > 0 })
	stop()
	if n := o.Count("orbit_events"); n != 0 {
		t.Errorf("%d events are left", n)
	}
}

// However many namespaces have something, each gets its turn.
func TestEachNamespaceGetsItsTurn(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	for i := range 80 {
		o.Tenant(fmt.Sprint("n", i))
	}
	for o.Pass("sequence_events") > 0 {
	}
	if n := o.Count("orbit_event_spool"); n != 0 {
		t.Fatalf("%d batches are left in the spool", n)
	}
	if n := o.Count("orbit_event_heads WHERE next_position = 2"); n != 81 {
		t.Errorf("%d of 81 namespaces have their event in place", n)
	}
	o.Advance(31 * 24 * time.Hour)
	for range 3 {
		o.Pass("trim_events")
	}
	if n := o.Count("orbit_event_heads WHERE trimmed_below = 2"); n != 81 {
		t.Errorf("%d of 81 namespaces were trimmed", n)
	}
}

// An event that depends on another comes after it, however the two commits fall into the sequencer's reading. Rows of an open transaction
// between the two make that reading long.
func TestADependentEventNeverComesFirst(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	_, w := addWired(t, o, harness.Options{})
	namespace := o.Namespace.ID
	begin := func() (*sql.Tx, func(statement string, args ...any)) {
		tx, err := o.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return tx, func(statement string, args ...any) {
			t.Helper()
			if _, err := tx.ExecContext(t.Context(), statement, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	const spool = "INSERT INTO orbit_event_spool (namespace_id, batch_id, event_count) VALUES "
	for range 12 {
		thing, batches := orbit.NewID(time.Now()), [2]orbit.ID{orbit.NewID(time.Now()), orbit.NewID(time.Now())}
		first, write := begin()
		second, depend := begin()
		open, fill := begin()
		for version, tell := range []func(string, ...any){write, depend} {
			tell("INSERT INTO orbit_events (namespace_id, batch_id, ordinal, aggregate_kind, aggregate_id, version, type, data, occurred_at) VALUES (?, ?, 0, 'thing', ?, ?, 'thing.changed', '{}', NOW(6))",
				namespace, batches[version], thing, version+1)
		}
		write(spool+"(?, ?, 1)", namespace, batches[0])
		for range 5 {
			fill(spool + strings.TrimSuffix(strings.Repeat("(UNHEX('"+namespace.String()+"'), UNHEX(REPEAT('ab', 16)), 1),", 3000), ","))
		}
		o.Credential(o.Namespace, []string{"events:read"}, nil) // has an event, so that the sequencer comes
		reading := w.stop("ListSpool")
		sequencing := later(t, func() (int, error) { return pass(t, o, "sequence_events", 1) })
		within(t, reading.reached, "the sequencer to read the spool")
		reading.goOn()
		if err := first.Commit(); err != nil {
			t.Fatal(err)
		}
		// Whoever has seen the first commit writes this.
		depend(spool+"(?, ?, 1)", namespace, batches[1])
		if err := second.Commit(); err != nil {
			t.Fatal(err)
		}
		sequencing()
		if err := open.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	o.Pass("sequence_events")
	f := &follower{url: o.URL(), key: o.Key, after: "0"}
	f.readAll(t)
	wantWholeFeed(t, o, f)
}
