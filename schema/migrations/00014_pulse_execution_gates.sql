-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_execution_gates (
  namespace_id    BINARY(16)   NOT NULL COMMENT 'tenant',
  scope           VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'namespace (the root row, made with the namespace), queue, task_type, instance',
  scope_id        VARCHAR(128) NOT NULL COMMENT 'hex id of the queue or instance, name of the task type; empty on the root row',
  state           VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'open or closed',
  control_version BIGINT       NOT NULL COMMENT 'raised by each change, from 1',
  closed_gates    INT          NOT NULL DEFAULT 0 COMMENT 'on the root row: how many gates of the namespace are closed, so that a start need not look for them; 0 elsewhere',
  reason          VARCHAR(1024) NOT NULL COMMENT 'why it was closed or opened, for people',
  updated_at      DATETIME(6)  NOT NULL COMMENT 'last change, UTC',
  PRIMARY KEY (namespace_id, scope, scope_id),
  KEY ix_pulse_execution_gates_closed (namespace_id, state),
  CONSTRAINT fk_pulse_execution_gates_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_pulse_execution_gates_scope CHECK (scope IN ('namespace', 'queue', 'task_type', 'instance')),
  CONSTRAINT ck_pulse_execution_gates_root CHECK ((scope = 'namespace') = (scope_id = '')),
  CONSTRAINT ck_pulse_execution_gates_state CHECK (state IN ('open', 'closed')),
  CONSTRAINT ck_pulse_execution_gates_version CHECK (control_version >= 1),
  CONSTRAINT ck_pulse_execution_gates_closed CHECK (closed_gates >= 0 AND (closed_gates = 0 OR scope = 'namespace'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='starts pass only open gates: a start shares the root row, a close holds it exclusively';
-- +goose StatementEnd
