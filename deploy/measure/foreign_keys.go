package main

import (
	"context"
	"fmt"
	"slices"
)

const asItIs = "as it is"

// A key that is there is taken away, one that is not is added, with the index that the server makes for it where none begins with its columns.
func askForeignKeys(ctx context.Context, s *server, o options) error {
	const id = "namespace_id, id"
	without := func(name, table, key string) variant {
		return variant{name: "without " + name, than: asItIs, tables: []string{table}, changes: []string{"ALTER TABLE " + table + " DROP FOREIGN KEY " + key}}
	}
	with := func(name, table, columns, parent, to string) variant {
		return variant{name: name, than: asItIs, tables: []string{table}, changes: []string{
			"ALTER TABLE " + table + " ADD CONSTRAINT fk_measure_" + table + "_" + parent + " FOREIGN KEY (" + columns + ") REFERENCES " + parent + " (" + to + ")"}}
	}
	there := []variant{
		without("task → queue", "pulse_tasks", "fk_pulse_tasks_queue"),
		without("attempt → task", "pulse_attempts", "fk_pulse_attempts_task"),
		without("receipt → attempt", "pulse_attempt_receipts", "fk_pulse_attempt_receipts_attempt"),
		without("key → namespace", "orbit_idempotency_keys", "fk_orbit_idempotency_keys_namespace"),
	}
	ready := with("ready → task", "pulse_ready", "namespace_id, task_id", "pulse_tasks", id)
	added := []variant{ready,
		with("attempt → queue", "pulse_attempts", "namespace_id, queue_id", "pulse_queues", id),
		with("attempt → queue, while live", "pulse_attempts", "namespace_id, live_queue_id", "pulse_queues", id),
		with("attempt → session", "pulse_attempts", "namespace_id, session_id", "pulse_worker_sessions", id),
		with("attempt → instance", "pulse_attempts", "namespace_id, instance_id", "pulse_worker_instances", id),
		with("attempt → instance, while live", "pulse_attempts", "namespace_id, live_instance_id", "pulse_worker_instances", id),
	}
	toNamespace := []variant{
		with("reply → namespace", "orbit_replies", "namespace_id", "orbit_namespaces", "id"),
		with("event → namespace", "orbit_events", "namespace_id", "orbit_namespaces", "id"),
		with("spool → namespace", "orbit_event_spool", "namespace_id", "orbit_namespaces", "id"),
	}
	scheduled := with("scheduled → task", "pulse_scheduled", "namespace_id, task_id", "pulse_tasks", id)
	blocked := with("blocked → task", "pulse_blocked", "namespace_id, task_id", "pulse_tasks", id)
	deadline := with("deadline → task", "pulse_deadlines", "namespace_id, task_id", "pulse_tasks", id)
	every := together("all that are not there", ready, scheduled, blocked, deadline, added[1], added[3], added[4], toNamespace[0], toNamespace[1], toNamespace[2])
	lives := slices.Concat([]variant{{name: asItIs}, again(asItIs)}, there, []variant{together("without these four", there...)}, added, toNamespace, []variant{every})
	// What is removed is looked for among the children.
	removal := []variant{{name: asItIs}, again(asItIs), there[1], there[2], together("ready, scheduled, blocked and deadline → task", ready, scheduled, blocked, deadline)}
	for i, parent := range map[int]string{2: "pulse_tasks", 3: "pulse_attempts", 4: "pulse_tasks"} {
		removal[i].tables = append(removal[i].tables, parent)
	}
	for _, part := range []struct {
		title string
		print func() error
	}{
		{"Lives", func() error { return compareLives(ctx, s, kind{}, lives, o) }},
		{"Lives with the removal of their tasks at the end of retention", func() error { return compareRetention(ctx, s, removal, o) }},
		{"Lives of tasks that wait for their time", func() error {
			return compareLives(ctx, s, kind{with: map[string]any{"delay_ms": 1}, promote: true}, []variant{{name: asItIs}, again(asItIs),
				scheduled}, o)
		}},
		{"Lives of tasks with a deadline", func() error {
			return compareLives(ctx, s, kind{with: map[string]any{"deadline_at": "2999-01-01T00:00:00Z"}}, []variant{{name: asItIs}, again(asItIs),
				deadline}, o)
		}},
	} {
		fmt.Printf("\n%s:\n\n", part.title)
		if err := part.print(); err != nil {
			return err
		}
	}
	return nil
}

// together is a variant with the changes of several.
func together(name string, variants ...variant) variant {
	all := variant{name: name, than: asItIs}
	for _, v := range variants {
		all.tables, all.changes = append(all.tables, v.tables...), append(all.changes, v.changes...)
	}
	return all
}
