-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_events (
  namespace_id   BINARY(16)   NOT NULL COMMENT 'tenant',
  batch_id       BINARY(16)   NOT NULL COMMENT 'the transaction that wrote the event',
  ordinal        INT UNSIGNED NOT NULL COMMENT 'order in the batch, from 0',
  aggregate_kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'task, attempt, queue, gate, credential, worker',
  aggregate_id   BINARY(16)   NOT NULL COMMENT 'the thing that changed',
  version        BIGINT       NOT NULL COMMENT 'version of the aggregate after the change; one event each',
  type           VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'what happened, such as task.accepted',
  actor_id       BINARY(16)   NULL     COMMENT 'who caused it; null means the system',
  data           MEDIUMTEXT   NOT NULL COMMENT 'details, JSON text',
  occurred_at    DATETIME(6)  NOT NULL COMMENT 'database time of the transaction, UTC',
  PRIMARY KEY (namespace_id, batch_id, ordinal),
  UNIQUE KEY uq_orbit_events_version (namespace_id, aggregate_id, aggregate_kind, version),
  CONSTRAINT ck_orbit_events_data CHECK (JSON_VALID(data)),
  CONSTRAINT ck_orbit_events_version CHECK (version >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='history, append-only: each change with its event in one commit; UPDATE rejected';
-- +goose StatementEnd
