package dbtx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/service/internal/dbtx"
)

func TestMain(m *testing.M) { harness.Main(m) }

// bench is a pool on a database with one table: t (id, n, text), where there are the rows 1 and 2.
type bench struct {
	*dbtx.Pool
	name  string
	watch *sql.DB // beside the pool
	line  *line
}

func newBench(t *testing.T, maxOpen int) *bench {
	t.Helper()
	d := harness.Empty(t)
	for _, s := range []string{"CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 0, text LONGTEXT)", "INSERT INTO t (id) VALUES (1), (2)"} {
		if _, err := d.DB.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{name: d.Name, watch: d.DB, line: &line{}}
	db, err := schema.Open(d.DSN, schema.PoolOptions{MaxOpen: maxOpen, LockWait: time.Second, Program: "bench", Between: b.line.between})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	b.Pool = &dbtx.Pool{DB: db, Timeout: 30 * time.Second}
	t.Cleanup(func() { b.wantClean(t) })
	return b
}

// wantClean checks that every connection came back, and none with a transaction.
func (b *bench) wantClean(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if s := b.DB.Stats(); s.InUse != 0 || s.OpenConnections > s.MaxOpenConnections {
		t.Errorf("connections are left in use: %+v", s)
	}
	for range b.DB.Stats().Idle { // the pool hands out the idle ones before it opens others
		conn, err := b.DB.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(ctx, "SET TRANSACTION READ WRITE"); err != nil { // refused within a transaction
			t.Errorf("a connection came back with an open transaction: %v", err)
		}
	}
}

// rows are the ids and numbers of the table, as anybody sees them.
func (b *bench) rows(t *testing.T) string {
	t.Helper()
	var rows sql.NullString
	if err := b.watch.QueryRowContext(t.Context(), "SELECT GROUP_CONCAT(id, '=', n ORDER BY id) FROM t").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows.String
}

const untouched = "1=0,2=0"

// line is between a pool and the server. It notes what is sent, packet by packet, and can break it.
type line struct {
	mu      sync.Mutex
	packets []string
	cut     string // the packet, by how it begins, whose answer is lost
}

func (l *line) between(inner driver.Connector) driver.Connector { return connector{inner, l} }

func (l *line) note(packet string) (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.packets = append(l.packets, packet)
	return l.cut != "" && strings.HasPrefix(packet, l.cut)
}

// take gives what was noted, and forgets it.
func (l *line) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.packets = nil }()
	return l.packets
}

type connector struct {
	driver.Connector
	line *line
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{inner.(driverConn), c.line}, nil
}

type driverConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type conn struct {
	driverConn
	line *line
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	lost := c.line.note(query)
	result, err := c.driverConn.ExecContext(ctx, query, args)
	if lost {
		return nil, errors.Join(driver.ErrBadConn, c.Close())
	}
	return result, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.line.note(query)
	return c.driverConn.QueryContext(ctx, query, args)
}

// number is a question for the n of a row.
func number(id int, into *int) dbtx.Question {
	return func(ctx context.Context, db dbtx.DBTX) error {
		return db.QueryRowContext(ctx, "SELECT n FROM t WHERE id = ?", id).Scan(into)
	}
}

func add(tx *dbtx.Tx, id int) { tx.Collect("INSERT INTO t (id) VALUES (?)", []any{id}, 1) }

