package integration_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// plan is how a hot statement must be carried out, on tables of any size: by these indexes, without sorting, and with no more rows
// read than its own list or limit calls for.
type plan struct {
	indexes map[string]string // by table or alias
	rows    int               // the most it may read for planItems items, or at its limit
	// walks: a look that locks nothing and may read past its rows while the server takes a table for empty, which lasts seconds. Then no
	// hint makes it prefer the range of an index to the whole.
	walks bool
}

// unnoticed names the state of tables that have grown while the server still takes them for empty.
const unnoticed = "grown unnoticed"

// planItems is how many items the calls of the test have.
const planItems = 10

// plans are by the name of the query; a statement without a name goes by its first word and its table. Inserts walk no index.
var plans = map[string]plan{
	// submit
	"ListKeys":  {indexes: map[string]string{"orbit_idempotency_keys": "PRIMARY"}, rows: 2},
	"ShareKeys": {indexes: map[string]string{"orbit_idempotency_keys": "PRIMARY"}, rows: 2 * planItems},
	// claim
	"AwaitFences":          {indexes: map[string]string{"g": "PRIMARY", "i": "PRIMARY", "s": "PRIMARY"}, rows: 4},
	"ShareFences":          {indexes: map[string]string{"g": "PRIMARY", "i": "PRIMARY", "s": "PRIMARY"}, rows: 4},
	"ListClosedGates":      {indexes: map[string]string{"pulse_execution_gates": "ix_pulse_execution_gates_closed"}, rows: 4},
	"PeekReady":            {indexes: map[string]string{"pulse_ready": "PRIMARY"}, rows: 2},
	"PeekQueues":           {indexes: map[string]string{"r": "PRIMARY", "n": "PRIMARY", "g": "PRIMARY"}, rows: 4*planItems + 8},
	"LockReady":            {indexes: map[string]string{"pulse_ready": "PRIMARY"}, rows: planItems + 1},
	"ListTasksToOffer":     {indexes: map[string]string{"t": "PRIMARY", "q": "PRIMARY"}, rows: 3 * planItems},
	"DELETE r pulse_ready": {indexes: map[string]string{"r": "PRIMARY"}, rows: 4 * planItems},
	// start, heartbeat, finish
	"ShareRootGate":  {indexes: map[string]string{"pulse_execution_gates": "PRIMARY"}, rows: 1},
	"LockAttempts":   {indexes: map[string]string{"a": "PRIMARY", "t": "PRIMARY", "q": "PRIMARY"}, rows: 4 * planItems},
	"AwaitAttempts":  {indexes: map[string]string{"a": "PRIMARY", "t": "PRIMARY", "q": "PRIMARY"}, rows: 4},
	"ListQueuesByID": {indexes: map[string]string{"pulse_queues": "PRIMARY"}, rows: 2},
	"StartAttempts":  {indexes: map[string]string{"pulse_attempts": "PRIMARY"}, rows: 2 * planItems},
	"BeatAttempts":   {indexes: map[string]string{"pulse_attempts": "PRIMARY"}, rows: 2 * planItems},
	"BeatInstances":  {indexes: map[string]string{"pulse_worker_instances": "PRIMARY"}, rows: 2},
	"EndAttempts":    {indexes: map[string]string{"pulse_attempts": "PRIMARY"}, rows: 2 * planItems},
	"EndTasks":       {indexes: map[string]string{"pulse_tasks": "PRIMARY"}, rows: 2 * planItems},
	// recovery
	"DueSoon":            {indexes: map[string]string{"pulse_blocked": "PRIMARY"}, rows: 20}, // the minima are read before there is a plan
	"DueLeases":          {indexes: map[string]string{"pulse_attempts": "ix_pulse_attempts_lease"}, rows: 3 * planDue},
	"DueScheduled":       {indexes: map[string]string{"pulse_scheduled": "PRIMARY"}, rows: 3 * planDue},
	"DueDeadlines":       {indexes: map[string]string{"pulse_deadlines": "PRIMARY"}, rows: 3 * planDue, walks: true},
	"DueSweeps":          {indexes: map[string]string{"pulse_worker_instances": "ix_pulse_worker_instances_sweep"}, rows: 3 * planDue, walks: true},
	"DueSilentInstances": {indexes: map[string]string{"pulse_worker_instances": "ix_pulse_worker_instances_silent"}, rows: 3 * planDue, walks: true},
	"DueExpiredTasks":    {indexes: map[string]string{"pulse_tasks": "ix_pulse_tasks_expiry"}, rows: 3 * planDue, walks: true},
	"LockScheduled":      {indexes: map[string]string{"pulse_scheduled": "PRIMARY"}, rows: 2 * planItems},
	"DueKeys":            {indexes: map[string]string{"orbit_idempotency_keys": "ix_orbit_idempotency_keys_expiry"}, rows: 3 * planDue},
	// schedules
	"DueSchedules":          {indexes: map[string]string{"pulse_schedules": "ix_pulse_schedules_due"}, rows: 3 * planDue, walks: true},
	"LockSchedules":         {indexes: map[string]string{"pulse_schedules": "PRIMARY"}, rows: 2 * planItems},
	"ListCurrentVersions":   {indexes: map[string]string{"s": "PRIMARY", "v": "PRIMARY"}, rows: 4 * planItems},
	"ListLiveOccurrences":   {indexes: map[string]string{"pulse_schedule_occurrences": "ix_pulse_schedule_occurrences_live"}, rows: 3 * planItems},
	"ShareLiveOccurrences":  {indexes: map[string]string{"pulse_schedule_occurrences": "PRIMARY"}, rows: 2 * planItems},
	"CountBuffered":         {indexes: map[string]string{"pulse_schedule_occurrences": "ix_pulse_schedule_occurrences_buffered"}, rows: 3 * planItems},
	"ListBufferedBehind":    {indexes: map[string]string{"o": "PRIMARY", "b": "ix_pulse_schedule_occurrences_buffered"}, rows: 4 * planItems, walks: true},
	"DueBufferedSchedules":  {indexes: map[string]string{"pulse_schedule_occurrences": "ix_pulse_schedule_occurrences_buffered"}, rows: 3 * planDue, walks: true},
	"DueExpiredOccurrences": {indexes: map[string]string{"pulse_schedule_occurrences": "ix_pulse_schedule_occurrences_expiry"}, rows: 3 * planDue, walks: true},
	// sequencer and feed
	"HostSpooledNamespaces": {indexes: map[string]string{"orbit_event_spool": "PRIMARY"}, rows: planSpool + 3},
	"LockEventHead":         {indexes: map[string]string{"orbit_event_heads": "PRIMARY"}, rows: 1},
	"ListSpool":             {indexes: map[string]string{"orbit_event_spool": "PRIMARY"}, rows: 1001},
	"DeleteSpool":           {indexes: map[string]string{"orbit_event_spool": "PRIMARY"}, rows: 2 * 40},
	"FindLogBatch":          {indexes: map[string]string{"orbit_event_log": "PRIMARY"}, rows: 2, walks: true},
	"ListLog":               {indexes: map[string]string{"orbit_event_log": "PRIMARY"}, rows: 102},
	"ListEvents":            {indexes: map[string]string{"orbit_events": "PRIMARY"}, rows: 700}, // the batches of the first 100 events
}

