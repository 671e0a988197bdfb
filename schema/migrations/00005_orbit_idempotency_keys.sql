-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_idempotency_keys (
  namespace_id    BINARY(16)    NOT NULL COMMENT 'tenant',
  scope           BINARY(16)    NOT NULL COMMENT 'first half of SHA-256 over actor, operation and path',
  idempotency_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'the caller''s key, visible ASCII',
  actor_id        BINARY(16)    NOT NULL COMMENT 'actor of the first try',
  operation       VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'operationId of the first try',
  digest          VARBINARY(32) NOT NULL COMMENT 'request digest: operation, path and meaning of the body; zeros when void',
  state           VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'done, void, expired; a row is reserved while its transaction runs, and nobody sees that',
  resource_kind   VARCHAR(32)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'kind of the resource the request made or changed; empty when void',
  resource_id     BINARY(16)    NULL     COMMENT 'that resource; rights are judged against it on replay',
  reply_id        BINARY(16)    NULL     COMMENT 'the stored reply, and by read-back the mark of the try that owns the row; null when void or expired',
  created_at      DATETIME(6)   NOT NULL COMMENT 'first acceptance, UTC',
  expires_at      DATETIME(6)   NOT NULL COMMENT 'until then the reply is kept; afterwards the row is a tombstone, UTC',
  PRIMARY KEY (namespace_id, scope, idempotency_key),
  KEY ix_orbit_idempotency_keys_expiry (state, expires_at),
  CONSTRAINT fk_orbit_idempotency_keys_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_orbit_idempotency_keys_state CHECK (state IN ('done', 'void', 'expired')),
  CONSTRAINT ck_orbit_idempotency_keys_digest CHECK (LENGTH(digest) = 32),
  CONSTRAINT ck_orbit_idempotency_keys_done CHECK ((state = 'done') = (reply_id IS NOT NULL)),
  CONSTRAINT ck_orbit_idempotency_keys_life CHECK (expires_at > created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='one row a key, reserved as the first write of its transaction and committed with the effect and the reply; keyed by its access path';
-- +goose StatementEnd
