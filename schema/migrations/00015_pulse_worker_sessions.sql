-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_worker_sessions (
  namespace_id BINARY(16)   NOT NULL COMMENT 'tenant',
  id           BINARY(16)   NOT NULL COMMENT 'identity',
  worker_name  VARCHAR(128) NOT NULL COMMENT 'stable name of the worker, unique in the namespace',
  actor_id     BINARY(16)   NOT NULL COMMENT 'the only actor that may open this name',
  epoch        BIGINT       NOT NULL COMMENT 'raised by each opening, from 1; older incarnations are fenced',
  instance_id  BINARY(16)   NOT NULL COMMENT 'the current incarnation',
  abandoned_claim BIGINT    NOT NULL COMMENT 'claims of the current incarnation up to this claim_seq were given up by it and are refused',
  closed_at    DATETIME(6)  NULL     COMMENT 'when the current incarnation was closed, UTC; null while it is open',
  created_at   DATETIME(6)  NOT NULL COMMENT 'first opening, UTC',
  updated_at   DATETIME(6)  NOT NULL COMMENT 'last opening, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_worker_sessions_name (namespace_id, worker_name),
  CONSTRAINT fk_pulse_worker_sessions_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_pulse_worker_sessions_epoch CHECK (epoch >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='head of a worker identity: the fence that every worker call shares and an opening holds exclusively';
-- +goose StatementEnd
