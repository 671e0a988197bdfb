package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orbit-run/orbit/integration/harness"
	"github.com/orbit-run/orbit/schema"
)

func migrate(t *testing.T, dsn string) {
	t.Helper()
	if err := schema.Up(t.Context(), dsn, schema.UpOptions{Program: "test"}); err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func describe(t *testing.T, db *sql.DB) map[string][]string {
	t.Helper()
	tables, err := schema.Describe(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func TestMigrationsEqualTheTablesShown(t *testing.T) {
	migrated, shown := harness.New(t), harness.Empty(t)
	for _, file := range []string{"platform.sql", "pulse.sql", "triggers.sql"} {
		text, err := os.ReadFile(filepath.Join("..", "schema", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range schema.Split(string(text)) {
			exec(t, shown.DB, statement)
		}
	}
	if diff := cmp.Diff(describe(t, shown.DB), describe(t, migrated.DB)); diff != "" {
		t.Errorf("schema/*.sql (-) and what the migrations make (+) differ:\n%s", diff)
	}
}

func TestFingerprintsAreFresh(t *testing.T) {
	sources, err := schema.ReadSources(os.DirFS(filepath.Join("..", "schema")))
	if err != nil {
		t.Fatal(err)
	}
	made, err := schema.Replay(t.Context(), harness.Empty(t).DB, sources)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := schema.Fingerprints()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, kept); diff != "" {
		t.Errorf("what the steps leave (-) and fingerprints.json (+) differ; see schema/internal/generate:\n%s", diff)
	}
}

// column is the first column of a query.
func column(t *testing.T, db *sql.DB, query string, args ...any) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var values []string
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

func TestEveryTableAndColumnHasAComment(t *testing.T) {
	db := harness.New(t).DB
	if bare := column(t, db, `SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_COMMENT = ''`); len(bare) > 0 {
		t.Errorf("tables without a comment: %v", bare)
	}
	if bare := column(t, db, `SELECT CONCAT(TABLE_NAME, '.', COLUMN_NAME) FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = DATABASE() AND COLUMN_COMMENT = ''`); len(bare) > 0 {
		t.Errorf("columns without a comment: %v", bare)
	}
}

func TestTextIsComparedByItsBytes(t *testing.T) {
	db := harness.New(t).DB
	folding := column(t, db, `SELECT CONCAT(TABLE_NAME, '.', COLUMN_NAME, ' ', COLLATION_NAME) FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = DATABASE() AND COLLATION_NAME NOT IN ('utf8mb4_0900_bin', 'ascii_bin')`)
	if len(folding) > 0 {
		t.Errorf("columns that take different texts for one: %v", folding)
	}
	if others := column(t, db, `SELECT CONCAT(TABLE_NAME, ' ', ENGINE) FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND ENGINE <> 'InnoDB'`); len(others) > 0 {
		t.Errorf("tables that are not transactional: %v", others)
	}
}

func TestHistoryRejectsUpdate(t *testing.T) {
	db := harness.New(t).DB
	triggers := column(t, db, `SELECT EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS
		WHERE TRIGGER_SCHEMA = DATABASE() AND EVENT_MANIPULATION = 'UPDATE' AND ACTION_TIMING = 'BEFORE' ORDER BY 1`)
	for _, table := range []string{"orbit_events", "orbit_audit_events", "pulse_attempt_receipts", "pulse_attempt_evidence", "pulse_schedule_versions"} {
		if !slices.Contains(triggers, table) {
			t.Errorf("%s has no trigger against UPDATE", table)
		}
	}
	exec(t, db, `INSERT INTO orbit_events (namespace_id, batch_id, ordinal, aggregate_kind, aggregate_id, version, type, data, occurred_at)
		VALUES (REPEAT('n', 16), REPEAT('b', 16), 0, 'task', REPEAT('t', 16), 1, 'task.accepted', '{}', NOW(6))`)
	if _, err := db.ExecContext(t.Context(), `UPDATE orbit_events SET version = 2`); err == nil {
		t.Error("an event was changed")
	}
}

func TestMigrationsAgainDoNothing(t *testing.T) {
	d := harness.Empty(t)
	migrate(t, d.DSN)
	before := column(t, d.DB, `SELECT CONCAT_WS(' ', version, started_at, ended_at) FROM orbit_migration_runs ORDER BY version`)
	migrate(t, d.DSN)
	if after := column(t, d.DB, `SELECT CONCAT_WS(' ', version, started_at, ended_at) FROM orbit_migration_runs ORDER BY version`); !slices.Equal(before, after) {
		t.Errorf("a second run changed the record:\n%s", cmp.Diff(before, after))
	}
	if len(before) != int(schema.Target()) {
		t.Errorf("%d steps are recorded, the program has %d", len(before), schema.Target())
	}
}

func TestEightMigratorsConverge(t *testing.T) {
	d := harness.Empty(t)
	begin := make(chan struct{})
	failures := make([]error, 8)
	var all sync.WaitGroup
	for i := range failures {
		all.Go(func() {
			<-begin
			failures[i] = schema.Up(t.Context(), d.DSN, schema.UpOptions{Program: fmt.Sprint("migrator ", i)})
		})
	}
	close(begin)
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(t.Context(), d.DB); err != nil {
		t.Error(err)
	}
	if twice := column(t, d.DB, `SELECT version_id FROM orbit_schema_migrations GROUP BY version_id HAVING COUNT(*) <> 1`); len(twice) > 0 {
		t.Errorf("recorded more than once: %v", twice)
	}
}

// death is a migrated database put back to a moment in which the migrator of the last step may have died.
type death struct {
	d       *harness.Database
	version int64
}

func dieBeforeLast(t *testing.T) death {
	t.Helper()
	d := harness.Empty(t)
	migrate(t, d.DSN)
	version := schema.Target()
	exec(t, d.DB, `DELETE FROM orbit_schema_migrations WHERE version_id = ?`, version)
	exec(t, d.DB, `UPDATE orbit_migration_runs SET ended_at = NULL WHERE version = ?`, version)
	return death{d, version}
}

func (x death) wantDirty(t *testing.T) {
	t.Helper()
	if err := schema.Check(t.Context(), x.d.DB); !errors.Is(err, schema.ErrDirty) {
		t.Errorf("a service would start: %v", err)
	}
}

func (x death) wantWhole(t *testing.T) {
	t.Helper()
	if err := schema.Check(t.Context(), x.d.DB); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(describe(t, harness.New(t).DB), describe(t, x.d.DB)); diff != "" {
		t.Errorf("an undisturbed database (-) and this one (+) differ:\n%s", diff)
	}
}

const lastTrigger, lastTable = "pulse_schedule_versions_no_update", "pulse_schedule_versions"

func TestDeathAfterAStatementIsRecordedAsDone(t *testing.T) {
	x := dieBeforeLast(t)
	x.wantDirty(t)
	migrate(t, x.d.DSN)
	x.wantWhole(t)
}

func TestDeathBeforeAStatementRunsIt(t *testing.T) {
	x := dieBeforeLast(t)
	exec(t, x.d.DB, `DROP TRIGGER `+lastTrigger)
	x.wantDirty(t)
	migrate(t, x.d.DSN)
	x.wantWhole(t)
}

func TestDeathBetweenTheEndMarkAndTheRecord(t *testing.T) {
	x := dieBeforeLast(t)
	exec(t, x.d.DB, `UPDATE orbit_migration_runs SET ended_at = NOW(6) WHERE version = ?`, x.version)
	migrate(t, x.d.DSN)
	x.wantWhole(t)
	if recorded := column(t, x.d.DB, `SELECT COUNT(*) FROM orbit_schema_migrations WHERE version_id = ?`, x.version); recorded[0] != "1" {
		t.Errorf("recorded %s times", recorded[0])
	}
}

func TestADirtyStepThatLooksLikeNeitherIsRefused(t *testing.T) {
	x := dieBeforeLast(t)
	exec(t, x.d.DB, `DROP TRIGGER `+lastTrigger)
	exec(t, x.d.DB, `ALTER TABLE `+lastTable+` ADD COLUMN odd INT NULL COMMENT 'not Orbit''s'`)
	err := schema.Up(t.Context(), x.d.DSN, schema.UpOptions{})
	var dirty *schema.DirtyError
	if !errors.As(err, &dirty) || dirty.Version != x.version || dirty.Table != lastTable {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"is:        column odd int", "What to do:", "orbit migrate up"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q:\n%v", want, err)
		}
	}
	x.wantDirty(t)

	exec(t, x.d.DB, `ALTER TABLE `+lastTable+` DROP COLUMN odd`)
	migrate(t, x.d.DSN)
	x.wantWhole(t)
}

func TestTheMigratorsSessionIsKilledInAStatement(t *testing.T) {
	x := dieBeforeLast(t)
	exec(t, x.d.DB, `DELETE FROM orbit_migration_runs WHERE version = ?`, x.version)
	exec(t, x.d.DB, `DROP TRIGGER `+lastTrigger)

	reader, err := x.d.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback()
	var n int
	if err := reader.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+lastTable).Scan(&n); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- schema.Up(t.Context(), x.d.DSN, schema.UpOptions{}) }()
	// The statement waits for the reader's metadata lock; by then the begin mark is committed.
	var session string
	await(t, "the migrator to wait in its statement", func() bool {
		// Without INFO: other sessions' statements may hold bytes that the server cannot convert for it.
		waiting := column(t, x.d.DB, `SELECT ID FROM performance_schema.processlist
			WHERE DB = DATABASE() AND STATE = 'Waiting for table metadata lock'`)
		if len(waiting) == 1 {
			session = waiting[0]
		}
		return session != ""
	})
	x.wantDirty(t)
	exec(t, x.d.DB, `KILL `+session)
	if err := <-ended; err == nil {
		t.Fatal("the migration succeeded without its session")
	}
	x.wantDirty(t)
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	migrate(t, x.d.DSN)
	x.wantWhole(t)
}

// await polls for what another session does.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
			if done() {
				tick.Stop()
				return
			}
		}
	}
}