// seen is a statement as the service sent it.
type seenStatement struct {
	query string
	args  []any
}

// sightings keeps the last statement of each name.
type sightings struct {
	mu     sync.Mutex
	byName map[string]seenStatement
	sought string
	found  chan struct{}
}

// next gives a channel that is closed at the next statement of that name.
func (s *sightings) next(name string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sought, s.found = name, make(chan struct{})
	return s.found
}

func (s *sightings) see(statement harness.Statement, args []driver.NamedValue) {
	name := statement.Name()
	if words := strings.Fields(string(statement)); strings.HasPrefix(string(statement), "DELETE r FROM") {
		name = "DELETE r " + words[slices.Index(words, "STRAIGHT_JOIN")+1]
	}
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[name] = seenStatement{string(statement), values}
	if name == s.sought {
		s.sought = ""
		close(s.found)
	}
}

// A plan that is right on one size of table and wrong on another is a stall in production: statements are taken from the running
// service and looked at on a small and a large table, on one that has grown without the server's notice, and on an empty one.
func TestHotStatementsKeepTheirPlans(t *testing.T) {
	seen := &sightings{byName: map[string]seenStatement{}}
	o := harness.Start(t, harness.Options{Between: harness.Watch(seen.see)})
	queue := workForPlans(t, o, seen)
	conn, err := o.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for _, size := range []struct {
		name    string
		prepare func(*testing.T, *sql.Conn, string)
	}{
		{"small", func(t *testing.T, conn *sql.Conn, _ string) { analyze(t, conn) }},
		{"large", growTables},
		{unnoticed, forgetStatistics},
		{"empty", emptyTables},
	} {
		size.prepare(t, conn, queue)
		for name, want := range plans {
			t.Run(size.name+"/"+name, func(t *testing.T) {
				statement, ok := seen.byName[name]
				if !ok {
					t.Fatal("the service did not send it")
				}
				statement.wantIndexes(t, conn, want)
				if !want.walks || size.name != unnoticed {
					statement.wantRows(t, conn, want)
				}
			})
		}
	}
}

