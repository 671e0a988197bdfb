-- name: InsertSchedule :exec
INSERT INTO pulse_schedules (namespace_id, id, name, current_version, pause_reason, watermark, next_fire_at, revision, created_at, updated_at)
VALUES (?, ?, ?, 1, '', ?, ?, 1, ?, ?);

-- name: InsertScheduleVersion :exec
INSERT INTO pulse_schedule_versions
  (namespace_id, schedule_id, version, timetable, jitter_ms, run_overlap, catch_up_window_ms, catch_up_max,
   queue_id, type, payload, payload_version, priority, max_attempts, deadline_ms, actor_id, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: ViewSchedule :one
-- A schedule with its current version.
SELECT sqlc.embed(s), sqlc.embed(v) FROM pulse_schedules s
JOIN pulse_schedule_versions v ON v.namespace_id = s.namespace_id AND v.schedule_id = s.id AND v.version = s.current_version
WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.id = sqlc.arg(id);

-- name: FindScheduleQueue :one
SELECT v.queue_id FROM pulse_schedules s
JOIN pulse_schedule_versions v ON v.namespace_id = s.namespace_id AND v.schedule_id = s.id AND v.version = s.current_version
WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.id = sqlc.arg(id);

-- name: FindScheduleByName :one
SELECT id FROM pulse_schedules WHERE namespace_id = ? AND name = ?;

-- name: PageSchedules :many
-- Walks the primary key, newest first; no payloads.
SELECT sqlc.embed(s), v.timetable, v.jitter_ms, v.run_overlap, v.catch_up_window_ms, v.catch_up_max, v.queue_id, v.type, v.payload_version, v.priority,
  v.max_attempts, v.deadline_ms
FROM pulse_schedules s FORCE INDEX (PRIMARY)
JOIN pulse_schedule_versions v FORCE INDEX (PRIMARY) ON v.namespace_id = s.namespace_id AND v.schedule_id = s.id AND v.version = s.current_version
WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.id < sqlc.arg(before_id)
ORDER BY s.id DESC LIMIT ?;

-- name: LockSchedule :one
-- Whoever fires or changes a schedule holds its row; waits for who does. Its version is read afterwards, by a statement of its own, so that
-- it is the one of the row that was locked.
SELECT * FROM pulse_schedules WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) FOR UPDATE;

-- name: LockSchedules :many
-- As LockSchedule; one that is held elsewhere is skipped, and left to its holder or to the next pass.
SELECT * FROM pulse_schedules FORCE INDEX (PRIMARY) WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: ListCurrentVersions :many
-- Of schedules that are held.
SELECT v.* FROM pulse_schedules s FORCE INDEX (PRIMARY)
JOIN pulse_schedule_versions v FORCE INDEX (PRIMARY) ON v.namespace_id = s.namespace_id AND v.schedule_id = s.id AND v.version = s.current_version
WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.id IN (sqlc.slice(ids));

-- name: GetScheduleVersion :one
SELECT * FROM pulse_schedule_versions WHERE namespace_id = ? AND schedule_id = ? AND version = ?;

-- name: PageScheduleVersions :many
-- Walks the primary key, newest first; no payloads.
SELECT version, timetable, jitter_ms, run_overlap, catch_up_window_ms, catch_up_max, queue_id, type, payload_version, priority, max_attempts, deadline_ms, actor_id, created_at
FROM pulse_schedule_versions FORCE INDEX (PRIMARY)
WHERE namespace_id = sqlc.arg(namespace_id) AND schedule_id = sqlc.arg(schedule_id) AND version < sqlc.arg(before_version)
ORDER BY version DESC LIMIT ?;

-- name: DueSchedules :many
-- Walks ix_pulse_schedules_due, which leads with the next fire. Hinted as DueLeases is.
SELECT namespace_id, id FROM pulse_schedules FORCE INDEX (ix_pulse_schedules_due)
WHERE next_fire_at <= CAST(sqlc.arg(now_at) AS DATETIME(6)) ORDER BY next_fire_at LIMIT ?;

-- name: MoveSchedule :execrows
-- The watermark goes on; the row is held, and the old watermark is the guard.
UPDATE pulse_schedules SET watermark = sqlc.arg(watermark), next_fire_at = sqlc.arg(next_fire_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND watermark = sqlc.arg(from_watermark);

-- name: ChangeSchedule :execrows
-- A new version, a pause, its end or the end of the schedule: revision → revision + 1.
UPDATE pulse_schedules SET current_version = sqlc.arg(current_version), paused_at = sqlc.arg(paused_at), pause_reason = sqlc.arg(pause_reason), archived_at = sqlc.arg(archived_at),
  watermark = sqlc.arg(watermark), next_fire_at = sqlc.arg(next_fire_at), revision = revision + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision);

-- name: InsertOccurrence :exec
-- The unique instant is the second guard of the watermark: no instant has two rows.
INSERT INTO pulse_schedule_occurrences
  (namespace_id, id, schedule_id, fire_at, schedule_version, source, outcome, code, task_id, version, live_schedule_id, buffered_schedule_id, actor_id, created_at, updated_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?);

-- name: ShareLiveOccurrences :many
-- By primary key, of those that ListLiveOccurrences gave. Shared against the end of a task, which clears its row: either that is waited for and seen
-- here, or it sees what is buffered after this.
SELECT schedule_id FROM pulse_schedule_occurrences FORCE INDEX (PRIMARY)
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND live_schedule_id IS NOT NULL FOR SHARE;

