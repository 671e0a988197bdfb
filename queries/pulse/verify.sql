-- name: HostVerifyNamespaces :many
SELECT n.id, g.scope AS root_gate, CAST(COALESCE(g.closed_gates, 0) AS SIGNED) AS kept_closed,
  CAST((SELECT COUNT(*) FROM pulse_execution_gates c FORCE INDEX (ix_pulse_execution_gates_closed) WHERE c.namespace_id = n.id AND c.state = 'closed') AS SIGNED) AS closed
FROM orbit_namespaces n FORCE INDEX (PRIMARY)
LEFT JOIN pulse_execution_gates g FORCE INDEX (PRIMARY) ON g.namespace_id = n.id AND g.scope = 'namespace' AND g.scope_id = ''
WHERE n.id > sqlc.arg(after_id) ORDER BY n.id LIMIT ?;

-- name: VerifyTasks :many
-- Walks the primary key; each row with what must agree with it, as of one instant. trimmed_below and oldest_event_at tell which events
-- retention may have removed.
SELECT t.id, t.state, t.generation, t.revision, t.deadline_at, t.result_evidence_id, t.created_at, t.updated_at,
  r.task_id AS ready_id, s.task_id AS scheduled_id, b.task_id AS blocked_id, d.task_id AS deadline_id, a.state AS next_state,
  CAST((SELECT COUNT(*) FROM pulse_attempts l FORCE INDEX (uq_pulse_attempts_generation) WHERE l.namespace_id = t.namespace_id AND l.task_id = t.id AND l.lease_until IS NOT NULL) AS SIGNED) AS live_attempts,
  c.outcome AS receipt_outcome, t.origin_kind, k.live_schedule_id, v.outcome AS evidence_outcome, w.task_id AS evidence_task_id,
  h.trimmed_below, o.occurred_at AS oldest_event_at,
  CAST((SELECT COUNT(*) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = t.namespace_id AND e.aggregate_id = t.id AND e.aggregate_kind = 'task') AS SIGNED) AS event_count,
  CAST((SELECT COALESCE(MIN(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = t.namespace_id AND e.aggregate_id = t.id AND e.aggregate_kind = 'task') AS SIGNED) AS event_first,
  CAST((SELECT COALESCE(MAX(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = t.namespace_id AND e.aggregate_id = t.id AND e.aggregate_kind = 'task') AS SIGNED) AS event_last
FROM pulse_tasks t FORCE INDEX (PRIMARY)
LEFT JOIN pulse_ready r FORCE INDEX (PRIMARY) ON r.namespace_id = t.namespace_id AND r.queue_id = t.queue_id AND r.priority = t.priority AND r.rank_us = t.rank_us AND r.task_id = t.id
LEFT JOIN pulse_scheduled s FORCE INDEX (PRIMARY) ON s.due_at = t.run_at AND s.namespace_id = t.namespace_id AND s.task_id = t.id
LEFT JOIN pulse_blocked b FORCE INDEX (uq_pulse_blocked_task) ON b.namespace_id = t.namespace_id AND b.task_id = t.id
LEFT JOIN pulse_deadlines d FORCE INDEX (PRIMARY) ON d.deadline_at = t.deadline_at AND d.namespace_id = t.namespace_id AND d.task_id = t.id
LEFT JOIN pulse_attempts a FORCE INDEX (uq_pulse_attempts_generation) ON a.namespace_id = t.namespace_id AND a.task_id = t.id AND a.generation = t.generation + 1
LEFT JOIN pulse_attempts g FORCE INDEX (uq_pulse_attempts_generation) ON g.namespace_id = t.namespace_id AND g.task_id = t.id AND g.generation = t.generation
LEFT JOIN pulse_attempt_receipts c FORCE INDEX (PRIMARY) ON c.namespace_id = g.namespace_id AND c.attempt_id = g.id
LEFT JOIN pulse_attempt_evidence v FORCE INDEX (PRIMARY) ON v.namespace_id = t.namespace_id AND v.id = t.result_evidence_id
LEFT JOIN pulse_attempts w FORCE INDEX (PRIMARY) ON w.namespace_id = v.namespace_id AND w.id = v.attempt_id
LEFT JOIN pulse_schedule_occurrences k FORCE INDEX (PRIMARY) ON k.namespace_id = t.namespace_id AND k.id = t.origin_id
LEFT JOIN orbit_event_heads h FORCE INDEX (PRIMARY) ON h.namespace_id = t.namespace_id
LEFT JOIN orbit_event_log m FORCE INDEX (PRIMARY) ON m.namespace_id = h.namespace_id AND m.first_position = h.trimmed_below
LEFT JOIN orbit_events o FORCE INDEX (PRIMARY) ON o.namespace_id = m.namespace_id AND o.batch_id = m.batch_id AND o.ordinal = 0
WHERE t.namespace_id = sqlc.arg(namespace_id) AND t.id > sqlc.arg(after_id)
ORDER BY t.id LIMIT ?;

-- name: VerifyAttempts :many
-- Walks the primary key.
SELECT a.id, a.task_id, a.state, a.generation, a.epoch, a.version, a.lease_until, a.live_instance_id, a.live_queue_id,
  a.offered_at, a.started_at, a.cancel_requested_at, a.ended_at,
  t.state AS task_state, t.generation AS task_generation, s.epoch AS session_epoch, i.id AS found_instance, c.outcome AS receipt_outcome,
  h.trimmed_below, o.occurred_at AS oldest_event_at,
  CAST((SELECT COUNT(*) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = a.namespace_id AND e.aggregate_id = a.id AND e.aggregate_kind = 'attempt') AS SIGNED) AS event_count,
  CAST((SELECT COALESCE(MIN(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = a.namespace_id AND e.aggregate_id = a.id AND e.aggregate_kind = 'attempt') AS SIGNED) AS event_first,
  CAST((SELECT COALESCE(MAX(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = a.namespace_id AND e.aggregate_id = a.id AND e.aggregate_kind = 'attempt') AS SIGNED) AS event_last
FROM pulse_attempts a FORCE INDEX (PRIMARY)
LEFT JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = a.namespace_id AND t.id = a.task_id
LEFT JOIN pulse_worker_sessions s FORCE INDEX (PRIMARY) ON s.namespace_id = a.namespace_id AND s.id = a.session_id
LEFT JOIN pulse_worker_instances i FORCE INDEX (PRIMARY) ON i.namespace_id = a.namespace_id AND i.id = a.instance_id
LEFT JOIN pulse_attempt_receipts c FORCE INDEX (PRIMARY) ON c.namespace_id = a.namespace_id AND c.attempt_id = a.id
LEFT JOIN orbit_event_heads h FORCE INDEX (PRIMARY) ON h.namespace_id = a.namespace_id
LEFT JOIN orbit_event_log m FORCE INDEX (PRIMARY) ON m.namespace_id = h.namespace_id AND m.first_position = h.trimmed_below
LEFT JOIN orbit_events o FORCE INDEX (PRIMARY) ON o.namespace_id = m.namespace_id AND o.batch_id = m.batch_id AND o.ordinal = 0
WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.id > sqlc.arg(after_id)
ORDER BY a.id LIMIT ?;

-- name: VerifyQueues :many
-- Walks the primary key.
SELECT u.id, u.revision, u.created_at, u.updated_at, g.control_version, g.updated_at AS gate_updated_at,
  h.trimmed_below, o.occurred_at AS oldest_event_at,
  CAST((SELECT COUNT(*) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = u.namespace_id AND e.aggregate_id = u.id AND e.aggregate_kind = 'queue') AS SIGNED) AS event_count,
  CAST((SELECT COALESCE(MIN(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = u.namespace_id AND e.aggregate_id = u.id AND e.aggregate_kind = 'queue') AS SIGNED) AS event_first,
  CAST((SELECT COALESCE(MAX(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = u.namespace_id AND e.aggregate_id = u.id AND e.aggregate_kind = 'queue') AS SIGNED) AS event_last,
  CAST((SELECT COUNT(*) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = u.namespace_id AND e.aggregate_id = u.id AND e.aggregate_kind = 'gate') AS SIGNED) AS gate_event_count,
  CAST((SELECT COALESCE(MIN(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = u.namespace_id AND e.aggregate_id = u.id AND e.aggregate_kind = 'gate') AS SIGNED) AS gate_event_first,
  CAST((SELECT COALESCE(MAX(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = u.namespace_id AND e.aggregate_id = u.id AND e.aggregate_kind = 'gate') AS SIGNED) AS gate_event_last
FROM pulse_queues u FORCE INDEX (PRIMARY)
LEFT JOIN pulse_execution_gates g FORCE INDEX (PRIMARY) ON g.namespace_id = u.namespace_id AND g.scope = 'queue' AND g.scope_id = LOWER(HEX(u.id))
LEFT JOIN orbit_event_heads h FORCE INDEX (PRIMARY) ON h.namespace_id = u.namespace_id
LEFT JOIN orbit_event_log m FORCE INDEX (PRIMARY) ON m.namespace_id = h.namespace_id AND m.first_position = h.trimmed_below
LEFT JOIN orbit_events o FORCE INDEX (PRIMARY) ON o.namespace_id = m.namespace_id AND o.batch_id = m.batch_id AND o.ordinal = 0
WHERE u.namespace_id = sqlc.arg(namespace_id) AND u.id > sqlc.arg(after_id)
ORDER BY u.id LIMIT ?;

-- name: VerifySessions :many
-- Walks the primary key.
SELECT s.id, s.epoch, s.closed_at, i.session_id AS instance_session, i.epoch AS instance_epoch
FROM pulse_worker_sessions s FORCE INDEX (PRIMARY)
LEFT JOIN pulse_worker_instances i FORCE INDEX (PRIMARY) ON i.namespace_id = s.namespace_id AND i.id = s.instance_id
WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.id > sqlc.arg(after_id)
ORDER BY s.id LIMIT ?;

-- name: VerifyInstances :many
-- Walks the primary key.
SELECT i.id, i.epoch, i.state, s.epoch AS session_epoch, s.instance_id AS current_id
FROM pulse_worker_instances i FORCE INDEX (PRIMARY)
LEFT JOIN pulse_worker_sessions s FORCE INDEX (PRIMARY) ON s.namespace_id = i.namespace_id AND s.id = i.session_id
WHERE i.namespace_id = sqlc.arg(namespace_id) AND i.id > sqlc.arg(after_id)
ORDER BY i.id LIMIT ?;

-- name: HostVerifyReadyGroups :many
-- The groups that hold ready rows: a loose walk of the primary key.
SELECT DISTINCT namespace_id, queue_id, priority FROM pulse_ready;

-- name: VerifyReady :many
-- Walks the primary key of one group.
SELECT r.rank_us, r.task_id,
  t.state, CAST(COALESCE(t.queue_id = r.queue_id AND t.priority = r.priority AND t.rank_us = r.rank_us, 0) AS SIGNED) AS agrees
FROM pulse_ready r FORCE INDEX (PRIMARY)
LEFT JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = r.namespace_id AND t.id = r.task_id
WHERE r.namespace_id = sqlc.arg(namespace_id) AND r.queue_id = sqlc.arg(queue_id) AND r.priority = sqlc.arg(priority)
  AND r.rank_us >= sqlc.arg(after_rank) AND (r.rank_us > sqlc.arg(after_rank) OR r.task_id > sqlc.arg(after_id))
ORDER BY r.rank_us, r.task_id LIMIT ?;

-- name: HostVerifyScheduled :many
-- Walks the primary key.
SELECT s.due_at, s.namespace_id, s.task_id,
  t.state, CAST(COALESCE(t.run_at = s.due_at AND t.queue_id = s.queue_id AND t.priority = s.priority AND t.rank_us = s.rank_us, 0) AS SIGNED) AS agrees
FROM pulse_scheduled s FORCE INDEX (PRIMARY)
LEFT JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = s.namespace_id AND t.id = s.task_id
WHERE s.due_at >= sqlc.arg(after_due) AND (s.due_at > sqlc.arg(after_due) OR s.namespace_id > sqlc.arg(after_namespace)
  OR s.namespace_id = sqlc.arg(after_namespace) AND s.task_id > sqlc.arg(after_id))
ORDER BY s.due_at, s.namespace_id, s.task_id LIMIT ?;

-- name: HostVerifyBlocked :many
-- Walks uq_pulse_blocked_task.
SELECT b.namespace_id, b.task_id,
  t.state, CAST(COALESCE(t.queue_id = b.queue_id AND t.priority = b.priority AND t.rank_us = b.rank_us, 0) AS SIGNED) AS agrees
FROM pulse_blocked b FORCE INDEX (uq_pulse_blocked_task)
LEFT JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = b.namespace_id AND t.id = b.task_id
WHERE b.namespace_id >= sqlc.arg(after_namespace) AND (b.namespace_id > sqlc.arg(after_namespace) OR b.task_id > sqlc.arg(after_id))
ORDER BY b.namespace_id, b.task_id LIMIT ?;

-- name: HostVerifyDeadlines :many
-- Walks the primary key.
SELECT d.deadline_at, d.namespace_id, d.task_id, t.state, CAST(COALESCE(t.deadline_at = d.deadline_at, 0) AS SIGNED) AS agrees
FROM pulse_deadlines d FORCE INDEX (PRIMARY)
LEFT JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = d.namespace_id AND t.id = d.task_id
WHERE d.deadline_at >= sqlc.arg(after_deadline) AND (d.deadline_at > sqlc.arg(after_deadline) OR d.namespace_id > sqlc.arg(after_namespace)
  OR d.namespace_id = sqlc.arg(after_namespace) AND d.task_id > sqlc.arg(after_id))
ORDER BY d.deadline_at, d.namespace_id, d.task_id LIMIT ?;

-- name: VerifySchedules :many
-- Walks the primary key.
SELECT s.id, s.current_version, s.revision, s.paused_at, s.archived_at, s.watermark, s.next_fire_at, s.created_at, s.updated_at, CAST(COALESCE(CAST(v.timetable AS CHAR), '') AS CHAR) AS timetable,
  h.trimmed_below, o.occurred_at AS oldest_event_at,
  CAST((SELECT COUNT(*) FROM pulse_schedule_versions n FORCE INDEX (PRIMARY) WHERE n.namespace_id = s.namespace_id AND n.schedule_id = s.id) AS SIGNED) AS versions,
  CAST((SELECT COUNT(*) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = s.namespace_id AND e.aggregate_id = s.id AND e.aggregate_kind = 'schedule') AS SIGNED) AS event_count,
  CAST((SELECT COALESCE(MIN(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = s.namespace_id AND e.aggregate_id = s.id AND e.aggregate_kind = 'schedule') AS SIGNED) AS event_first,
  CAST((SELECT COALESCE(MAX(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = s.namespace_id AND e.aggregate_id = s.id AND e.aggregate_kind = 'schedule') AS SIGNED) AS event_last
FROM pulse_schedules s FORCE INDEX (PRIMARY)
LEFT JOIN pulse_schedule_versions v FORCE INDEX (PRIMARY) ON v.namespace_id = s.namespace_id AND v.schedule_id = s.id AND v.version = s.current_version
LEFT JOIN orbit_event_heads h FORCE INDEX (PRIMARY) ON h.namespace_id = s.namespace_id
LEFT JOIN orbit_event_log m FORCE INDEX (PRIMARY) ON m.namespace_id = h.namespace_id AND m.first_position = h.trimmed_below
LEFT JOIN orbit_events o FORCE INDEX (PRIMARY) ON o.namespace_id = m.namespace_id AND o.batch_id = m.batch_id AND o.ordinal = 0
WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.id > sqlc.arg(after_id)
ORDER BY s.id LIMIT ?;

-- name: VerifyOccurrences :many
-- Walks the primary key.
SELECT c.id, c.schedule_id, c.fire_at, c.source, c.outcome, c.task_id, c.version, c.live_schedule_id, c.buffered_schedule_id, c.created_at, c.updated_at, c.expires_at,
  s.watermark, t.state AS task_state, t.origin_id,
  h.trimmed_below, o.occurred_at AS oldest_event_at,
  CAST((SELECT COUNT(*) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = c.namespace_id AND e.aggregate_id = c.id AND e.aggregate_kind = 'occurrence') AS SIGNED) AS event_count,
  CAST((SELECT COALESCE(MIN(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = c.namespace_id AND e.aggregate_id = c.id AND e.aggregate_kind = 'occurrence') AS SIGNED) AS event_first,
  CAST((SELECT COALESCE(MAX(e.version), 0) FROM orbit_events e FORCE INDEX (uq_orbit_events_version) WHERE e.namespace_id = c.namespace_id AND e.aggregate_id = c.id AND e.aggregate_kind = 'occurrence') AS SIGNED) AS event_last
FROM pulse_schedule_occurrences c FORCE INDEX (PRIMARY)
LEFT JOIN pulse_schedules s FORCE INDEX (PRIMARY) ON s.namespace_id = c.namespace_id AND s.id = c.schedule_id
LEFT JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = c.namespace_id AND t.id = c.task_id
LEFT JOIN orbit_event_heads h FORCE INDEX (PRIMARY) ON h.namespace_id = c.namespace_id
LEFT JOIN orbit_event_log m FORCE INDEX (PRIMARY) ON m.namespace_id = h.namespace_id AND m.first_position = h.trimmed_below
LEFT JOIN orbit_events o FORCE INDEX (PRIMARY) ON o.namespace_id = m.namespace_id AND o.batch_id = m.batch_id AND o.ordinal = 0
WHERE c.namespace_id = sqlc.arg(namespace_id) AND c.id > sqlc.arg(after_id)
ORDER BY c.id LIMIT ?;