// workForPlans puts a few hundred rows into each table and then does everything hot with planItems items.
func workForPlans(t *testing.T, o *harness.Orbit, seen *sightings) (queueID string) {
	queueID = o.CreateQueue("q", policy("lease_ms", 3600_000, "offer_timeout_ms", 3600_000))
	for i := range 20 {
		o.CreateQueue(fmt.Sprintf("other%d", i), nil)
	}
	for i := range 20 {
		openWorker(t, o, fmt.Sprintf("bystander%d", i), "q")
	}
	w := openWorker(t, o, "w", "q")
	submitMany(t, o, "q", 300)
	submitMany(t, o, "q", 100, "delay_ms", 3600_000, "deadline_at", time.Now().Add(48*time.Hour))
	others := w.claim(100)
	w.items("/v1/attempts:start", itemsOf(others)...)
	w.items("/v1/attempts:finish", itemsOf(others[:50], "outcome", "succeeded")...)
	o.Pass("sequence_events")

	submitMany(t, o, "q", planItems)
	submitMany(t, o, "q", planItems, "delay_ms", 1)
	o.Call("POST", "/v1/queues/"+queueID+":pause", map[string]any{"reason": "test"}, harness.Key("pause")).Want(t, 200)
	peekForPlans(t, o, seen)
	o.Call("POST", "/v1/queues/"+queueID+":resume", map[string]any{}, harness.Key("resume")).Want(t, 200)
	o.Call("POST", "/v1/queues/"+o.CreateQueue("closed", nil)+":pause", map[string]any{"reason": "test"}, harness.Key("close")).Want(t, 200)
	w.seq++ // several queues are put in order by a look at each
	w.call("/v1/claims", map[string]any{"claim_seq": w.seq, "max": 1, "queues": []string{"q", "other0"}}).Want(t, 200)
	offers := w.claim(planItems)
	w.items("/v1/attempts:start", itemsOf(offers)...)
	w.items("/v1/attempts:heartbeat", itemsOf(offers)...)
	w.items("/v1/attempts:finish", itemsOf(offers, "outcome", "succeeded")...)
	held := w.claim(1)
	twice := map[string]any{"items": []any{held[0].item(), held[0].item()}} // the second is judged alone
	w.call("/v1/attempts:start", twice).Want(t, 200)
	w.items("/v1/attempts:start", itemsOf(offers)...)
	for i := range planItems {
		createSchedule(t, o, everyMinute(fmt.Sprint("s", i), "run_overlap", "buffer_one", "timetable", map[string]any{"every_ms": 1000},
			"task", map[string]any{"queue": "q", "type": "t", "priority": 1}))
	}
	o.Advance(time.Second)
	o.Pass("fire_schedules")
	o.Advance(time.Second)
	o.Pass("fire_schedules")
	scheduled := w.claim(planItems / 2)
	w.items("/v1/attempts:start", itemsOf(scheduled)...)
	w.items("/v1/attempts:finish", itemsOf(scheduled, "outcome", "succeeded")...)
	for _, pass := range []string{"renew_replica", "promote_scheduled", "recover_leases", "sweep_instances", "expire_deadlines", "expire_instances", "retain_tasks", "retire_keys", "release_buffered", "retain_occurrences", "sequence_events", "look_ahead"} {
		o.Pass(pass)
	}
	o.Call("GET", "/v1/events?limit=100", nil).Want(t, 200)
	return queueID
}

