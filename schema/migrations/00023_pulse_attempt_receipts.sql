-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_attempt_receipts (
  namespace_id  BINARY(16)    NOT NULL COMMENT 'tenant',
  attempt_id    BINARY(16)    NOT NULL COMMENT 'attempt',
  digest        VARBINARY(32) NOT NULL COMMENT 'digest of the submission: a repeat equals it, a contradiction does not',
  outcome       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'succeeded, failed, cancelled: what the worker said',
  result        LONGTEXT      NULL     COMMENT 'business JSON as it was sent',
  error_code    VARCHAR(128)  NOT NULL COMMENT 'error code the worker gave; empty if none',
  error_message VARCHAR(4096) NOT NULL COMMENT 'error message the worker gave; empty if none',
  reply         MEDIUMBLOB    NOT NULL COMMENT 'bytes of the receipt, returned unchanged on a repeat',
  created_at    DATETIME(6)   NOT NULL COMMENT 'acceptance of the result, UTC',
  PRIMARY KEY (namespace_id, attempt_id),
  CONSTRAINT fk_pulse_attempt_receipts_attempt FOREIGN KEY (namespace_id, attempt_id) REFERENCES pulse_attempts (namespace_id, id),
  CONSTRAINT ck_pulse_attempt_receipts_digest CHECK (LENGTH(digest) = 32),
  CONSTRAINT ck_pulse_attempt_receipts_outcome CHECK (outcome IN ('succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_pulse_attempt_receipts_result CHECK (result IS NULL OR JSON_VALID(result))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='the one accepted result of an attempt';
-- +goose StatementEnd
