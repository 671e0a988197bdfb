package harness

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Statement is what a service sends to its database: SQL with the name of its query in front, or one of BEGIN, COMMIT and
// ROLLBACK.
type Statement string

// Name is the name of the query, or the first word of a statement that has none.
func (s Statement) Name() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(string(s), "-- name: "), " ")
	return name
}

// The statements without SQL.
const (
	Begin    Statement = "BEGIN"
	Commit   Statement = "COMMIT"
	Rollback Statement = "ROLLBACK"
)

// Around makes a pool call do around every statement: do runs it or does not, and the pool gets what do returns. It is for
// schema.PoolOptions.Between. Opening a connection is no statement.
func Around(do func(s Statement, run func() error) error) func(driver.Connector) driver.Connector {
	return func(inner driver.Connector) driver.Connector { return &connector{Connector: inner, do: do} }
}

// Watch shows every statement with SQL and its arguments, before it is sent. It is for schema.PoolOptions.Between.
func Watch(see func(s Statement, args []driver.NamedValue)) func(driver.Connector) driver.Connector {
	return func(inner driver.Connector) driver.Connector {
		return &connector{Connector: inner, do: func(_ Statement, run func() error) error { return run() }, see: see}
	}
}

type connector struct {
	driver.Connector
	do  func(s Statement, run func() error) error
	see func(s Statement, args []driver.NamedValue)
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &connection{driverConn: inner.(driverConn), do: c.do, see: c.see}, nil
}

// driverConn is what the MySQL driver's connections are.
type driverConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type connection struct {
	driverConn
	do  func(s Statement, run func() error) error
	see func(s Statement, args []driver.NamedValue)
}

func (c *connection) show(query string, args []driver.NamedValue) {
	if c.see != nil {
		c.see(Statement(query), args)
	}
}

// errPrepared: the service interpolates its parameters, so that a statement is one round trip. One that cannot be is to be seen here
// rather than to go by uncounted.
var errPrepared = errors.New("harness: a statement was prepared on the server")

func (c *connection) Prepare(string) (driver.Stmt, error) { return nil, errPrepared }

// ExecContext sends statement by statement what the service sends in one packet, so that a test can come in between: to the server and
// to the rows it is the same.
func (c *connection) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	var changed counts
	for _, p := range split(query, args) {
		c.show(p.query, p.args)
		err := c.do(Statement(p.query), func() error {
			result, err := c.driverConn.ExecContext(ctx, p.query, p.args)
			if err == nil {
				changed = append(changed, result.(mysql.Result).AllRowsAffected()...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// QueryContext does the same for questions.
func (c *connection) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	answers := &answers{}
	for _, p := range split(query, args) {
		if p.query == "START TRANSACTION" {
			if err := c.do(Begin, func() error {
				_, err := c.driverConn.ExecContext(ctx, p.query, nil)
				return err
			}); err != nil {
				return nil, err
			}
			continue
		}
		c.show(p.query, p.args)
		before := len(answers.tables)
		if err := c.do(Statement(p.query), func() error {
			rows, err := c.driverConn.QueryContext(ctx, p.query, p.args)
			if err != nil {
				return err
			}
			return answers.read(rows)
		}); err != nil {
			answers.failed, answers.tables = err, answers.tables[:before]
			break
		}
	}
	if answers.failed != nil && len(answers.tables) == 0 {
		return nil, answers.failed
	}
	return answers, nil
}

// answers are the rows of the statements of a packet, as far as they were carried out.
type answers struct {
	tables []answer
	at     int // the one that is read
	next   int // row of it
	failed error
}

type answer struct {
	columns []string
	rows    [][]driver.Value
}

func (a *answers) read(rows driver.Rows) error {
	t := answer{columns: rows.Columns()}
	for {
		row := make([]driver.Value, len(t.columns))
		if err := rows.Next(row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return errors.Join(err, rows.Close())
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = bytes.Clone(b)
			}
		}
		t.rows = append(t.rows, row)
	}
	a.tables = append(a.tables, t)
	return rows.Close()
}

func (a *answers) Columns() []string { return a.tables[a.at].columns }
func (a *answers) Close() error      { return nil }

func (a *answers) Next(into []driver.Value) error {
	if a.next == len(a.tables[a.at].rows) {
		return io.EOF
	}
	copy(into, a.tables[a.at].rows[a.next])
	a.next++
	return nil
}

func (a *answers) HasNextResultSet() bool { return a.at+1 < len(a.tables) || a.failed != nil }

func (a *answers) NextResultSet() error {
	switch {
	case a.at+1 < len(a.tables):
		a.at, a.next = a.at+1, 0
		return nil
	case a.failed != nil:
		return a.failed
	}
	return io.EOF
}

type part struct {
	query string
	args  []driver.NamedValue
}

// split parts a packet into its statements, which the service joins by a semicolon at the end of a line.
func split(query string, args []driver.NamedValue) (parts []part) {
	for text := range strings.SplitSeq(query, ";\n") {
		n := strings.Count(text, "?")
		parts = append(parts, part{text, args[:n]})
		args = args[n:]
	}
	return parts
}

// counts are the rows that the statements of a packet changed.
type counts []int64

func (c counts) AllRowsAffected() []int64     { return c }
func (c counts) AllLastInsertIds() []int64    { return nil }
func (c counts) LastInsertId() (int64, error) { return 0, errors.New("harness: not kept") }
func (c counts) RowsAffected() (int64, error) { return c[len(c)-1], nil }