func TestAChangedStepIsRefused(t *testing.T) {
	d := harness.Empty(t)
	migrate(t, d.DSN)
	exec(t, d.DB, `UPDATE orbit_migration_runs SET checksum = REPEAT('x', 32) WHERE version = 3`)
	err := schema.Up(t.Context(), d.DSN, schema.UpOptions{})
	var changed *schema.ChangedError
	if !errors.As(err, &changed) || changed.Version != 3 {
		t.Errorf("got %v", err)
	}
	if err := schema.Check(t.Context(), d.DB); !errors.Is(err, schema.ErrChanged) {
		t.Errorf("a service would start: %v", err)
	}
}

func TestAForeignTableIsLeftAlone(t *testing.T) {
	d := harness.Empty(t)
	exec(t, d.DB, `CREATE TABLE pulse_queues (id INT PRIMARY KEY)`)
	exec(t, d.DB, `INSERT INTO pulse_queues VALUES (7)`)
	err := schema.Up(t.Context(), d.DSN, schema.UpOptions{})
	var foreign *schema.ForeignTableError
	if !errors.As(err, &foreign) || foreign.Table != "pulse_queues" {
		t.Fatalf("got %v", err)
	}
	if rows := column(t, d.DB, `SELECT id FROM pulse_queues`); !slices.Equal(rows, []string{"7"}) {
		t.Errorf("the foreign table holds %v", rows)
	}
	if dirty := column(t, d.DB, `SELECT version FROM orbit_migration_runs WHERE ended_at IS NULL`); len(dirty) > 0 {
		t.Errorf("steps marked dirty although nothing was begun: %v", dirty)
	}
	exec(t, d.DB, `RENAME TABLE pulse_queues TO their_queues`)
	migrate(t, d.DSN)
}

