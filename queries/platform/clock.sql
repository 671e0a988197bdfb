-- name: HostNow :one
-- The one reading of the clock in a transaction; everything decided in it uses this instant.
SELECT CAST(NOW(6) AS DATETIME(6)) AS now_at;
