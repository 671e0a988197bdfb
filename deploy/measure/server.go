package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/schema"
)

// server is the measured MySQL server, as its administrator sees it.
type server struct {
	config  *mysql.Config
	db      *sql.DB
	pid     int
	version string
}

func connect(ctx context.Context, dsn string, pid int) (*server, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	s := &server{config: config, pid: pid}
	if s.pid == 0 {
		if s.pid, err = onlyMysqld(); err != nil {
			return nil, err
		}
	}
	if s.db, err = s.open("information_schema"); err != nil {
		return nil, err
	}
	found, err := schema.CheckServer(ctx, s.db, schema.ServerRules{})
	if err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	if err := s.exec(ctx, "UPDATE performance_schema.setup_consumers SET ENABLED = 'YES' WHERE NAME = 'events_statements_cpu'"); err != nil {
		return nil, err
	}
	var pool int64
	err = s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.innodb_buffer_pool_size").Scan(&pool)
	s.version = fmt.Sprintf("MySQL %s, buffer pool %d MiB, durable", found.Version, pool>>20)
	return s, err
}

func (s *server) close() { s.db.Close() }

func onlyMysqld() (int, error) {
	var found []int
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		if comm, _ := os.ReadFile(name); strings.TrimSpace(string(comm)) == "mysqld" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%d processes named mysqld on this machine: name one with -pid", len(found))
	}
	return found[0], nil
}

func (s *server) dsn(database string) string {
	config := s.config.Clone()
	config.DBName = database
	return config.FormatDSN()
}

func (s *server) open(database string) (*sql.DB, error) {
	return schema.Open(s.dsn(database), schema.PoolOptions{Program: "orbit-measure"})
}

// create makes a migrated database anew and changes it.
func (s *server) create(ctx context.Context, database string, changes ...string) (*sql.DB, error) {
	if err := s.drop(ctx, database); err != nil {
		return nil, err
	}
	if err := s.exec(ctx, "CREATE DATABASE "+database+" CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"); err != nil {
		return nil, err
	}
	if err := schema.Up(ctx, s.dsn(database), schema.UpOptions{Program: "measure"}); err != nil {
		return nil, err
	}
	db, err := s.open(database)
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		if _, err := db.ExecContext(ctx, change); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", change, err), db.Close())
		}
	}
	return db, nil
}

func (s *server) drop(ctx context.Context, database string) error {
	return s.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+database)
}

func (s *server) exec(ctx context.Context, query string) error {
	_, err := s.db.ExecContext(ctx, query)
	return err
}

// spent is what the server has used between two readings.
type spent struct {
	work          time.Duration            // processor time of sessions and of purge, which finishes what they left
	purge         time.Duration            // the latter alone
	statements    map[string]time.Duration // processor time of sessions by statement, where that was asked for
	wall          time.Duration
	redo          float64 // bytes
	read, written float64 // pages
	bytesWritten  float64 // by InnoDB: pages, twice for safety, and redo
}

// reading is what the server had used at some time.
type reading struct {
	at      time.Time
	threads map[string]thread
	status  map[string]float64
}

// thread is one of mysqld's.
type thread struct {
	name string
	ran  time.Duration
}

func (s *server) reading(ctx context.Context) (r reading, err error) {
	rows, err := s.db.QueryContext(ctx, `SHOW GLOBAL STATUS WHERE Variable_name IN
('Innodb_os_log_written', 'Innodb_pages_read', 'Innodb_pages_written', 'Innodb_data_written')`)
	if err != nil {
		return r, err
	}
	defer rows.Close()
	r.status = map[string]float64{}
	for rows.Next() {
		var name string
		var value float64
		if err := rows.Scan(&name, &value); err != nil {
			return r, err
		}
		r.status[name] = value
	}
	r.at, r.threads = time.Now(), threadsOf(s.pid)
	return r, rows.Err()
}

func (r reading) since(before reading) spent {
	counted := func(name string) float64 { return r.status[name] - before.status[name] }
	u := spent{wall: r.at.Sub(before.at), redo: counted("Innodb_os_log_written"), read: counted("Innodb_pages_read"), written: counted("Innodb_pages_written"),
		bytesWritten: counted("Innodb_data_written")}
	for id, t := range r.threads {
		ran := t.ran - before.threads[id].ran
		switch {
		case t.name == "connection":
			u.work += ran
		case t.name == "ib_srv_purge" || strings.HasPrefix(t.name, "ib_srv_wkr"):
			u.work += ran
			u.purge += ran
		}
	}
	return u
}

// purge stands among the statements for what the server does after them.
const purge = "purge"

var tableName = regexp.MustCompile("`((?:orbit|pulse)_[a-z_]+)`")

// statements is the processor time of the statements in a database since the summary was emptied, by their verbs and first tables.
func (s *server) statements(ctx context.Context, database string) (map[string]time.Duration, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT DIGEST_TEXT, SUM_CPU_TIME FROM performance_schema.events_statements_summary_by_digest WHERE SCHEMA_NAME = ?", database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sums := map[string]time.Duration{}
	for rows.Next() {
		var text string
		var picoseconds int64
		if err := rows.Scan(&text, &picoseconds); err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(text, " ")
		if table := tableName.FindStringSubmatch(text); table != nil {
			name += " " + table[1]
		} else if strings.HasPrefix(text, "DELETE `r`") { // whose text is cut before the table
			name += " pulse_ready"
		}
		sums[name] += time.Duration(picoseconds / 1000)
	}
	return sums, rows.Err()
}

// threadsOf reads how long each thread of a process ran, to the nanosecond. What a thread that has ended ran is lost, so sessions
// must last as long as a turn.
func threadsOf(pid int) map[string]thread {
	threads := map[string]thread{}
	directories, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, directory := range directories {
		name, _ := os.ReadFile(filepath.Join(directory, "comm"))
		stat, _ := os.ReadFile(filepath.Join(directory, "schedstat"))
		ran, _, _ := strings.Cut(string(stat), " ")
		nanoseconds, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			continue // it has just ended
		}
		threads[filepath.Base(directory)] = thread{strings.TrimSpace(string(name)), time.Duration(nanoseconds)}
	}
	return threads
}

// settle waits until the server has purged what was left of deleted rows, so that one variant does not pay for another.
func (s *server) settle(ctx context.Context) error {
	last, tick := -1, time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		var length int
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT FROM information_schema.innodb_metrics WHERE NAME = 'trx_rseg_history_len'").Scan(&length); err != nil {
			return err
		}
		if length == last || length < 10 {
			return nil
		}
		last = length
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("the server does not come to the end of its purge")
}
