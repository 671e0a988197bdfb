package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/service"
)

// batchSize is how many tasks each call of a life has.
const batchSize = 100

// connections of each pool: a single caller needs few.
const connections = 4

// orbitOn is a replica of Orbit in this process, without a network, on one variant of the schema; one caller asks it.
type orbitOn struct {
	service *service.Service
	pools   []*sql.DB
	offset  time.Duration
	key     string
	queue   string
	session map[string]any // instance_id and epoch
	seq     int64
	kind    kind
}

// kind is what the tasks are like.
type kind struct {
	with    map[string]any // fields of each task besides those that all have
	promote bool           // they are not due when they are submitted
}

func (s *server) startOrbit(ctx context.Context, database string) (*orbitOn, error) {
	o := &orbitOn{}
	for _, wait := range []time.Duration{time.Second, 5 * time.Second} {
		pool, err := schema.Open(s.dsn(database), schema.PoolOptions{MaxOpen: connections, LockWait: wait})
		if err != nil {
			return nil, err
		}
		pool.SetConnMaxLifetime(0) // what a session's thread ran is lost with it
		o.pools = append(o.pools, pool)
	}
	var err error
	o.service, err = service.New(service.Options{DB: o.pools[0], Lane: o.pools[1], StatementTime: time.Minute, ClockOffset: func() time.Duration { return o.offset },
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return nil, err
	}
	issued, err := o.service.Host("measure").Bootstrap(ctx, service.Bootstrap{})
	if err != nil {
		return nil, err
	}
	o.key = issued.Key.Text()
	var queue struct {
		ID string `json:"id"`
	}
	if err := o.call(ctx, "/v1/queues", map[string]any{"name": "measure", "lease_ms": 86400_000, "offer_timeout_ms": 3600_000}, &queue); err != nil {
		return nil, err
	}
	o.queue = queue.ID
	instance := orbit.NewID(time.Now()).String()
	var opened struct {
		Epoch int64 `json:"epoch"`
	}
	if err := o.call(ctx, "/v1/worker-sessions", map[string]any{"worker_name": "measure", "instance_id": instance, "queues": []string{o.queue}, "types": []string{}, "slots": 100}, &opened); err != nil {
		return nil, err
	}
	o.session = map[string]any{"instance_id": instance, "epoch": opened.Epoch}
	return o, nil
}

func (o *orbitOn) close() {
	for _, pool := range o.pools {
		pool.Close()
	}
}

// call sends a request and reads its answer.
func (o *orbitOn) call(ctx context.Context, path string, body map[string]any, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(sent))
	r.Header.Set("Authorization", "Bearer "+o.key)
	r.Header.Set("Content-Type", "application/json")
	if path == "/v1/queues" {
		r.Header.Set("Idempotency-Key", "queue")
	}
	w := httptest.NewRecorder()
	o.service.Handler().ServeHTTP(w, r)
	if w.Code >= 300 {
		return fmt.Errorf("%s: %d %s", path, w.Code, w.Body)
	}
	return json.Unmarshal(w.Body.Bytes(), answer)
}

// work is a call of the worker.
func (o *orbitOn) work(ctx context.Context, path string, body map[string]any, answer any) error {
	for k, v := range o.session {
		body[k] = v
	}
	return o.call(ctx, path, body, answer)
}

// items are the results of a batch, which must all be good.
type items struct {
	Items []struct {
		Status  int             `json:"status"`
		Problem json.RawMessage `json:"problem"`
	} `json:"items"`
}

func (i items) check(path string, want int) error {
	for _, item := range i.Items {
		if item.Status >= 300 {
			return fmt.Errorf("%s: %d %s", path, item.Status, item.Problem)
		}
	}
	if len(i.Items) != want {
		return fmt.Errorf("%s: %d results, want %d", path, len(i.Items), want)
	}
	return nil
}

