-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_ready (
  namespace_id BINARY(16)       NOT NULL COMMENT 'tenant',
  queue_id     BINARY(16)       NOT NULL COMMENT 'queue',
  priority     TINYINT UNSIGNED NOT NULL COMMENT '1 (first) to 9',
  rank_us      BIGINT           NOT NULL COMMENT 'order among equal priority',
  task_id      BINARY(16)       NOT NULL COMMENT 'the task that may be offered now',
  PRIMARY KEY (namespace_id, queue_id, priority, rank_us, task_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='working rows that can be claimed; the key is the claim order and there is nothing else';
-- +goose StatementEnd
