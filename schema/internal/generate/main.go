// Command generate keeps schema/migrations and schema/fingerprints.json in step with the tables.
// Run it in the directory schema:
//
//	go run ./internal/generate -dsn DSN            fingerprints of the migrations as they are
//	go run ./internal/generate -dsn DSN -renew     first make the migrations anew from *.sql
//
// -renew is for the time before the first release only: afterwards a step never changes, and a new
// one is a new file written by hand. DSN names a server without a schema; a scratch schema is made
// there and dropped.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"

	"github.com/go-sql-driver/mysql"
	"github.com/orbit-run/orbit/schema"
)

// The files in the order in which their tables depend on each other; triggers come last. Grants
// are no migration: accounts are the operator's.
var tableFiles = []string{"platform.sql", "pulse.sql", "triggers.sql"}

// The table that migrations are recorded in comes first.
const firstTable = "orbit_migration_runs"

func main() {
	log.SetFlags(0)
	dsn := flag.String("dsn", os.Getenv("ORBIT_DSN"), "a MySQL server on which a scratch schema may be made")
	renew := flag.Bool("renew", false, "make the migrations anew from *.sql (before the first release only)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := generate(ctx, *dsn, *renew); err != nil {
		log.Fatal(err)
	}
}

func generate(ctx context.Context, dsn string, renew bool) error {
	if renew {
		if err := renewMigrations(); err != nil {
			return err
		}
	}
	sources, err := schema.ReadSources(os.DirFS("."))
	if err != nil {
		return err
	}
	fingerprints, err := replay(ctx, dsn, sources)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(fingerprints); err != nil {
		return err
	}
	return os.WriteFile("fingerprints.json", text.Bytes(), 0o644)
}

func replay(ctx context.Context, dsn string, sources []schema.Source) (_ []schema.Fingerprint, err error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	config.DBName = ""
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	server := sql.OpenDB(connector)
	defer server.Close()
	scratch := fmt.Sprintf("orbit_generate_%d", os.Getpid())
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+scratch+" CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"); err != nil {
		return nil, err
	}
	defer func() {
		_, dropErr := server.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+scratch)
		err = errors.Join(err, dropErr)
	}()
	config.DBName = scratch
	db, err := schema.Open(config.FormatDSN(), schema.PoolOptions{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return schema.Replay(ctx, db, sources)
}

var defines = regexp.MustCompile(`^CREATE (?:TABLE|TRIGGER) (\w+)`)

func renewMigrations() error {
	type named struct{ name, statement string }
	var steps []named
	for _, file := range tableFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, statement := range schema.Split(string(text)) {
			match := defines.FindStringSubmatch(statement)
			if match == nil {
				return fmt.Errorf("%s: want CREATE TABLE or CREATE TRIGGER, found %.60q", file, statement)
			}
			step := named{match[1], statement}
			if step.name == firstTable {
				steps = append([]named{step}, steps...)
				continue
			}
			steps = append(steps, step)
		}
	}
	old, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for i, step := range steps {
		file := fmt.Sprintf("migrations/%05d_%s.sql", i+1, step.name)
		text := "-- +goose NO TRANSACTION\n-- +goose Up\n-- +goose StatementBegin\n" + step.statement + ";\n-- +goose StatementEnd\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
