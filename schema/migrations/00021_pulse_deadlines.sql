-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_deadlines (
  deadline_at  DATETIME(6) NOT NULL COMMENT 'when the task fails, UTC',
  namespace_id BINARY(16)  NOT NULL COMMENT 'tenant',
  task_id      BINARY(16)  NOT NULL COMMENT 'an open task with a deadline',
  PRIMARY KEY (deadline_at, namespace_id, task_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='deadlines of open tasks, apart so that tasks without one pay nothing';
-- +goose StatementEnd