func TestACommitNeedsEveryWriteToChangeItsRows(t *testing.T) {
	for name, c := range map[string]struct {
		collect func(tx *dbtx.Tx)
		judge   func(err error) bool
	}{
		"fewer": {func(tx *dbtx.Tx) {
			tx.Collect("UPDATE t SET n = 1 WHERE id IN (1, 7)", nil, 2)
		}, func(err error) bool { return errors.Is(err, dbtx.ErrLost) }},
		"more": {func(tx *dbtx.Tx) {
			tx.Collect("UPDATE t SET n = 1", nil, 1)
		}, func(err error) bool {
			return !errors.Is(err, dbtx.ErrLost) && strings.Contains(err.Error(), "invariant broken")
		}},
		"fewer in a later statement": {func(tx *dbtx.Tx) {
			add(tx, 3)
			tx.Collect("UPDATE t SET n = 1 WHERE id = 7", nil, 1)
			add(tx, 4)
		}, func(err error) bool { return errors.Is(err, dbtx.ErrLost) && strings.Contains(err.Error(), "UPDATE t") }},
		"one for another": {func(tx *dbtx.Tx) {
			tx.Collect("UPDATE t SET n = 1 WHERE id = 7", nil, 1)
			tx.Collect("UPDATE t SET n = 1", nil, 1)
		}, func(err error) bool { return errors.Is(err, dbtx.ErrLost) }},
		"an error in a later statement": {func(tx *dbtx.Tx) {
			add(tx, 3)
			add(tx, 1)
			add(tx, 4)
		}, dbtx.IsDuplicate},
		"no SQL at all": {func(tx *dbtx.Tx) {
			add(tx, 3)
			tx.Collect("FRESH BREAD", nil, 1)
		}, func(err error) bool { return err != nil && !dbtx.IsAway(err) }},
	} {
		for _, sent := range []string{"at the end", "before a statement", "by itself"} {
			t.Run(name+", sent "+sent, func(t *testing.T) {
				b := newBench(t, 1)
				committed := false
				err := b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error {
					tx.OnCommit(func() { committed = true })
					c.collect(tx)
					switch sent {
					case "by itself":
						return tx.Send(ctx)
					case "before a statement":
						var n int
						return tx.QueryRowContext(ctx, "SELECT 1").Scan(&n)
					}
					return nil
				})
				if err == nil || !c.judge(err) {
					t.Errorf("answered %v", err)
				}
				if got := b.rows(t); got != untouched || committed {
					t.Errorf("the table has %s, committed: %t", got, committed)
				}
				if sent := b.line.take(); slices.Contains(sent, "COMMIT") || sent[len(sent)-1] != "ROLLBACK" {
					t.Errorf("sent %q", sent)
				}
			})
		}
	}
}

func TestWhatIsCollectedIsSentTogetherAndInOrder(t *testing.T) {
	b := newBench(t, 1)
	var first, second int
	err := b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error {
		add(tx, 3)
		tx.Collect("UPDATE t SET n = n + 1 WHERE id = ?", []any{3}, 1)
		if _, err := tx.Later(1).ExecContext(ctx, "UPDATE t SET n = n * 10 WHERE id = ?", 3); err != nil {
			return err
		}
		if err := tx.Ask(ctx, number(3, &second)); err != nil {
			return err
		}
		tx.Collect("UPDATE t SET n = n + 2 WHERE id = ?", []any{3}, 1)
		return nil
	}, number(1, &first))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.rows(t); got != untouched+",3=12" || second != 10 {
		t.Fatalf("%s, and %d on the way", got, second)
	}
	sent := b.line.take()
	if len(sent) != 5 || !strings.HasPrefix(sent[0], "START TRANSACTION;\n") || strings.Count(sent[1], ";\n") != 2 || sent[4] != "COMMIT" {
		t.Fatalf("sent %q", sent)
	}
}