// peekForPlans has the backstop look for a claim that waits for planItems queues, of which one has tasks and is paused. The claim ends when that
// is resumed.
func peekForPlans(t *testing.T, o *harness.Orbit, seen *sightings) {
	t.Helper()
	queues := []string{"q"}
	for i := range planItems - 1 {
		queues = append(queues, fmt.Sprintf("other%d", i))
	}
	w := openWorker(t, o, "waits", queues...)
	looks := seen.next("PeekReady") // it waits already when it looks
	answer := later(t, func() (harness.Reply, error) {
		return w.send("/v1/claims", map[string]any{"claim_seq": 1, "max": 1, "wait_ms": 30_000})
	})
	within(t, looks, "the claim to look")
	if n := o.Pass("wake_waiters"); n != 0 {
		t.Fatalf("%d paused or empty queues are said to have tasks", n)
	}
	t.Cleanup(func() { answer() })
}

func itemsOf(offers []offer, more ...any) []map[string]any {
	items := make([]map[string]any, len(offers))
	for i, o := range offers {
		items[i] = o.item(more...)
	}
	return items
}

// planTables are those whose size changes.
var planTables = []string{
	"orbit_idempotency_keys", "orbit_replies", "orbit_events", "orbit_event_spool", "orbit_event_log",
	"pulse_queues", "pulse_execution_gates", "pulse_worker_sessions", "pulse_worker_instances",
	"pulse_tasks", "pulse_ready", "pulse_scheduled", "pulse_blocked", "pulse_deadlines", "pulse_attempts", "pulse_attempt_receipts",
	"pulse_schedules", "pulse_schedule_versions", "pulse_schedule_occurrences",
}

// planDue is how many rows of each kind are due on large tables: fewer than a pass takes, so that a walk past them would be seen.
const planDue = 50

// planSpool is how many batches of events wait on large tables; the sequencer, which may read them all in a pass, keeps them few.
const planSpool = 1000

