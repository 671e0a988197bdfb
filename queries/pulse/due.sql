-- name: DueSoon :many
-- The clock, and the first instant of each list of the loops that has one. Each minimum is one entry of an index, read before there is a plan:
-- whatever is in the tables, and whatever the server takes them for.
SELECT 'now' AS what, CAST(NOW(6) AS DATETIME(6)) AS due_at
UNION ALL SELECT 'scheduled', MIN(due_at) FROM pulse_scheduled HAVING MIN(due_at) IS NOT NULL
UNION ALL SELECT 'fire', MIN(next_fire_at) FROM pulse_schedules HAVING MIN(next_fire_at) IS NOT NULL
UNION ALL SELECT 'lease', MIN(lease_until) FROM pulse_attempts HAVING MIN(lease_until) IS NOT NULL
UNION ALL SELECT 'deadline', MIN(deadline_at) FROM pulse_deadlines HAVING MIN(deadline_at) IS NOT NULL
UNION ALL SELECT 'sweep', MIN(sweep_due_at) FROM pulse_worker_instances HAVING MIN(sweep_due_at) IS NOT NULL
UNION ALL (SELECT 'blocked', CAST('1000-01-01' AS DATETIME(6)) FROM pulse_blocked FORCE INDEX (PRIMARY) LIMIT 1);