func TestPacketsAreCut(t *testing.T) {
	for _, c := range []struct {
		sizes   []int
		packets []int // how many statements each has
	}{
		{[]int{10, 10, 10}, []int{3}},
		{[]int{1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}, []int{3, 2}}, // with what else a row takes, four are too many
		{[]int{6 << 20, 10, 10}, []int{1, 2}},
		{[]int{10, 6 << 20, 10}, []int{1, 1, 1}},
	} {
		t.Run(fmt.Sprint(c.sizes), func(t *testing.T) {
			b := newBench(t, 1)
			if err := b.Run(t.Context(), "test", func(_ context.Context, tx *dbtx.Tx) error {
				for i, size := range c.sizes {
					tx.Collect("INSERT INTO t (id, text) VALUES (?, ?)", []any{10 + i, strings.Repeat("x", size)}, 1)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			var packets []int
			for _, p := range b.line.take() {
				if n := strings.Count(p, "INSERT"); n > 0 {
					packets = append(packets, n)
				}
			}
			if !slices.Equal(packets, c.packets) {
				t.Errorf("packets of %v statements, want %v", packets, c.packets)
			}
			var sum int
			if err := b.watch.QueryRowContext(t.Context(), "SELECT SUM(LENGTH(text)) FROM t").Scan(&sum); err != nil {
				t.Fatal(err)
			}
			for _, size := range c.sizes {
				sum -= size
			}
			if sum != 0 {
				t.Errorf("%d bytes too many arrived", sum)
			}
		})
	}
}

// What texts hold is no SQL, wherever packets are joined.
func TestTextsSurviveAPacket(t *testing.T) {
	b := newBench(t, 1)
	texts := []string{"';\nDROP TABLE t;\n--", "?", "\\", "\x00\r\n\x1a\"`", "ä🜁", ";\n"}
	if err := b.Run(t.Context(), "test", func(_ context.Context, tx *dbtx.Tx) error {
		for i, text := range texts {
			tx.Collect("INSERT INTO t (id, text) VALUES (?, ?)", []any{10 + i, text}, 1)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range texts {
		var got string
		if err := b.Run(t.Context(), "test", func(context.Context, *dbtx.Tx) error { return nil }, func(ctx context.Context, db dbtx.DBTX) error {
			return db.QueryRowContext(ctx, "SELECT text FROM t WHERE id = ? AND text = ?", 10+i, want).Scan(&got)
		}); err != nil || got != want {
			t.Errorf("%q came back as %q, %v", want, got, err)
		}
	}
}

func TestQuestionsAreAnsweredInOnePacket(t *testing.T) {
	b := newBench(t, 1)
	type answers struct {
		all   []int
		text  sql.NullString
		bytes []byte
		at    time.Time
		none  error
		n     int
	}
	var got answers
	asksNothing := 0
	questions := []dbtx.Question{
		func(ctx context.Context, db dbtx.DBTX) error {
			got.all = nil
			rows, err := db.QueryContext(ctx, "SELECT id FROM t WHERE id < ? ORDER BY id", 10)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id int
				if err := rows.Scan(&id); err != nil {
					return err
				}
				got.all = append(got.all, id)
			}
			return rows.Err()
		},
		func(context.Context, dbtx.DBTX) error { asksNothing++; return errors.New("ignored") },
		func(ctx context.Context, db dbtx.DBTX) error {
			return db.QueryRowContext(ctx, "SELECT text, UNHEX('00ff27'), CAST('2030-01-02 03:04:05.678901' AS DATETIME(6)) FROM t WHERE id = ?", 1).Scan(&got.text, &got.bytes, &got.at)
		},
		func(ctx context.Context, db dbtx.DBTX) error {
			got.none = db.QueryRowContext(ctx, "SELECT n FROM t WHERE id = 7").Scan(new(int))
			return nil
		},
		number(2, &got.n),
	}
	for round := range 2 {
		got.n = 9
		if err := b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error {
			if round == 1 {
				return tx.Ask(ctx, questions...)
			}
			return nil
		}, questions[:5*(1-round)]...); err != nil {
			t.Fatal(err)
		}
		at := time.Date(2030, 1, 2, 3, 4, 5, 678901000, time.UTC)
		if !slices.Equal(got.all, []int{1, 2}) || got.text.Valid || string(got.bytes) != "\x00\xff'" || !got.at.Equal(at) || !errors.Is(got.none, sql.ErrNoRows) || got.n != 0 {
			t.Fatalf("%+v", got)
		}
		if sent := b.line.take(); len(sent) != 2+round {
			t.Fatalf("%d packets: %q", len(sent), sent)
		}
	}
	if asksNothing != 2 {
		t.Fatalf("a question that asks nothing was called %d times in 2 rounds", asksNothing)
	}
}

func TestAnImpossibleQuestionIsRefusedUnsent(t *testing.T) {
	two := func(ctx context.Context, db dbtx.DBTX) error {
		_ = db.QueryRowContext(ctx, "SELECT 1").Scan(new(int))
		return db.QueryRowContext(ctx, "SELECT 2").Scan(new(int))
	}
	b := newBench(t, 1)
	called := false
	if err := b.Run(t.Context(), "test", func(context.Context, *dbtx.Tx) error { called = true; return nil }, two); err == nil || called {
		t.Errorf("two questions in one were answered: %v", err)
	}
	if err := b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error {
		add(tx, 3)
		return tx.Ask(ctx, two)
	}); err == nil {
		t.Error("two questions in one were answered")
	}
	writes := func(ctx context.Context, db dbtx.DBTX) error {
		_, err := db.ExecContext(ctx, "INSERT INTO t (id) VALUES (3)")
		return err
	}
	if err := b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error { return tx.Ask(ctx, writes) }); err != nil {
		t.Error(err) // it asks nothing
	}
	if got := b.rows(t); got != untouched {
		t.Errorf("the table has %s", got)
	}
}

// After a question that fails, none is carried out, and those before it have their answers.
func TestQuestionsEndAtTheFirstThatFails(t *testing.T) {
	b := newBench(t, 1)
	held, err := b.watch.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback() }()
	if _, err := held.ExecContext(t.Context(), "UPDATE t SET n = 1 WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	lock := func(id int, wait string, into *int) dbtx.Question {
		return func(ctx context.Context, db dbtx.DBTX) error {
			return db.QueryRowContext(ctx, "SELECT id FROM t WHERE id = ? FOR UPDATE"+wait, id).Scan(into)
		}
	}
	for wait, judge := range map[string]func(error) bool{" NOWAIT": dbtx.IsLockedNow, "": dbtx.IsLockWait} {
		var before, at, after int
		called := false
		err := b.Run(t.Context(), "test", func(context.Context, *dbtx.Tx) error { called = true; return nil },
			number(2, &before), lock(2, "", &before), lock(1, wait, &at), lock(2, "", &after))
		if !judge(err) || called || before != 2 || at != 0 || after != 0 {
			t.Errorf("answered %v; before %d, at it %d, after %d", err, before, at, after)
		}
		before = 0
		err = b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error {
			return tx.Ask(ctx, lock(2, "", &before), lock(1, wait, &at), lock(2, "", &after))
		})
		if !judge(err) || before != 2 || at != 0 || after != 0 {
			t.Errorf("answered %v; before %d, at it %d, after %d", err, before, at, after)
		}
	}
}

