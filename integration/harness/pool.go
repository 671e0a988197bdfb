package harness

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/orbit-run/orbit/schema"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
)

// A migration takes half a second, emptying a database a tenth of that: so databases go round, and one is migrated
// beforehand while the tests before it run.
type pool struct {
	dsn    string
	server *sql.DB
	own    *Server // nil where the server is not this process's to remove
	prefix string
	count  atomic.Int64

	template string      // a migrated database that no test touches
	seeded   []string    // its tables that have rows
	emptied  chan string // databases that tests have given back
	migrated chan migrated
	kept     sync.Map // names of databases that failed tests leave to be looked at
}

type migrated struct {
	name string
	err  error
}

var shared struct {
	once sync.Once
	pool *pool
	err  error
}

func sharedPool(t testing.TB) *pool {
	t.Helper()
	shared.once.Do(func() {
		quieten()
		// Not the test's context: the pool outlives the test that happens to be first.
		shared.pool, shared.err = newPool(context.WithoutCancel(t.Context()))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.pool
}

// quieten turns off what the driver and testcontainers log besides returning it: while a server starts, that is a
// screenful for each.
func quieten() {
	tclog.SetDefault(tclog.NewNoopLogger())
	_ = mysql.SetLogger(&mysql.NopLogger{}) // fails only on nil
}

// Main runs the tests of a binary, removes what they left on the server, and exits; or it is a Process of another run of the binary.
func Main(m *testing.M) {
	if options := os.Getenv(processVariable); options != "" {
		if err := runProcess(options); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
	code := m.Run()
	if shared.pool != nil {
		if err := shared.pool.remove(); err != nil {
			log.Printf("remove the tests' databases: %v", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func newPool(ctx context.Context) (*pool, error) {
	p := &pool{
		dsn:      os.Getenv("ORBIT_TEST_DSN"),
		prefix:   "test_" + strings.ToLower(rand.Text()[:8]) + "_",
		emptied:  make(chan string, 1024),
		migrated: make(chan migrated),
	}
	if p.dsn == "" {
		server, err := sharedServer(ctx)
		if err != nil {
			return nil, err
		}
		p.dsn = server.DSN
		if os.Getenv("ORBIT_TEST_MYSQL_CONTAINER") == "" {
			p.own = server
		}
	}
	if _, err := mysql.ParseDSN(p.dsn); err != nil {
		return nil, fmt.Errorf("ORBIT_TEST_DSN: %w (want root:password@tcp(host:3306)/)", err)
	}
	var err error
	if p.server, err = sql.Open("mysql", p.dsn); err != nil {
		return nil, err
	}
	if p.template, err = p.migrate(ctx); err != nil {
		return nil, err
	}
	if p.seeded, err = p.tables(ctx, p.template, true); err != nil {
		return nil, err
	}
	go p.fill(ctx)
	return p, nil
}

// sharedServer keeps its data in memory: commits are as durable as the settings say, and cost what they would without.
func sharedServer(ctx context.Context) (*Server, error) {
	options := []testcontainers.ContainerCustomizer{
		testcontainers.WithTmpfs(map[string]string{"/var/lib/mysql": "rw"}),
	}
	if name := os.Getenv("ORBIT_TEST_MYSQL_CONTAINER"); name != "" {
		options = append(options, testcontainers.WithReuseByName(name))
	}
	return startServer(ctx, nil, options...)
}

// fill keeps one migrated database ready, until the process ends.
func (p *pool) fill(ctx context.Context) {
	for {
		name, err := p.migrate(ctx)
		p.migrated <- migrated{name, err}
	}
}

func (p *pool) migrate(ctx context.Context) (string, error) {
	name, err := p.create(ctx)
	if err != nil {
		return "", err
	}
	return name, schema.Up(ctx, databaseDSN(p.dsn, name), schema.UpOptions{Program: "integration tests"})
}

func (p *pool) create(ctx context.Context) (string, error) {
	name := fmt.Sprint(p.prefix, p.count.Add(1))
	return name, createDatabase(ctx, p.server, name)
}

// take prefers a database that was given back, and passes over one that somebody still talks to.
func (p *pool) take(ctx context.Context) (string, error) {
	for {
		select {
		case name := <-p.emptied:
			sessions, err := p.sessions(ctx, name)
			if err != nil {
				return "", err
			}
			if len(sessions) == 0 {
				return name, nil
			}
			log.Printf("harness: something that an ended test started still uses database %s; it is not used again", name)
		default:
			select {
			case next := <-p.migrated:
				return next.name, next.err
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
	}
}

// giveBack makes name as a migration leaves it. It first ends the sessions on it, such as those of a killed process,
// whose statements may still run.
func (p *pool) giveBack(name string) error {
	ctx := context.Background()
	sessions, err := p.sessions(ctx, name)
	if err != nil {
		return err
	}
	for _, id := range sessions {
		if _, err := p.server.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err != nil && !isGone(err) {
			return fmt.Errorf("end session %d on %s: %w", id, name, err)
		}
	}
	if err := p.empty(ctx, name); err != nil {
		return err
	}
	p.emptied <- name
	return nil
}

func (p *pool) empty(ctx context.Context, name string) error {
	tables, err := p.tables(ctx, name, false)
	if err != nil {
		return err
	}
	conn, err := p.server.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	statements := []string{"SET SESSION foreign_key_checks = 0"}
	for _, table := range tables {
		statements = append(statements, fmt.Sprintf("DELETE FROM `%s`.`%s`", name, table))
	}
	for _, table := range p.seeded {
		statements = append(statements, fmt.Sprintf("INSERT INTO `%s`.`%s` SELECT * FROM `%s`.`%[2]s`", name, table, p.template))
	}
	statements = append(statements, "SET SESSION foreign_key_checks = 1")
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (p *pool) drop(name string) error {
	_, err := p.server.ExecContext(context.Background(), "DROP DATABASE IF EXISTS "+name)
	return err
}

// remove takes away the server, or this process's databases where the server is somebody else's.
func (p *pool) remove() error {
	defer p.server.Close()
	if p.own != nil {
		return testcontainers.TerminateContainer(p.own.container, testcontainers.StopTimeout(0))
	}
	if os.Getenv("ORBIT_TEST_DSN") == "" {
		return nil // the container goes with all that is in it
	}
	var failures []error
	for i := range p.count.Load() {
		name := fmt.Sprint(p.prefix, i+1)
		if _, kept := p.kept.Load(name); !kept {
			failures = append(failures, p.drop(name))
		}
	}
	return errors.Join(failures...)
}

// sessions are those whose database is name.
func (p *pool) sessions(ctx context.Context, name string) ([]int64, error) {
	rows, err := p.server.QueryContext(ctx, "SELECT ID FROM performance_schema.processlist WHERE DB = ?", name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// tables are those of a database, or only those with rows.
func (p *pool) tables(ctx context.Context, name string, withRows bool) ([]string, error) {
	rows, err := p.server.QueryContext(ctx,
		"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME", name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return nil, err
		}
		if withRows {
			var found bool
			if err := p.server.QueryRowContext(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM `%s`.`%s`)", name, table)).Scan(&found); err != nil {
				return nil, err
			}
			if !found {
				continue
			}
		}
		tables = append(tables, table)
	}
	return tables, rows.Err()
}

// isGone says that a session had ended before it was killed.
func isGone(err error) bool {
	var failure *mysql.MySQLError
	return errors.As(err, &failure) && failure.Number == 1094
}
