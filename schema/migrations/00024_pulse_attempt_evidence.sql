-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_attempt_evidence (
  namespace_id  BINARY(16)    NOT NULL COMMENT 'tenant',
  id            BINARY(16)    NOT NULL COMMENT 'identity, time-ordered',
  attempt_id    BINARY(16)    NOT NULL COMMENT 'attempt the submission was for',
  digest        VARBINARY(32) NOT NULL COMMENT 'digest of the submission; the same one is kept once',
  reason        VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'problem code the worker was answered with: lease_lost, result_conflict, session_superseded, state_conflict',
  outcome       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'succeeded, failed, cancelled: what the worker said',
  result        LONGTEXT      NULL     COMMENT 'business JSON as it was sent',
  error_code    VARCHAR(128)  NOT NULL COMMENT 'error code the worker gave; empty if none',
  error_message VARCHAR(4096) NOT NULL COMMENT 'error message the worker gave; empty if none',
  created_at    DATETIME(6)   NOT NULL COMMENT 'arrival, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_attempt_evidence_digest (namespace_id, attempt_id, digest),
  KEY ix_pulse_attempt_evidence_page (namespace_id, attempt_id, created_at, id),
  CONSTRAINT fk_pulse_attempt_evidence_attempt FOREIGN KEY (namespace_id, attempt_id) REFERENCES pulse_attempts (namespace_id, id),
  CONSTRAINT ck_pulse_attempt_evidence_digest CHECK (LENGTH(digest) = 32),
  CONSTRAINT ck_pulse_attempt_evidence_outcome CHECK (outcome IN ('succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_pulse_attempt_evidence_result CHECK (result IS NULL OR JSON_VALID(result))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='results that came too late, or in contradiction; kept and usable, never applied by themselves';
-- +goose StatementEnd