func TestANewerDatabasePasses(t *testing.T) {
	d := harness.Empty(t)
	migrate(t, d.DSN)
	exec(t, d.DB, `INSERT INTO orbit_migration_runs VALUES (?, REPEAT('x', 32), NOW(6), NOW(6), 'orbit of tomorrow')`, schema.Target()+1)
	exec(t, d.DB, `INSERT INTO orbit_schema_migrations (version_id, is_applied) VALUES (?, TRUE)`, schema.Target()+1)
	if err := schema.Check(t.Context(), d.DB); err != nil {
		t.Error(err)
	}
	migrate(t, d.DSN)
	steps, err := schema.Status(t.Context(), d.DB)
	if err != nil {
		t.Fatal(err)
	}
	if last := steps[len(steps)-1]; last.State != schema.StepUnknown || last.Version != schema.Target()+1 {
		t.Errorf("the newer step is shown as %+v", last)
	}
}

func TestCheckOfDatabasesThatAreNotReady(t *testing.T) {
	d := harness.Empty(t)
	if err := schema.Check(t.Context(), d.DB); !errors.Is(err, schema.ErrNotMigrated) {
		t.Errorf("empty: %v", err)
	}
	migrate(t, d.DSN)
	exec(t, d.DB, `DELETE FROM orbit_migration_runs WHERE version = ?`, schema.Target())
	if err := schema.Check(t.Context(), d.DB); !errors.Is(err, schema.ErrBehind) {
		t.Errorf("one step behind: %v", err)
	}
}

