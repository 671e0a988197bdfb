-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_audit_events (
  namespace_id  BINARY(16)   NOT NULL COMMENT 'tenant',
  id            BINARY(16)   NOT NULL COMMENT 'time-ordered identity',
  actor_id      BINARY(16)   NULL     COMMENT 'who acted; null means the system or the host',
  credential_id BINARY(16)   NULL     COMMENT 'with which credential',
  action        VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'operationId, or the name of a host command',
  target_kind   VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'kind of the thing acted on',
  target_id     BINARY(16)   NULL     COMMENT 'the thing acted on',
  outcome       VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'done, or denied',
  request_id    VARCHAR(128) NOT NULL COMMENT 'request id, for joining with logs',
  source        VARCHAR(64)  NOT NULL COMMENT 'api, host or system',
  detail        JSON         NOT NULL COMMENT 'reason and changed fields, never secrets or business content',
  created_at    DATETIME(6)  NOT NULL COMMENT 'database time, UTC',
  PRIMARY KEY (namespace_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='acts of operators and administrators, append-only; UPDATE rejected';
-- +goose StatementEnd
