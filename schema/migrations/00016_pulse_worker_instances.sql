-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_worker_instances (
  namespace_id       BINARY(16)   NOT NULL COMMENT 'tenant',
  id                 BINARY(16)   NOT NULL COMMENT 'identity, made by the client',
  session_id         BINARY(16)   NOT NULL COMMENT 'the worker identity',
  epoch              BIGINT       NOT NULL COMMENT 'epoch of this incarnation',
  host               VARCHAR(255) NOT NULL COMMENT 'host name, for people',
  version            VARCHAR(128) NOT NULL COMMENT 'worker version, for people',
  queues             JSON         NOT NULL COMMENT 'ids of the queues it serves, an array of hex strings',
  types              JSON         NOT NULL COMMENT 'task types it handles, an array of strings',
  slots              INT UNSIGNED NOT NULL COMMENT 'attempts it runs at once',
  state              VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'live, superseded, closed, expired',
  heartbeats         BIGINT       NOT NULL COMMENT 'raised by each sign of life, so that a swap always changes the row',
  heartbeat_at       DATETIME(6)  NOT NULL COMMENT 'last sign of life, UTC',
  sweep_due_at       DATETIME(6)  NULL     COMMENT 'set when the incarnation ended: recovery then ends its attempts and clears it, UTC',
  opened_at          DATETIME(6)  NOT NULL COMMENT 'when it was opened, UTC',
  ended_at           DATETIME(6)  NULL     COMMENT 'when it was superseded or closed, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_worker_instances_epoch (namespace_id, session_id, epoch),
  KEY ix_pulse_worker_instances_sweep (sweep_due_at),
  KEY ix_pulse_worker_instances_silent (state, heartbeat_at),
  CONSTRAINT fk_pulse_worker_instances_session FOREIGN KEY (namespace_id, session_id) REFERENCES pulse_worker_sessions (namespace_id, id),
  CONSTRAINT ck_pulse_worker_instances_state CHECK (state IN ('live', 'superseded', 'closed', 'expired')),
  CONSTRAINT ck_pulse_worker_instances_ended CHECK ((state IN ('superseded', 'closed')) = (ended_at IS NOT NULL)),
  CONSTRAINT ck_pulse_worker_instances_sweep CHECK (sweep_due_at IS NULL OR ended_at IS NOT NULL),
  CONSTRAINT ck_pulse_worker_instances_slots CHECK (slots >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='one process incarnation of a worker';
-- +goose StatementEnd