func TestAPanicLeavesNoConnectionAndNoTransactionBehind(t *testing.T) {
	panics := func(context.Context, dbtx.DBTX) error { panic("broken") }
	for name, c := range map[string]struct {
		fn    func(ctx context.Context, tx *dbtx.Tx) error
		first []dbtx.Question
		ends  bool // fn was reached, and hears of the end
	}{
		"in the transaction":  {fn: func(context.Context, *dbtx.Tx) error { panic("broken") }, ends: true},
		"in a question":       {fn: func(ctx context.Context, tx *dbtx.Tx) error { return tx.Ask(ctx, panics) }, ends: true},
		"in a first question": {first: []dbtx.Question{panics}},
		"in a first answer": {first: []dbtx.Question{func(ctx context.Context, db dbtx.DBTX) error {
			if db.QueryRowContext(ctx, "SELECT 1").Scan(new(int)) == nil {
				panic("broken")
			}
			return nil
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			var ends []error
			func() {
				defer func() {
					if p := recover(); p != "broken" {
						t.Errorf("the caller got %v", p)
					}
				}()
				_ = b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error {
					tx.OnEnd(func(err error) { ends = append(ends, err) })
					add(tx, 3)
					if err := tx.Send(ctx); err != nil {
						return err
					}
					return c.fn(ctx, tx)
				}, c.first...)
			}()
			if c.ends != (len(ends) == 1 && ends[0] != nil) || !c.ends && len(ends) > 0 {
				t.Errorf("ended with %v", ends)
			}
			if got := b.rows(t); got != untouched {
				t.Errorf("the table has %s", got)
			}
			b.Timeout = 5 * time.Second // the only connection must be there
			if err := b.Run(t.Context(), "test", func(context.Context, *dbtx.Tx) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheEndOfATransactionIsToldOnceARun(t *testing.T) {
	deadlock := &mysql.MySQLError{Number: 1213}
	for name, c := range map[string]struct {
		cut   string
		fail  []error // by run
		told  string
		judge func(err error) bool
	}{
		"committed": {"", []error{nil}, "commit, end <nil>", func(err error) bool { return err == nil }},
		"refused":   {"", []error{dbtx.ErrLost}, "end lost the swap", func(err error) bool { return errors.Is(err, dbtx.ErrLost) }},
		"run again": {"", []error{deadlock, nil}, "end Error 1213: , commit, end <nil>", func(err error) bool { return err == nil }},
		"unknown": {"COMMIT", []error{nil}, "end test: commit: driver: bad connection", func(err error) bool {
			var unknown *dbtx.UnknownCommit
			return errors.As(err, &unknown)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2)
			b.line.cut = c.cut
			var told []string
			run := 0
			err := b.Run(t.Context(), "test", func(_ context.Context, tx *dbtx.Tx) error {
				tx.OnEnd(func(err error) { told = append(told, fmt.Sprint("end ", err)) })
				tx.OnCommit(func() { told = append(told, "commit") })
				run++
				return c.fail[run-1]
			})
			if !c.judge(err) || strings.Join(told, ", ") != c.told || run != len(c.fail) {
				t.Errorf("%d runs answered %v and told %q", run, err, told)
			}
		})
	}
}

// A deadlock that a packet meets is one, however the packet comes to be sent.
func TestADeadlockOfAPacketRunsTheTransactionAgain(t *testing.T) {
	b := newBench(t, 2)
	runs := 0
	err := b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error {
		if runs++; runs > 1 {
			return nil
		}
		if err := tx.Ask(ctx, func(ctx context.Context, db dbtx.DBTX) error {
			return db.QueryRowContext(ctx, "SELECT id FROM t WHERE id = 1 FOR UPDATE").Scan(new(int))
		}); err != nil {
			return err
		}
		rival := make(chan error, 1)
		go func() { rival <- b.deadlockWith(ctx) }()
		tx.Collect("UPDATE t SET n = 5 WHERE id = 2", nil, 1) // which the rival holds, once it waits for row 1
		for waiting := 0; waiting == 0; {
			if err := b.watch.QueryRowContext(ctx, "SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_schema = ? AND lock_status = 'WAITING'", b.name).Scan(&waiting); err != nil {
				return err
			}
		}
		err := tx.QueryRowContext(ctx, "SELECT 1").Scan(new(int))
		if !dbtx.IsDeadlock(err) {
			t.Errorf("answered %v", err)
		}
		if err := <-rival; err != nil {
			t.Errorf("the rival was answered %v", err)
		}
		return err
	})
	if err != nil || runs != 2 {
		t.Fatalf("%d runs answered %v", runs, err)
	}
}

// deadlockWith takes row 2, heavily enough not to be the victim, and then row 1.
func (b *bench) deadlockWith(ctx context.Context) error {
	tx, err := b.watch.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, s := range []string{"INSERT INTO t (id) SELECT 1000 + help_topic_id FROM mysql.help_topic LIMIT 100", "UPDATE t SET n = 1 WHERE id = 2", "UPDATE t SET n = 1 WHERE id = 1"} {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// The server hangs in the middle: the caller is answered in time, and the connection is not used again.
func TestATransactionThatTakesTooLongGivesItsConnectionUp(t *testing.T) {
	for name, hang := range map[string]func(ctx context.Context, tx *dbtx.Tx) error{
		"in a statement": func(ctx context.Context, tx *dbtx.Tx) error {
			_, err := tx.ExecContext(ctx, "DO SLEEP(60)")
			return err
		},
		"in a query": func(ctx context.Context, tx *dbtx.Tx) error {
			return tx.QueryRowContext(ctx, "SELECT SLEEP(60)").Scan(new(int))
		},
		"in a question": func(ctx context.Context, tx *dbtx.Tx) error {
			return tx.Ask(ctx, func(ctx context.Context, db dbtx.DBTX) error {
				return db.QueryRowContext(ctx, "SELECT SLEEP(60)").Scan(new(int))
			})
		},
		"in the last packet": func(_ context.Context, tx *dbtx.Tx) error {
			tx.Collect("UPDATE t SET n = SLEEP(60) + 1 WHERE id = 1", nil, 1)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			b.Timeout = 300 * time.Millisecond
			var stuck int64
			id := func(ctx context.Context, db dbtx.DBTX) error {
				return db.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&stuck)
			}
			var ends []error
			err := b.Run(t.Context(), "test", func(ctx context.Context, tx *dbtx.Tx) error {
				tx.OnEnd(func(err error) { ends = append(ends, err) })
				add(tx, 3)
				return hang(ctx, tx)
			}, id)
			if !errors.Is(err, context.DeadlineExceeded) || !dbtx.IsAway(err) || len(ends) != 1 || !errors.Is(ends[0], context.DeadlineExceeded) {
				t.Fatalf("answered %v, and ended with %v", err, ends)
			}
			b.Timeout = 30 * time.Second
			before := stuck
			if err := b.Run(t.Context(), "test", func(context.Context, *dbtx.Tx) error { return nil }, id); err != nil || stuck == before {
				t.Fatalf("the next transaction is on connection %d after %d: %v", stuck, before, err)
			}
			if s := b.DB.Stats(); s.OpenConnections != 1 {
				t.Errorf("%+v", s)
			}
			if _, err := b.watch.ExecContext(t.Context(), fmt.Sprint("KILL ", before)); err != nil { // as the server does once it notices
				t.Error(err)
			}
			if _, err := b.watch.ExecContext(t.Context(), "UPDATE t SET n = n WHERE id IN (1, 2)"); err != nil { // waits for its locks
				t.Error(err)
			}
			if got := b.rows(t); got != untouched {
				t.Errorf("the table has %s", got)
			}
		})
	}
}

// Connections that the server has ended are replaced before anything is done, not noticed in the midst of it.
func TestATransactionBeginsOnALivingConnection(t *testing.T) {
	b := newBench(t, 2)
	nothing := func(context.Context, *dbtx.Tx) error { return nil }
	for range 3 {
		var id int64
		if err := b.Run(t.Context(), "test", nothing, func(ctx context.Context, db dbtx.DBTX) error {
			return db.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id)
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.watch.ExecContext(t.Context(), fmt.Sprint("KILL ", id)); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.DB.Stats(); s.OpenConnections > 2 {
		t.Errorf("%+v", s)
	}
}