// growTables adds tens of thousands of rows.
func growTables(t *testing.T, conn *sql.Conn, queueID string) {
	t.Helper()
	must(t, conn, "SET SESSION cte_max_recursion_depth = 1000000, @now = NOW(6)")
	for _, statement := range []string{
		`INSERT INTO orbit_idempotency_keys (namespace_id, scope, idempotency_key, actor_id, operation, digest, state, resource_kind, resource_id, reply_id, created_at, expires_at)
SELECT k.namespace_id, k.scope, CONCAT('grown', n.i), k.actor_id, k.operation, k.digest, k.state, k.resource_kind, {id}, {id}, k.created_at, IF(n.i <= planDue, k.created_at + INTERVAL 1 MICROSECOND, k.expires_at)
FROM {n} JOIN (SELECT * FROM orbit_idempotency_keys WHERE state = 'done' AND operation = 'submitTask' LIMIT 1) k`,
		`INSERT INTO pulse_tasks (namespace_id, id, queue_id, type, payload, payload_version, priority, rank_us, run_at, max_attempts, attempts_used, generation, idle_offers,
  trace_parent, trace_state, actor_id, origin_kind, state, failure_code, failure_message, revision, created_at, updated_at, finished_at, expires_at)
SELECT q.namespace_id, {id}, q.id, 'grown', '{}', 0, 5, n.i, @now, 5, 0, 0, 0, '', '', q.id, '', IF(n.i % 2, 'open', 'succeeded'), '', '', 1, @now, @now,
  IF(n.i % 2, NULL, @now), IF(n.i % 2, NULL, IF(n.i <= planDue, @now - INTERVAL 1 DAY, @now + INTERVAL 1 DAY)) FROM {n} JOIN {q}`,
		`INSERT INTO pulse_schedules SELECT q.namespace_id, {id}, CONCAT('grown', n.i), 1, NULL, '', NULL, @now - INTERVAL 2 DAY, IF(n.i <= planDue, @now - INTERVAL 1 DAY, @now + INTERVAL 1 DAY), 1, @now, @now FROM {n} JOIN {q}`,
		`INSERT INTO pulse_schedule_versions SELECT q.namespace_id, {id}, 1, '{}', 0, 'skip', 60000, 1, q.id, 't', 'null', 0, 5, 0, 0, q.id, @now FROM {n} JOIN {q}`,
		`INSERT INTO pulse_schedule_occurrences (namespace_id, id, schedule_id, fire_at, schedule_version, source, outcome, code, task_id, version, live_schedule_id, buffered_schedule_id, created_at, updated_at, expires_at)
SELECT q.namespace_id, {id}, {id}, @now, 1, 'timetable', IF(n.i <= planDue, 'buffered', 'fired'), '', IF(n.i <= planDue, NULL, {id}), 1, IF(n.i > planDue AND n.i % 2, {id}, NULL), IF(n.i <= planDue, {id}, NULL), @now, @now,
  IF(n.i <= planDue OR n.i % 2, NULL, IF(n.i <= 2 * planDue, @now - INTERVAL 1 DAY, @now + INTERVAL 1 DAY)) FROM {n} JOIN {q}`,
		`INSERT INTO pulse_ready SELECT q.namespace_id, q.id, 5, n.i, {id} FROM {n} JOIN {q}`,
		`INSERT INTO pulse_scheduled SELECT IF(n.i <= planDue, @now - INTERVAL n.i SECOND, @now + INTERVAL 1 DAY), q.namespace_id, {id}, q.id, 5, n.i FROM {n} JOIN {q}`,
		`INSERT INTO pulse_deadlines SELECT IF(n.i <= planDue, @now - INTERVAL n.i SECOND, @now + INTERVAL 1 DAY), q.namespace_id, {id} FROM {n} JOIN {q}`,
		`INSERT INTO pulse_attempts (namespace_id, id, task_id, queue_id, generation, instance_id, session_id, epoch, claim_seq, token_digest, state, version, heartbeats,
  lease_ms, lease_until, live_instance_id, live_queue_id, offered_at, started_at, ended_at, end_code, end_message)
SELECT q.namespace_id, {id}, {id}, q.id, 1, {id}, {id}, 1, 1, REPEAT('x', 32), IF(n.i % 2, 'running', 'succeeded'), 3, 0, 0,
  IF(n.i % 2, IF(n.i <= planDue, @now - INTERVAL 1 DAY, @now + INTERVAL 1 DAY), NULL), IF(n.i % 2, {id}, NULL), IF(n.i % 2, q.id, NULL), @now, @now, IF(n.i % 2, NULL, @now), '', '' FROM {n} JOIN {q}`,
		`INSERT INTO pulse_worker_sessions SELECT q.namespace_id, {id}, CONCAT('grown', n.i), q.id, 1, {id}, 0, NULL, @now, @now FROM {n} JOIN {q}`,
		`INSERT INTO pulse_worker_instances (namespace_id, id, session_id, epoch, host, version, queues, types, slots, state, heartbeats, heartbeat_at, sweep_due_at, opened_at, ended_at)
SELECT q.namespace_id, {id}, {id}, 1, '', '', '[]', '[]', 1, IF(n.i % 2, 'live', 'closed'), 0, IF(n.i <= planDue, @now - INTERVAL 1 DAY, @now), IF(n.i % 2 OR n.i > planDue, NULL, @now - INTERVAL 1 DAY), @now, IF(n.i % 2, NULL, @now) FROM {n} JOIN {q}`,
		`INSERT INTO pulse_execution_gates (namespace_id, scope, scope_id, state, control_version, reason, updated_at) SELECT q.namespace_id, 'queue', CONCAT('grown', n.i), 'open', 1, '', @now FROM {n} JOIN {q}`,
		`INSERT INTO pulse_queues (namespace_id, id, name, lease_ms, offer_timeout_ms, max_attempts, backoff_initial_ms, backoff_max_ms, retention_ms, unknown_outcome, one_step, revision, created_at, updated_at)
SELECT q.namespace_id, {id}, CONCAT('grown', n.i), q.lease_ms, q.offer_timeout_ms, q.max_attempts, q.backoff_initial_ms, q.backoff_max_ms, q.retention_ms, q.unknown_outcome, q.one_step, 1, @now, @now FROM {n} JOIN (SELECT * FROM {q} LIMIT 1) q`,
		`INSERT INTO orbit_events SELECT q.namespace_id, {id}, 0, 'task', {id}, 1, 'grown', NULL, '{}', @now FROM {n} JOIN {q}`,
		`INSERT INTO orbit_event_log SELECT q.namespace_id, 1000000 + n.i, {id}, 1 FROM {n} JOIN {q}`,
		`INSERT INTO orbit_event_spool (namespace_id, batch_id, event_count) SELECT q.namespace_id, {id}, 1 FROM {n} JOIN {q} WHERE n.i <= planSpool`,
	} {
		query := strings.NewReplacer(
			"(SELECT * FROM {q} LIMIT 1)", "(SELECT * FROM pulse_queues WHERE id = UNHEX('"+queueID+"'))",
			"planSpool", strconv.Itoa(planSpool), "planDue", strconv.Itoa(2*planDue),
			"{q}", "(SELECT * FROM pulse_queues WHERE id = UNHEX('"+queueID+"')) q",
			"{n}", "(WITH RECURSIVE c AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM c WHERE i < 20000) SELECT i FROM c) n",
			"{id}", "UNHEX(CONCAT('0f', LPAD(HEX(n.i), 30, '0')))",
		).Replace(statement)
		must(t, conn, query)
	}
	analyze(t, conn)
}

