-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_scheduled (
  due_at       DATETIME(6)      NOT NULL COMMENT 'run_at of the task, UTC',
  namespace_id BINARY(16)       NOT NULL COMMENT 'tenant',
  task_id      BINARY(16)       NOT NULL COMMENT 'the task that is not yet due',
  queue_id     BINARY(16)       NOT NULL COMMENT 'queue',
  priority     TINYINT UNSIGNED NOT NULL COMMENT 'priority of the ready row it becomes',
  rank_us      BIGINT           NOT NULL COMMENT 'rank of the ready row it becomes',
  PRIMARY KEY (due_at, namespace_id, task_id),
  KEY ix_pulse_scheduled_queue (namespace_id, queue_id, due_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='working rows that wait for their time; the key leads with it';
-- +goose StatementEnd
