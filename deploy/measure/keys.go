package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
)

// keyVariant is an order of the idempotency keys' primary key, and how clients make their keys.
type keyVariant struct {
	name    string
	changes []string
	newID   func(time.Time) orbit.ID
	hashed  bool // the column scope holds a hash of the whole key
}

var keyVariants = []keyVariant{
	{name: "(namespace, scope, key), keys ordered by time", newID: orbit.NewID},
	{name: "(namespace, scope, key), random keys", newID: randomID},
	{name: "(namespace, hash of all), any keys", newID: orbit.NewID, hashed: true,
		changes: []string{"ALTER TABLE orbit_idempotency_keys DROP PRIMARY KEY, ADD PRIMARY KEY (namespace_id, scope)"}},
}

// Reservations of 100 keys, with the service's statements, when the table holds so many keys already.
func askKeys(ctx context.Context, s *server, o options) (err error) {
	benches := make([]*bench, len(keyVariants))
	for i, v := range keyVariants {
		if benches[i], err = s.bench(ctx, fmt.Sprintf("measure_keys_%d", i), v.changes...); err != nil {
			return err
		}
		defer func() { benches[i].close(); err = errors.Join(err, s.drop(ctx, benches[i].database)) }()
	}
	fmt.Println("| keys | primary key | CPU ms / 1,000 | redo KiB / 1,000 | pages read / 1,000 | pages written / 1,000 | KiB written / 1,000 | keys a second | table MiB |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	there := 0
	for _, rows := range []int{0, o.rows / 5, o.rows} {
		for i, v := range keyVariants {
			if err := v.fill(ctx, benches[i], rows-there); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			fmt.Fprintf(os.Stderr, "%d keys: %s\n", rows, v.name)
		}
		there = rows
		costs := make([][]spent, len(keyVariants))
		for range keyRounds {
			for i, v := range keyVariants {
				if err := v.reserve(ctx, benches[i], keyTurn/2); err != nil { // warms the pool
					return err
				}
				u, err := s.flushed(ctx, func() error { return v.reserve(ctx, benches[i], keyTurn) })
				if err != nil {
					return err
				}
				costs[i] = append(costs[i], u)
			}
		}
		for i, v := range keyVariants {
			var size float64
			query := "SELECT SUM(FILE_SIZE) / 1048576 FROM information_schema.innodb_tablespaces WHERE NAME = ?"
			if err := s.db.QueryRowContext(ctx, query, benches[i].database+"/orbit_idempotency_keys").Scan(&size); err != nil {
				return err
			}
			per := func(value func(spent) float64) float64 { return 1000 * median(each(costs[i], value)) / keyTurn }
			fmt.Printf("| %d | %s | %.1f | %.0f | %.1f | %.1f | %.0f | %.0f | %.0f |\n", rows, v.name, 1000*per(work), per(redo)/1024,
				per(func(u spent) float64 { return u.read }), per(func(u spent) float64 { return u.written }), per(func(u spent) float64 { return u.bytesWritten })/1024,
				keyTurn/median(each(costs[i], func(u spent) float64 { return u.wall.Seconds() })), size)
		}
	}
	return nil
}

const (
	keyRounds = 3
	keyTurn   = 20_000
	// fillRun is how many keys are inserted in order when a table is filled: few enough that random ones land all over it.
	fillRun = 250_000
	fillRow = 1000 // rows a statement
)

var keyActor = orbit.ID{15: 1}

// row is a key as the service reserves it.
func (v keyVariant) row(b *bench) []any {
	b.now = b.now.Add(time.Microsecond)
	id := v.newID(b.now)
	key := id.String()
	scope := sha256.Sum256([]byte("scope of one actor, operation and path"))
	if v.hashed {
		scope = sha256.Sum256([]byte("scope of one actor, operation and path, and " + key))
	}
	return []any{b.namespace, orbit.ID(scope[:16]), key, keyActor, "submitTask", orbit.Digest(sha256.Sum256(id[:])), orbit.KeyDone, "task", id, id, b.now, b.now.Add(8 * 24 * time.Hour)}
}

func (v keyVariant) rows(b *bench, n int) [][]any {
	rows := make([][]any, n)
	for i := range rows {
		rows[i] = v.row(b)
	}
	slices.SortFunc(rows, func(x, y []any) int {
		a, c := x[1].(orbit.ID), y[1].(orbit.ID)
		if order := a.Compare(c); order != 0 {
			return order
		}
		return strings.Compare(x[2].(string), y[2].(string))
	})
	return rows
}

// fill adds rows that nobody measures, which leave pages as full as the variant's own order does.
func (v keyVariant) fill(ctx context.Context, b *bench, n int) error {
	if err := b.exec(ctx, "SET SESSION sql_log_bin = 0"); err != nil {
		return err
	}
	for n > 0 {
		rows := v.rows(b, min(n, fillRun))
		n -= len(rows)
		for part := range slices.Chunk(rows, fillRow) {
			if err := b.insert(ctx, platformdb.InsertKey, part); err != nil {
				return err
			}
		}
	}
	return b.exec(ctx, "SET SESSION sql_log_bin = 1")
}

// reserve does what a submission of a batch does to its keys.
func (v keyVariant) reserve(ctx context.Context, b *bench, n int) error {
	for range n / batchSize {
		rows := v.rows(b, batchSize)
		look, args := "WHERE namespace_id = ? AND scope = ? AND idempotency_key IN "+list(batchSize), []any{b.namespace, rows[0][1]}
		column := 2
		if v.hashed {
			look, args, column = "WHERE namespace_id = ? AND scope IN "+list(batchSize), args[:1], 1
		}
		for _, r := range rows {
			args = append(args, r[column])
		}
		share, _, _ := strings.Cut(platformdb.ShareKeys, "WHERE")
		err := b.transaction(ctx, func() error {
			if _, err := b.drain(ctx, share+look+" FOR SHARE NOWAIT", args...); err != nil {
				return err
			}
			return b.insert(ctx, platformdb.InsertKey, rows)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
