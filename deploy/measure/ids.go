package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

// Tasks with their attempts, inserted in batches of 100 with the service's statements while their tables outgrow the buffer pool.
func askIDs(ctx context.Context, s *server, o options) error {
	fmt.Println("| tasks | ids | CPU ms / 1,000 | redo KiB / 1,000 | pages read / 1,000 | pages written / 1,000 | KiB written / 1,000 | tasks a second |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, v := range []struct {
		name  string
		newID func(time.Time) orbit.ID
	}{{"ordered by time", orbit.NewID}, {"random", randomID}} {
		if err := growWith(ctx, s, v.name, v.newID, o.rows/5); err != nil {
			return err
		}
	}
	return nil
}

// idTurn is how many tasks are inserted between two readings.
const idTurn = 50_000

func growWith(ctx context.Context, s *server, name string, newID func(time.Time) orbit.ID, rows int) (err error) {
	b, err := s.bench(ctx, "measure_ids")
	if err != nil {
		return err
	}
	defer func() { b.close(); err = errors.Join(err, s.drop(ctx, b.database)) }()
	for done := 0; done < rows; done += idTurn {
		u, err := s.flushed(ctx, func() error {
			for range idTurn / batchSize {
				if err := b.insertTasks(ctx, newID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		per := func(value float64) float64 { return 1000 * value / idTurn }
		fmt.Printf("| %d | %s | %.1f | %.0f | %.1f | %.1f | %.0f | %.0f |\n", done+idTurn, name, 1000*per(u.work.Seconds()), per(u.redo)/1024, per(u.read), per(u.written), per(u.bytesWritten)/1024,
			idTurn/u.wall.Seconds())
	}
	return nil
}

// insertTasks accepts and offers a batch of tasks.
func (b *bench) insertTasks(ctx context.Context, newID func(time.Time) orbit.ID) error {
	tasks := b.tasks(batchSize, newID)
	attempts := make([][]any, len(tasks))
	for i, t := range tasks {
		attempts[i] = b.attempt(newID(b.now), t[1])
	}
	if err := b.transaction(ctx, func() error { return b.insert(ctx, pulsedb.InsertTask, tasks) }); err != nil {
		return err
	}
	return b.transaction(ctx, func() error { return b.insert(ctx, pulsedb.InsertAttempt, attempts) })
}

// attempt is an offer, as InsertAttempt takes it.
func (b *bench) attempt(id orbit.ID, taskID any) []any {
	return []any{b.namespace, id, taskID, b.queue, 1, keyActor, keyActor, 1, 1, strings.Repeat("x", 32), orbit.AttemptOffered, 30_000, b.now, keyActor, b.queue, b.now, nil}
}

// tasks are new ones, as InsertTask takes them.
func (b *bench) tasks(n int, newID func(time.Time) orbit.ID) [][]any {
	b.now = b.now.Add(10 * time.Millisecond)
	tasks := make([][]any, n)
	for i := range tasks {
		tasks[i] = []any{b.namespace, newID(b.now), b.queue, "measure", `{"text":"` + strings.Repeat("x", 89) + `"}`, 0, 5, b.now.UnixMicro() + int64(i), b.now, nil, 5, "", "", keyActor, "", nil, b.now, b.now}
	}
	return tasks
}
