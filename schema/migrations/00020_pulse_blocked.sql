-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_blocked (
  namespace_id BINARY(16)       NOT NULL COMMENT 'tenant',
  blocker_kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'what is waited for: gate',
  blocker_id   VARCHAR(160)     NOT NULL COMMENT 'which one: for a gate its scope, a colon and its scope id',
  priority     TINYINT UNSIGNED NOT NULL COMMENT 'priority of the ready row it becomes',
  rank_us      BIGINT           NOT NULL COMMENT 'rank of the ready row it becomes',
  task_id      BINARY(16)       NOT NULL COMMENT 'the task that waits',
  queue_id     BINARY(16)       NOT NULL COMMENT 'queue',
  PRIMARY KEY (namespace_id, blocker_kind, blocker_id, priority, rank_us, task_id),
  UNIQUE KEY uq_pulse_blocked_task (namespace_id, task_id),
  KEY ix_pulse_blocked_queue (namespace_id, queue_id),
  CONSTRAINT ck_pulse_blocked_kind CHECK (blocker_kind IN ('gate'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='working rows that wait for something else than time; they cost the claim path nothing';
-- +goose StatementEnd
