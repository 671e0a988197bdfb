package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orbit-run/orbit/schema"
)

// health answers whether this process lives and whether it should get work.
type health struct {
	db       *sql.DB
	draining atomic.Bool
}

const healthTime = 3 * time.Second

// live says that the process answers, whatever its database does: restarting it would mend nothing else.
func (h *health) live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

type check struct {
	name string
	err  error
}

// ready answers 200 while this replica can serve, and 503 otherwise; with ?verbose it names each check.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTime)
	defer cancel()
	checks := []check{{"draining", h.notDraining()}, {"database", h.database(ctx)}, {"schema", h.schema(ctx)}}
	status := http.StatusOK
	var b strings.Builder
	for _, c := range checks {
		line := "ok"
		if c.err != nil {
			status, line = http.StatusServiceUnavailable, c.err.Error()
		}
		fmt.Fprintf(&b, "%-9s %s\n", c.name, line)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	switch {
	case r.URL.Query().Has("verbose"):
		fmt.Fprint(w, b.String())
	case status == http.StatusOK:
		fmt.Fprintln(w, "ok")
	default:
		fmt.Fprintln(w, "not ready; ?verbose says why")
	}
}

func (h *health) notDraining() error {
	if h.draining.Load() {
		return errors.New("this replica is ending")
	}
	return nil
}

// database tells of a server that cannot be reached or written to. Its messages go to whoever asks, so they hold no addresses.
func (h *health) database(ctx context.Context) error {
	var readOnly bool
	if err := h.db.QueryRowContext(ctx, "SELECT @@GLOBAL.read_only OR @@GLOBAL.innodb_read_only").Scan(&readOnly); err != nil {
		return errors.New("the database does not answer")
	}
	if readOnly {
		return errors.New("the database is read-only")
	}
	return nil
}

func (h *health) schema(ctx context.Context) error {
	err := schema.Check(ctx, h.db)
	for _, known := range []error{schema.ErrNotMigrated, schema.ErrBehind, schema.ErrDirty, schema.ErrChanged} {
		if errors.Is(err, known) {
			return err
		}
	}
	if err != nil {
		return errors.New("the schema's version cannot be read")
	}
	return nil
}
