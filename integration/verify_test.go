package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// broken answers the invariants of pulse that verify finds broken, each once, in order.
func broken(t *testing.T, o *harness.Orbit) string {
	t.Helper()
	found, err := o.Replica(0).Service.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range found {
		if strings.HasPrefix(f.Invariant, "pulse.") {
			names = append(names, f.Invariant)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
}

func TestVerifyFindsWhatIsBroken(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	other, _ := o.Tenant("other")
	queue := o.CreateQueue("q", nil)
	w := openWorker(t, o, "w", "q")
	old := w.instance
	w = openWorker(t, o, "w", "q")
	o.Pass("sweep_instances")
	for range 3 {
		submit(t, o, "q", "priority", 1)
	}
	done := w.run()
	wantItem(t, w.succeed(done, `1`), 200, "")
	running := w.run()
	offered := w.claimOne()
	ready := submit(t, o, "q")
	scheduled := submit(t, o, "q", "delay_ms", 3_600_000, "deadline_at", "2100-01-01T00:00:00Z")
	sched := createSchedule(t, o, everyMinute("s", "run_overlap", "buffer_all"))
	var triggered, waiting occurrence
	o.Call("POST", "/v1/schedules/"+sched.ID+":trigger", nil, harness.Key("t1")).Want(t, 200).JSON(t, &triggered)
	o.Call("POST", "/v1/schedules/"+sched.ID+":trigger", nil, harness.Key("t2")).Want(t, 200).JSON(t, &waiting)
	o.Call("POST", "/v1/queues/"+queue+":pause", `{"reason":"test"}`, harness.Key("pause")).Want(t, 200)
	wantItem(t, w.start(offered), 409, "start_refused")
	blocked := offered.TaskID
	if got := broken(t, o); got != "" {
		t.Fatalf("found %s before anything was broken", got)
	}

	const hex = "UNHEX(?)"
	for _, c := range []struct {
		name  string
		want  string
		spoil string
		mend  string
		id    string
	}{
		{"a ready row moved", "pulse.ready.task pulse.task.one_place",
			"UPDATE pulse_ready SET rank_us = rank_us + 1 WHERE task_id = " + hex, "UPDATE pulse_ready SET rank_us = rank_us - 1 WHERE task_id = " + hex, ready},
		{"a ready row of nobody", "pulse.ready.task",
			"INSERT INTO pulse_ready SELECT namespace_id, queue_id, priority, rank_us, REVERSE(task_id) FROM pulse_ready WHERE task_id = " + hex,
			"DELETE FROM pulse_ready WHERE task_id = REVERSE(" + hex + ")", ready},
		{"a ready row of an ended task", "pulse.ready.task pulse.task.one_place",
			"INSERT INTO pulse_ready SELECT namespace_id, queue_id, priority, rank_us, id FROM pulse_tasks WHERE id = " + hex,
			"DELETE FROM pulse_ready WHERE task_id = " + hex, done.TaskID},
		{"a ready row of a running task", "pulse.task.one_place",
			"INSERT INTO pulse_ready SELECT namespace_id, queue_id, priority, rank_us, id FROM pulse_tasks WHERE id = " + hex,
			"DELETE FROM pulse_ready WHERE task_id = " + hex, running.TaskID},
		{"a task in no place", "pulse.task.one_place",
			"DELETE FROM pulse_ready WHERE task_id = " + hex,
			"INSERT INTO pulse_ready SELECT namespace_id, queue_id, priority, rank_us, id FROM pulse_tasks WHERE id = " + hex, ready},
		{"a scheduled row with another priority", "pulse.scheduled.task",
			"UPDATE pulse_scheduled SET priority = priority + 1 WHERE task_id = " + hex, "UPDATE pulse_scheduled SET priority = priority - 1 WHERE task_id = " + hex, scheduled},
		{"a scheduled row with another time", "pulse.scheduled.task pulse.task.one_place",
			"UPDATE pulse_scheduled SET due_at = TIMESTAMPADD(SECOND, 1, due_at) WHERE task_id = " + hex,
			"UPDATE pulse_scheduled SET due_at = TIMESTAMPADD(SECOND, -1, due_at) WHERE task_id = " + hex, scheduled},
		{"a blocked row with another rank", "pulse.blocked.task",
			"UPDATE pulse_blocked SET rank_us = rank_us + 1 WHERE task_id = " + hex, "UPDATE pulse_blocked SET rank_us = rank_us - 1 WHERE task_id = " + hex, blocked},
		{"a deadline that is gone", "pulse.task.deadline",
			"DELETE FROM pulse_deadlines WHERE task_id = " + hex,
			"INSERT INTO pulse_deadlines SELECT deadline_at, namespace_id, id FROM pulse_tasks WHERE id = " + hex, scheduled},
		{"a deadline of a task without one", "pulse.deadline.task",
			"INSERT INTO pulse_deadlines SELECT created_at, namespace_id, id FROM pulse_tasks WHERE id = " + hex,
			"DELETE FROM pulse_deadlines WHERE task_id = " + hex, ready},
		{"a receipt of another outcome", "pulse.attempt.receipt pulse.task.result",
			"REPLACE INTO pulse_attempt_receipts SELECT namespace_id, attempt_id, digest, 'failed', result, error_code, error_message, reply, created_at FROM pulse_attempt_receipts WHERE attempt_id = " + hex,
			"REPLACE INTO pulse_attempt_receipts SELECT namespace_id, attempt_id, digest, 'succeeded', result, error_code, error_message, reply, created_at FROM pulse_attempt_receipts WHERE attempt_id = " + hex, done.AttemptID},
		{"a receipt of a running attempt", "pulse.attempt.receipt",
			"INSERT INTO pulse_attempt_receipts SELECT namespace_id, id, token_digest, 'failed', NULL, '', '', '', offered_at FROM pulse_attempts WHERE id = " + hex,
			"DELETE FROM pulse_attempt_receipts WHERE attempt_id = " + hex, running.AttemptID},
		{"an attempt of an epoch to come", "pulse.attempt.epoch",
			"UPDATE pulse_attempts SET epoch = epoch + 7 WHERE id = " + hex, "UPDATE pulse_attempts SET epoch = epoch - 7 WHERE id = " + hex, running.AttemptID},
		{"an attempt of a generation to come", "pulse.attempt.generation pulse.task.live_attempts pulse.task.one_place",
			"UPDATE pulse_attempts SET generation = generation + 7 WHERE id = " + hex, "UPDATE pulse_attempts SET generation = generation - 7 WHERE id = " + hex, running.AttemptID},
		{"an attempt on no instance", "pulse.attempt.instance",
			"UPDATE pulse_attempts SET instance_id = REVERSE(instance_id) WHERE id = " + hex, "UPDATE pulse_attempts SET instance_id = REVERSE(instance_id) WHERE id = " + hex, running.AttemptID},
		{"an attempt's version without event", "pulse.attempt.events",
			"UPDATE pulse_attempts SET version = version + 1 WHERE id = " + hex, "UPDATE pulse_attempts SET version = version - 1 WHERE id = " + hex, done.AttemptID},
		{"a generation that the task does not count", "pulse.attempt.generation pulse.task.generation pulse.task.result",
			"UPDATE pulse_tasks SET generation = generation - 1 WHERE id = " + hex, "UPDATE pulse_tasks SET generation = generation + 1 WHERE id = " + hex, done.TaskID},
		{"a task's version without event", "pulse.task.events",
			"UPDATE pulse_tasks SET revision = revision + 1 WHERE id = " + hex, "UPDATE pulse_tasks SET revision = revision - 1 WHERE id = " + hex, ready},
		{"an event above the task's version", "pulse.task.events",
			"UPDATE pulse_tasks SET revision = revision - 1 WHERE id = " + hex, "UPDATE pulse_tasks SET revision = revision + 1 WHERE id = " + hex, done.TaskID},
		{"a queue's version without event", "pulse.queue.events",
			"UPDATE pulse_queues SET revision = revision + 1 WHERE id = " + hex, "UPDATE pulse_queues SET revision = revision - 1 WHERE id = " + hex, queue},
		{"a gate's version without event", "pulse.gate.events",
			"UPDATE pulse_execution_gates SET control_version = control_version + 1 WHERE scope_id = LOWER(HEX(" + hex + "))",
			"UPDATE pulse_execution_gates SET control_version = control_version - 1 WHERE scope_id = LOWER(HEX(" + hex + "))", queue},
		{"a session ahead of its incarnation", "pulse.session.current",
			"UPDATE pulse_worker_sessions SET epoch = epoch + 1 WHERE instance_id = " + hex, "UPDATE pulse_worker_sessions SET epoch = epoch - 1 WHERE instance_id = " + hex, w.instance},
		{"an old incarnation that lives", "pulse.instance.current",
			"UPDATE pulse_worker_instances SET state = 'live', ended_at = NULL WHERE id = " + hex,
			"UPDATE pulse_worker_instances SET state = 'superseded', ended_at = opened_at WHERE id = " + hex, old},
		{"an incarnation of an epoch to come", "pulse.instance.epoch",
			"UPDATE pulse_worker_instances SET epoch = epoch + 7 WHERE id = " + hex, "UPDATE pulse_worker_instances SET epoch = epoch - 7 WHERE id = " + hex, old},
		{"a schedule's version without event", "pulse.schedule.events",
			"UPDATE pulse_schedules SET revision = revision + 1 WHERE id = " + hex, "UPDATE pulse_schedules SET revision = revision - 1 WHERE id = " + hex, sched.ID},
		{"a version that is not there", "pulse.schedule.events pulse.schedule.versions",
			"UPDATE pulse_schedules SET current_version = 2, revision = revision + 1 WHERE id = " + hex, "UPDATE pulse_schedules SET current_version = 1, revision = revision - 1 WHERE id = " + hex, sched.ID},
		{"a schedule that does not wake", "pulse.schedule.next_fire",
			"UPDATE pulse_schedules SET next_fire_at = NULL WHERE id = " + hex,
			"UPDATE pulse_schedules SET next_fire_at = '" + sched.NextFireAt.Format("2006-01-02 15:04:05") + "' WHERE id = " + hex, sched.ID},
		{"a schedule that wakes late", "pulse.schedule.next_fire",
			"UPDATE pulse_schedules SET next_fire_at = TIMESTAMPADD(SECOND, 1, next_fire_at) WHERE id = " + hex,
			"UPDATE pulse_schedules SET next_fire_at = TIMESTAMPADD(SECOND, -1, next_fire_at) WHERE id = " + hex, sched.ID},
		{"an occurrence that does not count its task", "pulse.occurrence.running pulse.task.occurrence",
			"UPDATE pulse_schedule_occurrences SET live_schedule_id = NULL, expires_at = '2100-01-01' WHERE id = " + hex,
			"UPDATE pulse_schedule_occurrences SET live_schedule_id = schedule_id, expires_at = NULL WHERE id = " + hex, triggered.ID},
		{"an occurrence of another's task", "pulse.occurrence.running pulse.occurrence.task",
			"UPDATE pulse_schedule_occurrences SET task_id = UNHEX('" + done.TaskID + "') WHERE id = " + hex,
			"UPDATE pulse_schedule_occurrences SET task_id = UNHEX('" + triggered.TaskID + "') WHERE id = " + hex, triggered.ID},
		{"an occurrence's version without event", "pulse.occurrence.events",
			"UPDATE pulse_schedule_occurrences SET version = version + 1 WHERE id = " + hex, "UPDATE pulse_schedule_occurrences SET version = version - 1 WHERE id = " + hex, waiting.ID},
		{"an occurrence after the watermark", "pulse.occurrence.watermark",
			"UPDATE pulse_schedule_occurrences SET source = 'timetable', actor_id = NULL, fire_at = TIMESTAMPADD(DAY, 1, fire_at) WHERE id = " + hex,
			"UPDATE pulse_schedule_occurrences SET source = 'trigger', actor_id = schedule_id, fire_at = TIMESTAMPADD(DAY, -1, fire_at) WHERE id = " + hex, waiting.ID},
		{"a namespace without a root gate", "pulse.namespace.root_gate",
			"DELETE FROM pulse_execution_gates WHERE scope = 'namespace' AND namespace_id = " + hex,
			"INSERT INTO pulse_execution_gates (namespace_id, scope, scope_id, state, control_version, closed_gates, reason, updated_at) " +
				"SELECT id, 'namespace', '', 'open', 1, (SELECT COUNT(*) FROM pulse_execution_gates c WHERE c.state = 'closed'), '', created_at FROM orbit_namespaces WHERE id = " + hex, o.Namespace.ID.String()},
		{"a closed gate that is not counted", "pulse.namespace.closed_gates",
			"INSERT INTO pulse_execution_gates (namespace_id, scope, scope_id, state, control_version, reason, updated_at) SELECT id, 'task_type', 'uncounted', 'closed', 1, '', created_at FROM orbit_namespaces WHERE id = " + hex,
			"DELETE FROM pulse_execution_gates WHERE scope_id = 'uncounted' AND namespace_id = " + hex, other.ID.String()},
	} {
		exec(t, o.DB, c.spoil, c.id)
		if got := broken(t, o); got != c.want {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
		exec(t, o.DB, c.mend, c.id)
	}
	if got := broken(t, o); got != "" {
		t.Fatalf("found %s after everything was mended", got)
	}
}

func TestVerifyFindsNothingWhileWorkGoesOn(t *testing.T) {
	o := harness.Start(t, harness.Options{})
	o.CreateQueue("q", map[string]any{"backoff_initial_ms": 0, "backoff_max_ms": 0})
	submitMany(t, o, "q", 60, "max_attempts", 2, "deadline_at", "2100-01-01T00:00:00Z")
	worked, verified := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			found, err := o.Replica(0).Service.Verify(context.Background())
			if err == nil && len(found) > 0 {
				err = fmt.Errorf("found %v", found)
			}
			if err != nil {
				verified <- err
				return
			}
			select {
			case <-worked:
				verified <- nil
				return
			default:
			}
		}
	}()
	w := openWorker(t, o, "w", "q")
	for offers := w.claim(5); len(offers) > 0; offers = w.claim(5) {
		for k, offered := range offers {
			if offered.Generation == 1 && k%3 == 0 {
				wantItem(t, w.release(offered, "shutdown"), 200, "")
				continue
			}
			wantItem(t, w.start(offered), 200, "")
			if k%3 == 1 {
				wantItem(t, w.fail(offered, true), 200, "")
			} else {
				wantItem(t, w.succeed(offered, `1`), 200, "")
			}
		}
	}
	close(worked)
	if err := <-verified; err != nil {
		t.Error(err)
	}
	if n := o.Count("pulse_tasks WHERE state = 'open'"); n != 0 {
		t.Errorf("%d tasks are left open", n)
	}
}
