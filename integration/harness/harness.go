// Package harness gives each integration test a migrated MySQL database of its own.
//
// The server is that of ORBIT_TEST_DSN (a DSN of root without a database) where it is set; else a container that the
// first test starts through testcontainers. A test binary whose tests use it has
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// which removes what the binary started. With ORBIT_TEST_MYSQL_CONTAINER set to a name, all test binaries share one
// container of that name, and whoever set the variable removes it.
package harness

import (
	"database/sql"
	"testing"

	"github.com/orbit-run/orbit/schema"
)

// Database is a database that no other test uses, at this program's schema version, as a migration leaves it.
type Database struct {
	Name string
	DSN  string
	// DB is a pool on it with the sessions that the service has. It is closed when the test ends.
	DB *sql.DB
}

// New gives t a migrated database. It is emptied and given to another test once t has ended, so whatever t started on
// it must have ended by then: register its end with t.Cleanup after this call. A test that changes tables rather than
// rows takes [Empty].
func New(t testing.TB) *Database {
	t.Helper()
	pool := sharedPool(t)
	name, err := pool.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	database := open(t, pool, name)
	t.Cleanup(func() {
		database.DB.Close()
		if t.Failed() {
			t.Logf("database %s is left as it is, as long as its server runs", name)
			pool.kept.Store(name, true)
			return
		}
		if err := pool.giveBack(name); err != nil {
			t.Errorf("empty the test's database: %v", err)
		}
	})
	return database
}

// Empty gives t a database without tables, which is dropped when t ends.
func Empty(t testing.TB) *Database {
	t.Helper()
	pool := sharedPool(t)
	name, err := pool.create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	database := open(t, pool, name)
	t.Cleanup(func() {
		database.DB.Close()
		if err := pool.drop(name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return database
}

func open(t testing.TB, pool *pool, name string) *Database {
	t.Helper()
	dsn := databaseDSN(pool.dsn, name)
	db, err := schema.Open(dsn, schema.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &Database{Name: name, DSN: dsn, DB: db}
}