-- name: ListLiveOccurrences :many
-- Walks ix_pulse_schedule_occurrences_live, which holds what has not ended only.
SELECT id, schedule_id, task_id FROM pulse_schedule_occurrences FORCE INDEX (ix_pulse_schedule_occurrences_live)
WHERE namespace_id = sqlc.arg(namespace_id) AND live_schedule_id IN (sqlc.slice(schedule_ids));

-- name: CountBuffered :many
-- Walks ix_pulse_schedule_occurrences_buffered, which holds what is buffered only.
SELECT schedule_id, COUNT(*) AS buffered FROM pulse_schedule_occurrences FORCE INDEX (ix_pulse_schedule_occurrences_buffered)
WHERE namespace_id = sqlc.arg(namespace_id) AND buffered_schedule_id IN (sqlc.slice(schedule_ids)) GROUP BY schedule_id;

-- name: ListBuffered :many
-- Walks ix_pulse_schedule_occurrences_buffered, in order of the instants.
SELECT * FROM pulse_schedule_occurrences FORCE INDEX (ix_pulse_schedule_occurrences_buffered)
WHERE namespace_id = sqlc.arg(namespace_id) AND buffered_schedule_id = sqlc.arg(schedule_id) ORDER BY fire_at LIMIT ?;

-- name: FireOccurrence :execrows
-- buffered, skipped or missed → fired. The schedule is held.
UPDATE pulse_schedule_occurrences SET outcome = 'fired', code = '', task_id = sqlc.arg(task_id), live_schedule_id = schedule_id, buffered_schedule_id = NULL, expires_at = NULL,
  source = sqlc.arg(source), actor_id = sqlc.arg(actor_id), schedule_version = sqlc.arg(schedule_version), version = version + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND version = sqlc.arg(version) AND outcome <> 'fired';

-- name: SkipOccurrence :execrows
-- buffered → skipped. The schedule is held.
UPDATE pulse_schedule_occurrences SET outcome = 'skipped', code = sqlc.arg(code), buffered_schedule_id = NULL, version = version + 1,
  updated_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), expires_at = sqlc.arg(expires_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND version = sqlc.arg(version) AND outcome = 'buffered';

-- name: BufferOccurrence :execrows
-- skipped or missed → buffered. The schedule is held.
UPDATE pulse_schedule_occurrences SET outcome = 'buffered', code = '', buffered_schedule_id = schedule_id, expires_at = NULL,
  source = sqlc.arg(source), actor_id = sqlc.arg(actor_id), schedule_version = sqlc.arg(schedule_version), version = version + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND version = sqlc.arg(version) AND outcome IN ('skipped', 'missed');

-- name: EndOccurrence :execrows
-- Its task ended.
UPDATE pulse_schedule_occurrences SET live_schedule_id = NULL, expires_at = sqlc.arg(expires_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND live_schedule_id IS NOT NULL;

-- name: ReopenOccurrence :execrows
-- Its task, which had failed, is open again. Retention may have taken the row.
UPDATE pulse_schedule_occurrences SET live_schedule_id = schedule_id, expires_at = NULL
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND live_schedule_id IS NULL AND outcome = 'fired';

-- name: ListBufferedBehind :many
-- The schedules of occurrences that have something buffered.
SELECT DISTINCT o.schedule_id FROM pulse_schedule_occurrences o FORCE INDEX (PRIMARY)
JOIN pulse_schedule_occurrences b FORCE INDEX (ix_pulse_schedule_occurrences_buffered) ON b.namespace_id = o.namespace_id AND b.buffered_schedule_id = o.schedule_id
WHERE o.namespace_id = sqlc.arg(namespace_id) AND o.id IN (sqlc.slice(ids));

-- name: DueBufferedSchedules :many
-- The schedules that have something buffered, after one. Walks ix_pulse_schedule_occurrences_buffered, which leads with it: what is not buffered is not read.
SELECT DISTINCT namespace_id, buffered_schedule_id FROM pulse_schedule_occurrences FORCE INDEX (ix_pulse_schedule_occurrences_buffered)
WHERE buffered_schedule_id > sqlc.arg(after_id) ORDER BY buffered_schedule_id, namespace_id LIMIT ?;

-- name: ListOccurrencesBetween :many
-- Walks uq_pulse_schedule_occurrences_fire over a span.
SELECT id, fire_at, outcome, version FROM pulse_schedule_occurrences FORCE INDEX (uq_pulse_schedule_occurrences_fire)
WHERE namespace_id = sqlc.arg(namespace_id) AND schedule_id = sqlc.arg(schedule_id) AND fire_at >= sqlc.arg(from_at) AND fire_at <= sqlc.arg(to_at);

-- name: PageOccurrences :many
-- Walks uq_pulse_schedule_occurrences_fire, newest instant first.
SELECT * FROM pulse_schedule_occurrences FORCE INDEX (uq_pulse_schedule_occurrences_fire)
WHERE namespace_id = sqlc.arg(namespace_id) AND schedule_id = sqlc.arg(schedule_id) AND fire_at < sqlc.arg(before_at)
ORDER BY fire_at DESC LIMIT ?;

-- name: DueExpiredOccurrences :many
-- Walks ix_pulse_schedule_occurrences_expiry.
SELECT namespace_id, id FROM pulse_schedule_occurrences FORCE INDEX (ix_pulse_schedule_occurrences_expiry)
WHERE expires_at <= CAST(sqlc.arg(now_at) AS DATETIME(6)) ORDER BY expires_at LIMIT ?;

-- name: DeleteOccurrences :execrows
-- By primary key; one that a retry or a backfill revived meanwhile stays.
DELETE FROM pulse_schedule_occurrences
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND expires_at <= CAST(sqlc.arg(now_at) AS DATETIME(6));
