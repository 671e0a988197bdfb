-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_attempts (
  namespace_id        BINARY(16)    NOT NULL COMMENT 'tenant',
  id                  BINARY(16)    NOT NULL COMMENT 'identity, time-ordered',
  task_id             BINARY(16)    NOT NULL COMMENT 'task',
  queue_id            BINARY(16)    NOT NULL COMMENT 'queue of the task',
  generation          BIGINT        NOT NULL COMMENT 'execution generation of the task, from 1',
  instance_id         BINARY(16)    NOT NULL COMMENT 'worker incarnation it was offered to',
  session_id          BINARY(16)    NOT NULL COMMENT 'worker identity',
  epoch               BIGINT        NOT NULL COMMENT 'session epoch of the offer',
  claim_seq           BIGINT        NOT NULL COMMENT 'the claim that took it',
  token_digest        VARBINARY(32) NOT NULL COMMENT 'SHA-256 of the execution token; the token itself is never stored',
  state               VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'offered, running, succeeded, failed, cancelled, lost, expired, released',
  version             BIGINT        NOT NULL COMMENT 'version of the attempt, from 1; not raised by heartbeats',
  heartbeats          BIGINT        NOT NULL COMMENT 'raised by each heartbeat, so that a swap always changes the row',
  lease_ms            INT UNSIGNED  NOT NULL COMMENT 'while offered the offer time-out, then the lease, milliseconds',
  lease_until         DATETIME(6)   NULL     COMMENT 'end of the offer or lease, UTC; set exactly while live',
  live_instance_id    BINARY(16)    NULL     COMMENT 'instance_id, set exactly while live: the sweep''s index holds no history',
  live_queue_id       BINARY(16)    NULL     COMMENT 'queue_id, set exactly while live: counts of a queue walk no history',
  cancel_requested_at DATETIME(6)   NULL     COMMENT 'when cancellation was asked for, UTC',
  progress            MEDIUMTEXT    NULL     COMMENT 'last progress the worker told, JSON text',
  offered_at          DATETIME(6)   NOT NULL COMMENT 'claim, UTC',
  started_at          DATETIME(6)   NULL     COMMENT 'start, UTC',
  ended_at            DATETIME(6)   NULL     COMMENT 'end, UTC; set exactly when no longer live',
  end_code            VARCHAR(128)  NOT NULL COMMENT 'why it ended; empty while live and on success',
  end_message         VARCHAR(4096) NOT NULL COMMENT 'the same, for people',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_attempts_generation (namespace_id, task_id, generation),
  KEY ix_pulse_attempts_lease (lease_until),
  KEY ix_pulse_attempts_instance (namespace_id, live_instance_id, claim_seq),
  KEY ix_pulse_attempts_live (namespace_id, live_queue_id),
  CONSTRAINT fk_pulse_attempts_task FOREIGN KEY (namespace_id, task_id) REFERENCES pulse_tasks (namespace_id, id),
  CONSTRAINT ck_pulse_attempts_token CHECK (LENGTH(token_digest) = 32),
  CONSTRAINT ck_pulse_attempts_state CHECK (state IN ('offered', 'running', 'succeeded', 'failed', 'cancelled', 'lost', 'expired', 'released')),
  CONSTRAINT ck_pulse_attempts_live CHECK ((state IN ('offered', 'running')) = (lease_until IS NOT NULL)
    AND (lease_until IS NULL) = (live_instance_id IS NULL) AND (lease_until IS NULL) = (live_queue_id IS NULL) AND (lease_until IS NULL) = (ended_at IS NOT NULL)),
  CONSTRAINT ck_pulse_attempts_started CHECK ((state <> 'offered' OR started_at IS NULL) AND (state NOT IN ('running', 'succeeded', 'lost') OR started_at IS NOT NULL)),
  CONSTRAINT ck_pulse_attempts_progress CHECK (progress IS NULL OR JSON_VALID(progress)),
  CONSTRAINT ck_pulse_attempts_version CHECK (version >= 1 AND generation >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='one execution generation of a task';
-- +goose StatementEnd