func TestTriggersWithoutSuperAreExplained(t *testing.T) {
	server := harness.PrivateServer(t, "--log-bin", "--log-bin-trust-function-creators=0")
	dsn := server.CreateDatabase(t, "orbit")
	root, err := sql.Open("mysql", server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	exec(t, root, `CREATE USER migrator IDENTIFIED BY 'secret'`)
	exec(t, root, `GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, REFERENCES, TRIGGER ON orbit.* TO migrator`)
	plain := strings.Replace(dsn, dsn[:strings.Index(dsn, "@")], "migrator:secret", 1)

	err = schema.Up(t.Context(), plain, schema.UpOptions{})
	if err == nil || !strings.Contains(err.Error(), "1419") || !strings.Contains(err.Error(), "log_bin_trust_function_creators") {
		t.Fatalf("got %v", err)
	}
	exec(t, root, `SET GLOBAL log_bin_trust_function_creators = 1`)
	if err := schema.Up(t.Context(), plain, schema.UpOptions{}); err != nil {
		t.Errorf("after the setting was changed: %v", err)
	}
}

func TestSessionsKeepTheRules(t *testing.T) {
	d := harness.New(t)
	for _, server := range []string{"time_zone=%27SYSTEM%27", "sql_mode=%27%27", "transaction_isolation=%27SERIALIZABLE%27", "loc=Local", "parseTime=false"} {
		db, err := schema.Open(d.DSN+"?"+server, schema.PoolOptions{LockWait: 3 * time.Second, Program: "rules"})
		if err != nil {
			t.Fatal(err)
		}
		got := column(t, db, `SELECT CONCAT_WS(' ', @@time_zone, @@transaction_isolation, @@collation_connection, @@wait_timeout, @@innodb_lock_wait_timeout,
			LOCATE('STRICT_TRANS_TABLES', @@sql_mode) > 0)`)
		if want := "+00:00 READ-COMMITTED utf8mb4_0900_bin 60 3 1"; got[0] != want {
			t.Errorf("%s: got %s, want %s", server, got[0], want)
		}
		// The driver would round .999999999 up into the next second.
		var kept time.Time
		late := time.Date(2026, 1, 2, 3, 4, 5, 999999999, time.UTC)
		if err := db.QueryRowContext(t.Context(), `SELECT CAST(? AS DATETIME(6))`, late).Scan(&kept); err != nil || !kept.Equal(late.Truncate(time.Microsecond)) {
			t.Errorf("%s: %s became %s (%v)", server, late, kept, err)
		}
		db.Close()
	}
}

func TestServersAreCheckedByName(t *testing.T) {
	server := harness.PrivateServer(t, "--log-bin", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--max-allowed-packet=16M", "--default-storage-engine=MyISAM")
	dsn := server.CreateDatabase(t, "orbit")
	db, err := schema.Open(dsn, schema.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	names := func(findings []schema.Finding) (names []string) {
		for _, f := range findings {
			names = append(names, f.Setting)
		}
		return names
	}
	found, err := schema.CheckServer(t.Context(), db, schema.ServerRules{})
	var refused *schema.ServerError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v", err)
	}
	if want := []string{"max_allowed_packet", "innodb_flush_log_at_trx_commit", "sync_binlog"}; !slices.Equal(names(refused.Refused), want) {
		t.Errorf("refused %v, want %v", names(refused.Refused), want)
	}
	if want := []string{"default_storage_engine"}; !slices.Equal(names(found.Warnings), want) {
		t.Errorf("warned of %v, want %v", names(found.Warnings), want)
	}

	found, err = schema.CheckServer(t.Context(), db, schema.ServerRules{AcceptWeakDurability: true})
	if !errors.As(err, &refused) || !slices.Equal(names(refused.Refused), []string{"max_allowed_packet"}) {
		t.Errorf("with weak durability accepted: %v", err)
	}
	if want := []string{"innodb_flush_log_at_trx_commit", "sync_binlog", "default_storage_engine"}; !slices.Equal(names(found.Warnings), want) {
		t.Errorf("warned of %v, want %v", names(found.Warnings), want)
	}

	plain, err := sql.Open("mysql", dsn+"?sql_mode=%27%27")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_, err = schema.CheckServer(t.Context(), plain, schema.ServerRules{AcceptWeakDurability: true})
	if !errors.As(err, &refused) || !slices.Equal(names(refused.Refused), []string{"sql_mode", "time_zone", "transaction_isolation", "max_allowed_packet"}) {
		t.Errorf("a session without the rules: %v", err)
	}
}