func analyze(t *testing.T, conn *sql.Conn) {
	t.Helper()
	must(t, conn, "ANALYZE TABLE "+strings.Join(planTables, ", "))
}

// forgetStatistics has the server take tables for as good as empty, as it does while they fill for the first time.
func forgetStatistics(t *testing.T, conn *sql.Conn, _ string) {
	t.Helper()
	must(t, conn, "UPDATE mysql.innodb_table_stats SET n_rows = 0, clustered_index_size = 1, sum_of_other_index_sizes = 1 WHERE database_name = DATABASE()")
	must(t, conn, "UPDATE mysql.innodb_index_stats SET stat_value = IF(stat_name LIKE 'n_diff%', 0, 1) WHERE database_name = DATABASE()")
	must(t, conn, "FLUSH TABLES "+strings.Join(planTables, ", "))
}

func emptyTables(t *testing.T, conn *sql.Conn, _ string) {
	t.Helper()
	must(t, conn, "SET SESSION foreign_key_checks = 0")
	for _, table := range planTables {
		if table != "pulse_execution_gates" { // which always has the root gates
			must(t, conn, "TRUNCATE TABLE "+table)
		}
	}
	must(t, conn, "DELETE FROM pulse_execution_gates WHERE scope <> 'namespace'")
	must(t, conn, "UPDATE pulse_execution_gates SET closed_gates = 0")
	must(t, conn, "UPDATE orbit_event_heads SET next_position = 1, trimmed_below = 1")
	must(t, conn, "SET SESSION foreign_key_checks = 1")
	analyze(t, conn)
}

func must(t *testing.T, conn *sql.Conn, query string, args ...any) {
	t.Helper()
	if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), query, args...); err != nil {
		t.Fatalf("%v in %.200s", err, query)
	}
}

// wantIndexes looks at what the server would do.
func (s seenStatement) wantIndexes(t *testing.T, conn *sql.Conn, want plan) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+s.query, s.args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]bool{}
	for rows.Next() {
		var id, kind, table, partitions, access, possible, key, length, ref, count, filtered, extra sql.NullString
		if err := rows.Scan(&id, &kind, &table, &partitions, &access, &possible, &key, &length, &ref, &count, &filtered, &extra); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(extra.String, "filesort") {
			t.Errorf("%s is sorted: %s", table.String, extra.String)
		}
		if strings.Contains(extra.String, "no matching row") || strings.Contains(extra.String, "after reading const tables") {
			return // a look by full key into a table without that row
		}
		index, looked := want.indexes[table.String]
		if looked && key.String != index {
			t.Errorf("%s goes by %s (access %s), want %s", table.String, key.String, access.String, index)
		}
		found[table.String] = found[table.String] || looked
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for table := range want.indexes {
		if !found[table] {
			t.Errorf("the plan has no table %s", table)
		}
	}
}

// wantRows carries the statement out, undoes it, and counts what was read.
func (s seenStatement) wantRows(t *testing.T, conn *sql.Conn, want plan) {
	t.Helper()
	must(t, conn, "START TRANSACTION")
	defer must(t, conn, "ROLLBACK")
	first := rowsRead(t, conn)
	counting := rowsRead(t, conn) - first // what it takes to read the counters
	drain(t, conn, s.query, s.args...)
	if read := rowsRead(t, conn) - first - 2*counting; read > want.rows {
		t.Errorf("%d rows were read, want at most %d", read, want.rows)
	} else {
		t.Logf("%d rows read", read)
	}
}

// drain runs a statement and reads what it answers.
func drain(t *testing.T, conn *sql.Conn, query string, args ...any) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// rowsRead is how many rows and index entries this session has asked its tables for.
func rowsRead(t *testing.T, conn *sql.Conn) (sum int) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}
