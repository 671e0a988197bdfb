package schema

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
)

const (
	versionTable = "orbit_schema_migrations"
	runsTable    = "orbit_migration_runs"
	runsVersion  = 1 // the step that makes runsTable
)

// The columns are those goose expects; the comments are ours.
const createVersionTable = `CREATE TABLE IF NOT EXISTS ` + versionTable + ` (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'order of recording',
  version_id BIGINT          NOT NULL COMMENT 'migration step; 0 is the empty schema',
  is_applied BOOLEAN         NOT NULL COMMENT 'always true: migrations only go forward',
  tstamp     DATETIME        NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'when it was recorded, UTC',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='steps that were applied, as goose records them'`

// UpOptions are what Up may be told; the zero value is silent.
type UpOptions struct {
	// Logger hears of each step and of waiting for another migrator.
	Logger *slog.Logger
	// Program is recorded with each step, at most 64 characters, such as "orbit 0.1.0".
	Program string
}

// Up brings the database that dsn names to this program's version, one step after the other, and
// makes nothing where it is there already. Any number of callers may run at once: one works, the
// others wait for its lock and then find nothing to do.
//
// Each step is marked as begun before its statement and as ended after it. When a step was begun
// and did not end, its table is compared with what the step starts from and what it should leave:
// equal to the first it runs, equal to the second it is recorded as done, and anything else is a
// *DirtyError that says what differs and what to do. A step that was applied with another text is
// a *ChangedError. The account needs the right to create, alter and reference tables and to create
// triggers.
func Up(ctx context.Context, dsn string, options UpOptions) error {
	steps, err := loadSteps()
	if err != nil {
		return err
	}
	return up(ctx, dsn, steps, options)
}

func up(ctx context.Context, dsn string, steps []step, options UpOptions) error {
	logger := options.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	db, err := openMigrator(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := serverVersion(ctx, db); err != nil {
		return err
	}
	lock := migrationLock{logger}
	if err := bootstrap(ctx, db, lock, steps); err != nil {
		return explain(err)
	}
	migrations := make([]*goose.Migration, len(steps))
	for i, s := range steps {
		migrations[i] = goose.NewGoMigration(s.version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			return s.run(ctx, tx, logger, options.Program)
		}}, nil)
	}
	provider, err := goose.NewProvider(goose.DialectMySQL, db, nil,
		goose.WithTableName(versionTable),
		goose.WithSessionLocker(lock),
		goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(migrations...))
	if err != nil {
		return fmt.Errorf("goose: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
			err = partial.Err
		}
		return explain(err)
	}
	return nil
}

// openMigrator makes a pool whose sessions outlive long statements, for they also hold the lock,
// and that give up soon when a table is in use: a waiting DDL statement queues everybody else.
func openMigrator(dsn string) (*sql.DB, error) {
	config, err := sessionConfig(dsn, PoolOptions{Program: "orbit-migrate"}, 8*time.Hour)
	if err != nil {
		return nil, err
	}
	if config.DBName == "" {
		return nil, errNoDatabase
	}
	config.Params["lock_wait_timeout"] = "30"
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("database DSN: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// bootstrap makes the two tables the migrations themselves are recorded in, and refuses to go on
// where an applied step's text is not this program's.
func bootstrap(ctx context.Context, db *sql.DB, lock migrationLock, steps []step) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := lock.SessionLock(ctx, conn); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, lock.SessionUnlock(context.WithoutCancel(ctx), conn))
	}()
	if _, err := conn.ExecContext(ctx, createVersionTable); err != nil {
		return fmt.Errorf("make table %s: %w", versionTable, err)
	}
	if _, err := conn.ExecContext(ctx, `INSERT INTO `+versionTable+` (version_id, is_applied)
		SELECT 0, TRUE FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `+versionTable+` v WHERE v.version_id = 0)`); err != nil {
		return fmt.Errorf("record the empty schema: %w", err)
	}
	present, err := tableExists(ctx, conn, runsTable)
	if err != nil {
		return err
	}
	if !present {
		if _, err := conn.ExecContext(ctx, steps[runsVersion-1].statement); err != nil {
			return fmt.Errorf("make table %s: %w", runsTable, err)
		}
	}
	return checkTexts(ctx, conn, steps)
}

