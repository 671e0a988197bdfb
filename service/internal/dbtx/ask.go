package dbtx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/orbit-run/orbit/gen/db/platformdb"
)

// DBTX is the connection of generated queries.
type DBTX = platformdb.DBTX

// Question is a read that travels with others in one packet: a call of exactly one generated query on db, which keeps its result. It is called twice,
// first to learn what it asks, when it gets nothing and its error is ignored, and then to take the answer. A question that calls no query
// has no answer and is not called again.
//
// The server carries the questions out one after the other, each as a statement of its own: a locking read sees and holds what it would
// alone, and the locks are taken in the order of the questions. After the first that fails, none is carried out.
type Question func(ctx context.Context, db DBTX) error

// Ask sends what was collected, and asks questions in one round trip.
func (tx *Tx) Ask(ctx context.Context, questions ...Question) error {
	if err := tx.Send(ctx); err != nil {
		return err
	}
	return tx.ask(ctx, "", questions)
}

// ask puts an opening, which may be empty and answers nothing, in front of the questions.
func (tx *Tx) ask(ctx context.Context, opening string, questions []Question) error {
	asked := &listener{}
	var open []Question
	for _, q := range questions {
		before := len(asked.statements)
		_ = q(ctx, asked)
		switch len(asked.statements) - before {
		case 0:
		case 1:
			open = append(open, q)
		default:
			return errors.New("a question asks more than one thing")
		}
	}
	if len(open) == 0 && opening == "" {
		return nil
	}
	answers, err := tx.queryAll(ctx, opening+strings.Join(asked.statements, ";\n"), asked.args)
	for i, q := range open {
		if i >= len(answers) {
			return err
		}
		if err := q(ctx, answer{answers[i]}); err != nil {
			return err
		}
	}
	return err
}

// queryAll answers the rows of each statement of a packet that has some, as far as it was carried out.
func (tx *Tx) queryAll(ctx context.Context, query string, args []any) (answers []*table, err error) {
	err = tx.conn.Raw(func(raw any) error {
		named, err := nameValues(raw.(driver.NamedValueChecker), args)
		if err != nil {
			return err
		}
		rows, err := raw.(driver.QueryerContext).QueryContext(ctx, query, named)
		if err != nil {
			return err
		}
		answers, err = readTables(rows)
		return errors.Join(err, rows.Close())
	})
	return answers, err
}

func readTables(rows driver.Rows) (tables []*table, err error) {
	for {
		t, err := readTable(rows)
		if err != nil {
			return tables, err
		}
		tables = append(tables, t)
		if err := rows.(driver.RowsNextResultSet).NextResultSet(); errors.Is(err, io.EOF) {
			return tables, nil
		} else if err != nil {
			return tables, err
		}
	}
}

// nameValues makes arguments what the driver takes.
func nameValues(checker driver.NamedValueChecker, args []any) ([]driver.NamedValue, error) {
	named := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
		if err := checker.CheckNamedValue(&named[i]); err != nil {
			return nil, err
		}
	}
	return named, nil
}

// listener learns what a question asks.
type listener struct {
	statements []string
	args       []any
}

var errAsked = errors.New("asked; there is no answer yet")

func (l *listener) QueryContext(_ context.Context, query string, args ...any) (*sql.Rows, error) {
	l.hear(query, args)
	return nil, errAsked
}

func (l *listener) hear(query string, args []any) {
	l.statements = append(l.statements, query)
	l.args = append(l.args, args...)
}

func (l *listener) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	l.hear(query, args)
	return answer{nil}.QueryRowContext(ctx, query)
}

func (l *listener) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errOnlyReads
}

func (l *listener) PrepareContext(context.Context, string) (*sql.Stmt, error) {
	return nil, errOnlyReads
}

var errOnlyReads = errors.New("a question reads")

// answer is the connection on which a question finds its answer.
type answer struct{ *table }

func (a answer) QueryContext(ctx context.Context, _ string, _ ...any) (*sql.Rows, error) {
	return replay.QueryContext(context.WithValue(ctx, answerKey{}, a.table), "")
}

func (a answer) QueryRowContext(ctx context.Context, _ string, _ ...any) *sql.Row {
	return replay.QueryRowContext(context.WithValue(ctx, answerKey{}, a.table), "")
}

func (a answer) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errOnlyReads
}

func (a answer) PrepareContext(context.Context, string) (*sql.Stmt, error) { return nil, errOnlyReads }

// table is the rows of a statement.
type table struct {
	columns []string
	rows    [][]driver.Value
}

func readTable(rows driver.Rows) (*table, error) {
	t := &table{columns: slices.Clone(rows.Columns())}
	for {
		row := make([]driver.Value, len(t.columns))
		if err := rows.Next(row); errors.Is(err, io.EOF) {
			return t, nil
		} else if err != nil {
			return nil, err
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = slices.Clone(b) // the driver's is good until the next row
			}
		}
		t.rows = append(t.rows, row)
	}
}

// replay gives rows that were read already to code that takes them from database/sql. Nothing is connected to: the context of a query carries
// its answer.
var replay = sql.OpenDB(replayer{})

type answerKey struct{}

type replayer struct{}

func (r replayer) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r replayer) Driver() driver.Driver                        { return nil }
func (r replayer) Prepare(string) (driver.Stmt, error)          { return nil, errOnlyReads }
func (r replayer) Begin() (driver.Tx, error)                    { return nil, errOnlyReads }
func (r replayer) Close() error                                 { return nil }

func (r replayer) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	switch a := ctx.Value(answerKey{}).(type) {
	case *table:
		if a != nil {
			return &replayed{table: a}, nil
		}
	case error:
		return nil, a
	}
	return nil, errAsked
}

// failedRow is the answer of a query that was not sent, which database/sql has no other way to make.
func failedRow(ctx context.Context, err error) *sql.Row {
	return replay.QueryRowContext(context.WithValue(ctx, answerKey{}, err), "")
}

type replayed struct {
	*table
	next int
}

func (r *replayed) Columns() []string { return r.columns }
func (r *replayed) Close() error      { return nil }

func (r *replayed) Next(into []driver.Value) error {
	if r.next == len(r.rows) {
		return io.EOF
	}
	if n := copy(into, r.rows[r.next]); n != len(into) {
		return fmt.Errorf("a row has %d of %d columns", n, len(into))
	}
	r.next++
	return nil
}
