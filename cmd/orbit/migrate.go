package main

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/orbit-run/orbit/schema"
)

type migrateCommand struct {
	Up     migrateUpCommand     `cmd:"" help:"Apply what is missing. Safe to run again and from many hosts at once."`
	Status migrateStatusCommand `cmd:"" help:"Show each step and whether it was applied."`
}

type migrateUpCommand struct {
	databaseSettings
}

func (c *migrateUpCommand) Run(ctx commandContext, p *printer) error {
	dsn, err := c.dsn()
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(p.err, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	if err := schema.Up(ctx, dsn, schema.UpOptions{Logger: logger, Program: thisBuild().program()}); err != nil {
		return err
	}
	p.hint("The database is at version %d.", schema.Target())
	return nil
}

type migrateStatusCommand struct {
	databaseSettings
}

// Run fails when the database does not fit this program, after printing how it stands.
func (c *migrateStatusCommand) Run(ctx commandContext, p *printer) error {
	dsn, err := c.dsn()
	if err != nil {
		return err
	}
	db, err := schema.Open(dsn, schema.PoolOptions{MaxOpen: 1, Program: "orbit-migrate"})
	if err != nil {
		return err
	}
	defer db.Close()
	steps, err := schema.Status(ctx, db)
	if err != nil {
		return err
	}
	rows := make([][]string, len(steps))
	for i, s := range steps {
		rows[i] = []string{formatInt(s.Version), s.Name, string(s.State), instantOf(s.EndedAt), s.Program}
	}
	if err := p.list(steps, []string{"VERSION", "STEP", "STATE", "ENDED", "PROGRAM"}, rows); err != nil {
		return err
	}
	return schema.Check(ctx, db)
}

func formatInt[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func instantOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return instant(*t)
}
