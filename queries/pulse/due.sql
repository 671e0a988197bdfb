-- name: DueSoon :many
-- The clock, and the first instant of each list of the loops: one entry of each index, whatever is in the tables.
SELECT 'now' AS what, CAST(NOW(6) AS DATETIME(6)) AS due_at
UNION ALL (SELECT 'scheduled', due_at FROM pulse_scheduled FORCE INDEX (PRIMARY) ORDER BY due_at LIMIT 1)
UNION ALL (SELECT 'lease', CAST(lease_until AS DATETIME(6)) FROM pulse_attempts FORCE INDEX (ix_pulse_attempts_lease) WHERE lease_until > '1000-01-01' ORDER BY lease_until LIMIT 1)
UNION ALL (SELECT 'deadline', deadline_at FROM pulse_deadlines FORCE INDEX (PRIMARY) ORDER BY deadline_at LIMIT 1)
UNION ALL (SELECT 'sweep', CAST(sweep_due_at AS DATETIME(6)) FROM pulse_worker_instances FORCE INDEX (ix_pulse_worker_instances_sweep) WHERE sweep_due_at > '1000-01-01' ORDER BY sweep_due_at LIMIT 1)
UNION ALL (SELECT 'blocked', CAST('1000-01-01' AS DATETIME(6)) FROM pulse_blocked FORCE INDEX (PRIMARY) LIMIT 1);
