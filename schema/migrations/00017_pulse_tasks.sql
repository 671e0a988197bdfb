-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_tasks (
  namespace_id    BINARY(16)   NOT NULL COMMENT 'tenant',
  id              BINARY(16)   NOT NULL COMMENT 'identity, time-ordered',
  queue_id        BINARY(16)   NOT NULL COMMENT 'queue, frozen at acceptance',
  type            VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'names the handler',
  payload         LONGTEXT     NOT NULL COMMENT 'business JSON as it was sent, digit by digit',
  payload_version INT UNSIGNED NOT NULL COMMENT 'schema version of the payload, the business''s own',
  priority        TINYINT UNSIGNED NOT NULL COMMENT '1 (first) to 9',
  rank_us         BIGINT       NOT NULL COMMENT 'order among equal priority: run_at in microseconds since 1970, shifted for fairness',
  run_at          DATETIME(6)  NOT NULL COMMENT 'not offered before, UTC',
  deadline_at     DATETIME(6)  NULL     COMMENT 'an open task fails then, UTC',
  max_attempts    INT UNSIGNED NOT NULL COMMENT 'attempt budget, the first included',
  attempts_used   INT UNSIGNED NOT NULL COMMENT 'started attempts that have ended in the present budget',
  generation      BIGINT       NOT NULL COMMENT 'execution generations that have ended; a live attempt has generation + 1',
  idle_offers     INT UNSIGNED NOT NULL COMMENT 'offers in a row that ended without a start; from the second on they back off',
  trace_parent    VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'W3C traceparent of the submission; empty if none',
  trace_state     VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'W3C tracestate of the submission; empty if none',
  actor_id        BINARY(16)   NOT NULL COMMENT 'who submitted it',
  state           VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'open, review, succeeded, failed, cancelled; what is shown of an open task follows from its working row',
  failure_code    VARCHAR(128) NOT NULL COMMENT 'why it failed, waits in review or was last retried; empty if nothing went wrong',
  failure_message VARCHAR(4096) NOT NULL COMMENT 'the same, for people',
  result_evidence_id BINARY(16) NULL    COMMENT 'the evidence that a person accepted as the result; null on success means the receipt of the last generation',
  revision        BIGINT       NOT NULL COMMENT 'version for compare-and-swap, from 1; raised only when this row is written',
  created_at      DATETIME(6)  NOT NULL COMMENT 'acceptance, UTC',
  updated_at      DATETIME(6)  NOT NULL COMMENT 'last change of this row, UTC',
  finished_at     DATETIME(6)  NULL     COMMENT 'end, UTC; set exactly in terminal states',
  expires_at      DATETIME(6)  NULL     COMMENT 'retention may remove it then, UTC; set exactly in terminal states',
  PRIMARY KEY (namespace_id, id),
  KEY ix_pulse_tasks_list (namespace_id, queue_id, state, id),
  KEY ix_pulse_tasks_expiry (expires_at),
  CONSTRAINT fk_pulse_tasks_queue FOREIGN KEY (namespace_id, queue_id) REFERENCES pulse_queues (namespace_id, id),
  CONSTRAINT ck_pulse_tasks_payload CHECK (JSON_VALID(payload)),
  CONSTRAINT ck_pulse_tasks_priority CHECK (priority BETWEEN 1 AND 9),
  CONSTRAINT ck_pulse_tasks_budget CHECK (max_attempts BETWEEN 1 AND 100 AND attempts_used <= max_attempts),
  CONSTRAINT ck_pulse_tasks_state CHECK (state IN ('open', 'review', 'succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_pulse_tasks_finished CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)
    AND (finished_at IS NULL) = (expires_at IS NULL)),
  CONSTRAINT ck_pulse_tasks_result CHECK (result_evidence_id IS NULL OR state = 'succeeded'),
  CONSTRAINT ck_pulse_tasks_revision CHECK (revision >= 1 AND generation >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='a task, accepted exactly once; written at acceptance, at every re-queue or park and at the end, never at claim or start';
-- +goose StatementEnd