// live takes one batch of tasks through submit, claim, start and finish.
func (o *orbitOn) live(ctx context.Context) error {
	tasks := make([]any, batchSize)
	payload := map[string]any{"text": strings.Repeat("x", 89)}
	for i := range tasks {
		task := map[string]any{"queue_id": o.queue, "type": "measure", "payload": payload, "idempotency_key": orbit.NewID(time.Now()).String()}
		maps.Copy(task, o.kind.with)
		tasks[i] = task
	}
	var got items
	if err := o.call(ctx, "/v1/tasks:batch", map[string]any{"items": tasks}, &got); err != nil {
		return err
	}
	if err := got.check("submit", batchSize); err != nil {
		return err
	}
	if o.kind.promote {
		o.offset += time.Second
		if err := o.pass(ctx, "promote_scheduled"); err != nil {
			return err
		}
	}
	starts, ends := make([]any, 0, batchSize), make([]any, 0, batchSize)
	for tries := 0; len(starts) < batchSize; tries++ {
		if tries == 100 {
			return fmt.Errorf("%d of %d tasks were offered", len(starts), batchSize)
		}
		o.seq++
		var claimed struct {
			Offers []struct {
				AttemptID string `json:"attempt_id"`
				Token     string `json:"token"`
			} `json:"offers"`
		}
		if err := o.work(ctx, "/v1/claims", map[string]any{"claim_seq": o.seq, "max": batchSize - len(starts)}, &claimed); err != nil {
			return err
		}
		for _, c := range claimed.Offers {
			starts = append(starts, map[string]any{"attempt_id": c.AttemptID, "token": c.Token})
			ends = append(ends, map[string]any{"attempt_id": c.AttemptID, "token": c.Token, "outcome": "succeeded", "result": payload})
		}
		if len(starts) < batchSize {
			fmt.Fprintf(os.Stderr, "\nclaim %d gave %d offers\n", o.seq, len(claimed.Offers))
		}
	}
	if err := o.workItems(ctx, "/v1/attempts:start", starts); err != nil {
		return err
	}
	return o.workItems(ctx, "/v1/attempts:finish", ends)
}

func (o *orbitOn) workItems(ctx context.Context, path string, list []any) error {
	var got items
	if err := o.work(ctx, path, map[string]any{"items": list}, &got); err != nil {
		return err
	}
	return got.check(path, batchSize)
}

// pass runs a background pass until it finds nothing more to do.
func (o *orbitOn) pass(ctx context.Context, name string) error {
	for _, l := range o.service.Loops() {
		for l.Name == name {
			if n, err := l.Pass(ctx); err != nil || n == 0 {
				return err
			}
		}
	}
	return nil
}

// lives takes n tasks through their lives and gives their events positions.
func (o *orbitOn) lives(ctx context.Context, n int) error {
	for range n / batchSize {
		if err := o.live(ctx); err != nil {
			return err
		}
	}
	return o.pass(ctx, "sequence_events")
}

// variant is the schema with some changes, to be compared with another variant.
type variant struct {
	name    string
	than    string   // the variant that is the measure; empty for that itself
	tables  []string // whose statements the changes bear on
	changes []string
}

// again is the measure once more: what it differs by is the error of the comparison.
func again(than string) variant { return variant{name: than + ", again", than: than} }

// compareLives gives each variant its turns, each of some lives, and prints what a life costs.
func compareLives(ctx context.Context, s *server, k kind, variants []variant, o options) error {
	return compareVariants(ctx, s, k, variants, o, func(replica *orbitOn) func(context.Context) error {
		return func(ctx context.Context) error { return replica.lives(ctx, o.lives) }
	})
}

// compareRetention prints what a life costs with the removal of its task when its time is over.
func compareRetention(ctx context.Context, s *server, variants []variant, o options) error {
	return compareVariants(ctx, s, kind{}, variants, o, func(replica *orbitOn) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := replica.lives(ctx, o.lives); err != nil {
				return err
			}
			replica.offset += 8 * 24 * time.Hour
			return replica.pass(ctx, "retain_tasks")
		}
	})
}

func compareVariants(ctx context.Context, s *server, k kind, variants []variant, o options, turn func(*orbitOn) func(context.Context) error) (err error) {
	list := make([]turns, len(variants))
	for i, v := range variants {
		database := fmt.Sprintf("measure_life_%d", i)
		defer func() { err = errors.Join(err, s.drop(ctx, database)) }()
		db, err := s.create(ctx, database, v.changes...)
		if err != nil {
			return err
		}
		db.Close()
		replica, err := s.startOrbit(ctx, database)
		if err != nil {
			return err
		}
		replica.kind = k
		defer replica.close()
		list[i] = turns{name: v.name, than: v.than, database: database, tables: v.tables, turn: turn(replica)}
	}
	return s.compare(ctx, list, o.rounds, float64(o.lives))
}
