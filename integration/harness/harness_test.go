package harness

import (
	"testing"

	"github.com/testcontainers/testcontainers-go"

	"github.com/orbit-run/orbit/schema"
)

func TestMain(m *testing.M) { Main(m) }

func TestDatabasesAreMigratedAndEmpty(t *testing.T) {
	// More than one round, so that databases which were given back come up again.
	seen := map[string]bool{}
	for range 4 {
		t.Run("round", func(t *testing.T) {
			database := New(t)
			seen[database.Name] = true
			if err := schema.Check(t.Context(), database.DB); err != nil {
				t.Fatal(err)
			}
			var rows int
			if err := database.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orbit_replicas").Scan(&rows); err != nil {
				t.Fatal(err)
			}
			if rows != 0 {
				t.Fatalf("%d rows of another test", rows)
			}
			insertReplica(t, database)
		})
	}
	if len(seen) == 4 {
		t.Fatal("no database was used twice")
	}
}

func insertReplica(t *testing.T, database *Database) {
	t.Helper()
	_, err := database.DB.ExecContext(t.Context(), `INSERT INTO orbit_replicas (id, server_uuid, fresh_since, renewed_at, host, version, nudge_address, nudge_key, started_at)
		VALUES (REPEAT('x', 16), @@server_uuid, NOW(6), NOW(6), 'host', 'version', '', REPEAT('x', 32), NOW(6))`)
	if err != nil {
		t.Fatal(err)
	}
}

func TestTestsAtOnceHaveDifferentDatabases(t *testing.T) {
	first, second := New(t), New(t)
	if first.Name == second.Name {
		t.Fatalf("both have %s", first.Name)
	}
}

func TestGivingBackEndsSessionsAndTheirTransactions(t *testing.T) {
	var database *Database
	t.Run("with an open transaction", func(t *testing.T) {
		database = New(t)
		left, err := schema.Open(database.DSN, schema.PoolOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// Not closed before the database is given back, as the connections of a killed process are not.
		conn, err := left.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		insertReplica(t, database)
		if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), "UPDATE orbit_replicas SET host = 'other'"); err != nil {
			t.Fatal(err)
		}
	})
	pool := sharedPool(t)
	sessions, err := pool.sessions(t.Context(), database.Name)
	if err != nil {
		t.Fatal(err)
	}
	if len(sessions) != 0 {
		t.Fatalf("%d sessions are left", len(sessions))
	}
}

func TestDatabaseInUseIsPassedOver(t *testing.T) {
	pool := sharedPool(t)
	for len(pool.emptied) > 0 {
		<-pool.emptied
	}
	var database *Database
	t.Run("that leaves something behind", func(t *testing.T) { database = New(t) })
	left, err := schema.Open(database.DSN, schema.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	if err := left.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := New(t); next.Name == database.Name {
		t.Fatalf("%s was given to another test while it was in use", next.Name)
	}
}

func TestEmptyHasNoTables(t *testing.T) {
	tables, err := schema.Describe(t.Context(), Empty(t).DB)
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) != 0 {
		t.Fatalf("%d tables", len(tables))
	}
}

func TestPrivateServerKeepsWhatWasCommittedOverAKill(t *testing.T) {
	server := PrivateServer(t)
	dsn := server.CreateDatabase(t, "orbit")
	if err := schema.Up(t.Context(), dsn, schema.UpOptions{}); err != nil {
		t.Fatal(err)
	}
	db, err := schema.Open(dsn, schema.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	server.Kill(t)
	if err := db.PingContext(t.Context()); err == nil {
		t.Fatal("a killed server answers")
	}
	server.Start(t)
	if err := schema.Check(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

func TestTheImageOfAPrivateServerIsOneThatIsHere(t *testing.T) {
	t.Setenv("ORBIT_TEST_MYSQL_IMAGE", "mysql:named")
	if image, err := serverImage(t.Context()); err != nil || image != "mysql:named" {
		t.Errorf("the image that was named: %s, %v", image, err)
	}
	t.Setenv("ORBIT_TEST_MYSQL_IMAGE", "")
	engine, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	has := func(image string) bool {
		_, err := engine.ImageInspect(t.Context(), image)
		return err == nil
	}
	image, err := serverImage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if here := has(officialImage) || has(localImage); here && !has(image) || !here && image != officialImage {
		t.Errorf("image %s, though the engine has another, or it cannot be had", image)
	}
}
