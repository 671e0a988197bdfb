package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River on PostgreSQL.
type riverQueue struct {
	server      *postgres
	connections int
	workers     int
	cooldown    time.Duration // between fetches, at least; River's default where it is 0
	poll        time.Duration // between fetches, at most; River's default where it is 0

	pool *pgxpool.Pool // of the database that the last reset made
}

// River's own benchmark (`river bench`) fetches as often as this, because the defaults limit throughput.
const (
	riverBenchCooldown = 2 * time.Millisecond
	riverBenchPoll     = 20 * time.Millisecond
)

// reset makes a database: in one that was emptied, what the server had counted before would mislead the plans of River's queries, up to fetches that take
// longer than River waits.
func (q *riverQueue) reset(ctx context.Context) (err error) {
	q.close()
	database, err := q.server.makeDatabase(ctx)
	if err != nil {
		return err
	}
	if q.pool, err = q.server.pool(ctx, database, q.connections); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(q.pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (q *riverQueue) close() {
	if q.pool != nil {
		q.pool.Close()
		q.pool = nil
	}
}

func (q *riverQueue) ended(ctx context.Context) (n int, err error) {
	return n, q.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&n)
}

// Kind makes a task what River inserts and works.
func (task) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[task]
	started func(task)
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[task]) error {
	w.started(job.Args)
	return nil
}

type riverClient struct {
	*river.Client[pgx.Tx]
	unsubscribe func()
}

func (q *riverQueue) work(ctx context.Context, on events) (worked, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{started: on.started})
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		FetchCooldown:     q.cooldown,
		FetchPollInterval: q.poll,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: q.workers}},
		Workers:           workers,
	})
	if err != nil {
		return nil, err
	}
	// An event comes after the job's end is stored; one that finds the channel full would be lost.
	ends, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 100_000, Kinds: []river.EventKind{
		river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled,
	}})
	go func() {
		for event := range ends {
			if event.Kind != river.EventKindJobCompleted {
				on.failed(fmt.Errorf("river: %s", event.Kind))
			}
			on.ended()
		}
	}()
	return &riverClient{client, unsubscribe}, client.Start(ctx)
}

func (c *riverClient) stop(ctx context.Context) error {
	defer c.unsubscribe()
	if err := c.Stop(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *riverClient) insert(ctx context.Context, tasks []task) error {
	if len(tasks) == 1 {
		_, err := c.Insert(ctx, tasks[0], nil)
		return err
	}
	params := make([]river.InsertManyParams, len(tasks))
	for i, t := range tasks {
		params[i].Args = t
	}
	_, err := c.InsertMany(ctx, params)
	return err
}
