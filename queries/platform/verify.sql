-- name: HostNamespacesWithoutHead :many
SELECT n.id FROM orbit_namespaces n LEFT JOIN orbit_event_heads h ON h.namespace_id = n.id
WHERE h.namespace_id IS NULL LIMIT ?;

-- name: VerifyKeys :many
-- A stretch of the primary key; in each row whether a done key's reply is there.
SELECT k.scope, k.idempotency_key, k.state, k.reply_id, r.id AS found_reply
FROM (
  SELECT i.namespace_id, i.scope, i.idempotency_key, i.state, i.reply_id FROM orbit_idempotency_keys i
  WHERE i.namespace_id = sqlc.arg(namespace_id) AND i.scope >= sqlc.arg(scope)
    AND (i.scope > sqlc.arg(scope) OR i.idempotency_key > sqlc.arg(idempotency_key))
  ORDER BY i.scope, i.idempotency_key LIMIT ?
) AS k
LEFT JOIN orbit_replies r ON r.namespace_id = k.namespace_id AND r.id = k.reply_id
ORDER BY k.scope, k.idempotency_key;

-- name: VerifyLog :many
-- A stretch of the log; in each row how many events of the batch there are.
SELECT l.first_position, l.batch_id, l.event_count,
  CAST((SELECT COUNT(*) FROM orbit_events e WHERE e.namespace_id = l.namespace_id AND e.batch_id = l.batch_id) AS SIGNED) AS found
FROM orbit_event_log l
WHERE l.namespace_id = sqlc.arg(namespace_id) AND l.first_position >= sqlc.arg(from_position)
ORDER BY l.first_position LIMIT ?;

-- name: VerifySpool :many
-- A stretch of the spool; in each row how many events of the batch there are.
SELECT s.sid, s.batch_id, s.event_count,
  CAST((SELECT COUNT(*) FROM orbit_events e WHERE e.namespace_id = s.namespace_id AND e.batch_id = s.batch_id) AS SIGNED) AS found
FROM orbit_event_spool s
WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.sid > sqlc.arg(after_sid)
ORDER BY s.sid LIMIT ?;

-- name: VerifyBatches :many
-- A stretch of the events' primary key, one row a batch; in how many of log and spool it is, as of one instant.
SELECT b.batch_id, CAST(COUNT(l.batch_id) + COUNT(s.batch_id) AS SIGNED) AS places
FROM (
  SELECT e.namespace_id, e.batch_id FROM orbit_events e
  WHERE e.namespace_id = sqlc.arg(namespace_id) AND e.batch_id > sqlc.arg(after_batch) AND e.ordinal = 0
  ORDER BY e.batch_id LIMIT ?
) AS b
LEFT JOIN orbit_event_log l ON l.namespace_id = b.namespace_id AND l.batch_id = b.batch_id
LEFT JOIN orbit_event_spool s ON s.namespace_id = b.namespace_id AND s.batch_id = b.batch_id
GROUP BY b.batch_id
ORDER BY b.batch_id;

-- name: VerifyCredentials :many
-- A stretch of the primary key.
SELECT * FROM orbit_credentials
WHERE namespace_id = sqlc.arg(namespace_id) AND id > sqlc.arg(after_id)
ORDER BY id LIMIT ?;
