package main

import "context"

func askTriggers(ctx context.Context, s *server, o options) error {
	// guard is as cheap as a trigger can be that does something: it refuses what never happens.
	guard := func(event, table string) string {
		return "CREATE TRIGGER measure_" + table + "_" + event + " BEFORE " + event + " ON " + table +
			" FOR EACH ROW BEGIN IF NEW.namespace_id = '' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no namespace'; END IF; END"
	}
	with := func(name, table string, events ...string) variant {
		v := variant{name: name, than: asItIs, tables: []string{table}}
		for _, event := range events {
			v.changes = append(v.changes, guard(event, table))
		}
		return v
	}
	return compareLives(ctx, s, kind{}, []variant{
		{name: asItIs}, again(asItIs),
		{name: "history without its triggers", than: asItIs, tables: []string{"orbit_events", "pulse_attempt_receipts"},
			changes: []string{"DROP TRIGGER orbit_events_no_update", "DROP TRIGGER pulse_attempt_receipts_no_update"}},
		with("insert of events", "orbit_events", "INSERT"),
		with("insert and update of tasks", "pulse_tasks", "INSERT", "UPDATE"),
		with("insert and update of attempts", "pulse_attempts", "INSERT", "UPDATE"),
		with("insert of ready rows", "pulse_ready", "INSERT"),
	}, o)
}