func tableExists(ctx context.Context, db Querier, table string) (bool, error) {
	var present bool
	err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?)`, table).Scan(&present)
	if err != nil {
		return false, fmt.Errorf("look for table %s: %w", table, err)
	}
	return present, nil
}

// run is one row of orbit_migration_runs.
type run struct {
	version   int64
	checksum  []byte
	startedAt time.Time
	endedAt   *time.Time
	program   string
}

func readRuns(ctx context.Context, db Querier) (map[int64]run, error) {
	rows, err := db.QueryContext(ctx, `SELECT version, checksum, started_at, ended_at, program FROM `+runsTable)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", runsTable, err)
	}
	defer rows.Close()
	runs := map[int64]run{}
	for rows.Next() {
		var r run
		if err := rows.Scan(&r.version, &r.checksum, &r.startedAt, &r.endedAt, &r.program); err != nil {
			return nil, fmt.Errorf("read %s: %w", runsTable, err)
		}
		runs[r.version] = r
	}
	return runs, rows.Err()
}

func checkTexts(ctx context.Context, db Querier, steps []step) error {
	runs, err := readRuns(ctx, db)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if r, ok := runs[s.version]; ok && s.changed(r) {
			return &ChangedError{Version: s.version, Name: s.name, Applied: r.checksum, Known: s.checksum[:]}
		}
	}
	return nil
}

// changed: only a step that ended was surely applied with the text recorded. What an unfinished
// one did is judged by its table.
func (s step) changed(r run) bool {
	return r.endedAt != nil && !bytes.Equal(r.checksum, s.checksum[:])
}

// run takes the step under the migration lock, in the session that holds it.
func (s step) run(ctx context.Context, tx *sql.Tx, logger *slog.Logger, program string) error {
	runs, err := readRuns(ctx, tx)
	if err != nil {
		return err
	}
	r, begun := runs[s.version]
	switch {
	case s.changed(r):
		return &ChangedError{Version: s.version, Name: s.name, Applied: r.checksum, Known: s.checksum[:]}
	case begun && r.endedAt != nil:
		return nil // the death came between the end mark and goose's row, which follows now
	}
	is, err := describeTable(ctx, tx, s.table)
	if err != nil {
		return err
	}
	if slices.Equal(is, s.after) || s.version == runsVersion {
		logger.InfoContext(ctx, "migration step is there already; recorded", "version", s.version, "step", s.name)
		return errors.Join(s.mark(ctx, tx, program), s.unmark(ctx, tx))
	}
	if begun && !slices.Equal(is, s.before) {
		return &DirtyError{Version: s.version, Name: s.name, Table: s.table, Begun: r.startedAt, Is: is, Before: s.before, After: s.after}
	}
	if !begun && len(s.before) == 0 && len(is) > 0 {
		return &ForeignTableError{Version: s.version, Name: s.name, Table: s.table, Is: is, After: s.after}
	}
	if err := s.mark(ctx, tx, program); err != nil {
		return err
	}
	// DDL ends a transaction anyway. Ended here, the mark is on disk before the statement begins,
	// and what follows is committed statement by statement.
	if _, err := tx.ExecContext(ctx, "COMMIT"); err != nil {
		return fmt.Errorf("step %05d_%s: commit its begin mark: %w", s.version, s.name, err)
	}
	logger.InfoContext(ctx, "migration step", "version", s.version, "step", s.name)
	if _, err := tx.ExecContext(ctx, s.statement); err != nil {
		return fmt.Errorf("step %05d_%s: %w", s.version, s.name, err)
	}
	return s.unmark(ctx, tx)
}

func (s step) mark(ctx context.Context, tx *sql.Tx, program string) error {
	if len(program) > 64 {
		program = program[:64]
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO `+runsTable+` (version, checksum, started_at, ended_at, program) VALUES (?, ?, NOW(6), NULL, ?)
		ON DUPLICATE KEY UPDATE checksum = VALUES(checksum), started_at = VALUES(started_at), ended_at = NULL, program = VALUES(program)`,
		s.version, s.checksum[:], program)
	if err != nil {
		return fmt.Errorf("step %05d_%s: mark its begin: %w", s.version, s.name, err)
	}
	return nil
}

func (s step) unmark(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `UPDATE `+runsTable+` SET ended_at = NOW(6) WHERE version = ?`, s.version); err != nil {
		return fmt.Errorf("step %05d_%s: mark its end: %w", s.version, s.name, err)
	}
	return nil
}

func checksum(statement string) [sha256.Size]byte {
	return sha256.Sum256([]byte(statement))
}
