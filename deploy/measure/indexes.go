package main

import "context"

// Each index is taken away alone. Where a foreign key goes by it, the key is taken away from both.
func askIndexes(ctx context.Context, s *server, o options) error {
	const (
		whole   = "as it is"
		noTask  = "without attempt → task"
		noQueue = "without task → queue"
		bare    = "without any of them"
	)
	noTaskKey := "ALTER TABLE pulse_attempts DROP FOREIGN KEY fk_pulse_attempts_task"
	noQueueKey := "ALTER TABLE pulse_tasks DROP FOREIGN KEY fk_pulse_tasks_queue"
	without := func(table, index string) string { return "ALTER TABLE " + table + " DROP INDEX " + index }
	generation, lease := without("pulse_attempts", "uq_pulse_attempts_generation"), without("pulse_attempts", "ix_pulse_attempts_lease")
	instance, live := without("pulse_attempts", "ix_pulse_attempts_instance"), without("pulse_attempts", "ix_pulse_attempts_live")
	list, expiry := without("pulse_tasks", "ix_pulse_tasks_list"), without("pulse_tasks", "ix_pulse_tasks_expiry")
	version := without("orbit_events", "uq_orbit_events_version")
	keyExpiry := without("orbit_idempotency_keys", "ix_orbit_idempotency_keys_expiry")
	attempts, tasks := []string{"pulse_attempts", purge}, []string{"pulse_tasks", purge}
	return compareLives(ctx, s, kind{}, []variant{
		{name: whole}, again(whole),
		{name: noTask, than: whole, tables: []string{"pulse_attempts"}, changes: []string{noTaskKey}},
		{name: noQueue, than: whole, tables: tasks, changes: []string{noQueueKey}},
		{name: "uq_pulse_attempts_generation", than: noTask, tables: attempts, changes: []string{noTaskKey, generation}},
		{name: "ix_pulse_attempts_lease", than: whole, tables: attempts, changes: []string{lease}},
		{name: "ix_pulse_attempts_instance", than: whole, tables: attempts, changes: []string{instance}},
		{name: "ix_pulse_attempts_live", than: whole, tables: attempts, changes: []string{live}},
		{name: "ix_pulse_attempts_instance and _live", than: whole, tables: attempts, changes: []string{instance, live}},
		{name: "ix_pulse_attempts_lease, _instance and _live", than: whole, tables: attempts, changes: []string{lease, instance, live}},
		{name: "ix_pulse_attempts_lease and _live", than: whole, tables: attempts, changes: []string{lease, live}},
		{name: "ix_pulse_tasks_list", than: noQueue, tables: tasks, changes: []string{noQueueKey, list}},
		{name: "ix_pulse_tasks_expiry", than: whole, tables: tasks, changes: []string{expiry}},
		{name: "uq_orbit_events_version", than: whole, tables: []string{"orbit_events"}, changes: []string{version}},
		{name: "ix_orbit_idempotency_keys_expiry", than: whole, tables: []string{"orbit_idempotency_keys"}, changes: []string{keyExpiry}},
		{name: bare, than: whole, changes: []string{noTaskKey, noQueueKey, generation, lease, instance, live, list, expiry, version, keyExpiry}},
	}, o)
}
