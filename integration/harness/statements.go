package harness

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
)

// Statement is one round trip of a service to its database: SQL with the name of its query in front, or one of BEGIN, COMMIT and
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
	driver.ConnBeginTx
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

func (c *connection) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	var tx driver.Tx
	err := c.do(Begin, func() (err error) {
		tx, err = c.driverConn.BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &transaction{inner: tx, do: c.do}, nil
}

func (c *connection) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.show(query, args)
	var result driver.Result
	err := c.do(Statement(query), func() (err error) {
		result, err = c.driverConn.ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c *connection) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.show(query, args)
	var rows driver.Rows
	err := c.do(Statement(query), func() (err error) {
		rows, err = c.driverConn.QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}

type transaction struct {
	inner driver.Tx
	do    func(s Statement, run func() error) error
}

func (t *transaction) Commit() error   { return t.do(Commit, t.inner.Commit) }
func (t *transaction) Rollback() error { return t.do(Rollback, t.inner.Rollback) }
