-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_credentials (
  namespace_id        BINARY(16)    NOT NULL COMMENT 'tenant the credential opens',
  id                  BINARY(16)    NOT NULL COMMENT 'identity, part of the key text',
  actor_id            BINARY(16)    NOT NULL COMMENT 'who acts; survives rotation and scopes idempotency keys',
  name                VARCHAR(128)  NOT NULL COMMENT 'for people',
  secret_digest       VARBINARY(32) NOT NULL COMMENT 'SHA-256 of the current secret; the secret itself is never stored',
  previous_digest     VARBINARY(32) NULL     COMMENT 'SHA-256 of the secret before the last rotation, while it still opens',
  previous_expires_at DATETIME(6)   NULL     COMMENT 'end of the overlap, UTC',
  actions             JSON          NOT NULL COMMENT 'granted actions, an array of strings',
  queues              JSON          NOT NULL COMMENT 'granted queue name patterns, an array of strings',
  rate_per_second     INT UNSIGNED  NOT NULL COMMENT 'requests a second; 0 means the configured default',
  state               VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'active or revoked',
  expires_at          DATETIME(6)   NULL     COMMENT 'end of validity, UTC; null means none',
  last_used_at        DATETIME(6)   NULL     COMMENT 'last use, UTC, to about a minute',
  revision            BIGINT        NOT NULL COMMENT 'version for compare-and-swap, from 1',
  created_at          DATETIME(6)   NOT NULL COMMENT 'when it was created, UTC',
  updated_at          DATETIME(6)   NOT NULL COMMENT 'last change, UTC',
  PRIMARY KEY (namespace_id, id),
  CONSTRAINT fk_orbit_credentials_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_orbit_credentials_state CHECK (state IN ('active', 'revoked')),
  CONSTRAINT ck_orbit_credentials_digest CHECK (LENGTH(secret_digest) = 32 AND (previous_digest IS NULL OR LENGTH(previous_digest) = 32)),
  CONSTRAINT ck_orbit_credentials_overlap CHECK ((previous_digest IS NULL) = (previous_expires_at IS NULL)),
  CONSTRAINT ck_orbit_credentials_revision CHECK (revision >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='an API key with its grants; only the digest of its secret';
-- +goose StatementEnd
