-- name: HostInsertApplication :exec
INSERT INTO orbit_applications (id, name, created_at) VALUES (?, ?, ?);

-- name: HostGetApplicationByName :one
SELECT * FROM orbit_applications WHERE name = ?;

-- name: HostListApplications :many
SELECT * FROM orbit_applications ORDER BY name;

-- name: HostInsertNamespace :exec
INSERT INTO orbit_namespaces (id, application_id, name, created_at) VALUES (?, ?, ?, ?);

-- name: HostGetNamespaceByName :one
SELECT n.id, n.name, n.created_at, a.name AS application
FROM orbit_namespaces n JOIN orbit_applications a ON a.id = n.application_id
WHERE a.name = sqlc.arg(application) AND n.name = sqlc.arg(name);

-- name: HostGetNamespace :one
SELECT n.id, n.name, n.created_at, a.name AS application
FROM orbit_namespaces n JOIN orbit_applications a ON a.id = n.application_id
WHERE n.id = ?;

-- name: HostLockNamespace :one
-- Held while the first credential of an installation is made, so that two callers make one.
SELECT id FROM orbit_namespaces WHERE id = ? FOR UPDATE;

-- name: HostListNamespaces :many
SELECT n.id, n.name, n.created_at, a.name AS application
FROM orbit_namespaces n JOIN orbit_applications a ON a.id = n.application_id
ORDER BY a.name, n.name;

-- name: InsertEventHead :exec
INSERT INTO orbit_event_heads (namespace_id, next_position, trimmed_below) VALUES (?, 1, 1);
