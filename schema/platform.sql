-- Platform: tenants, access, idempotency, events, audit. The tables as they are now; migrations/ leads here.

CREATE TABLE orbit_applications (
  id         BINARY(16)  NOT NULL COMMENT 'identity of the application',
  name       VARCHAR(64) NOT NULL COMMENT 'name, unique on this installation',
  created_at DATETIME(6) NOT NULL COMMENT 'when it was created, UTC',
  PRIMARY KEY (id),
  UNIQUE KEY uq_orbit_applications_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='an application that owns namespaces';

CREATE TABLE orbit_namespaces (
  id             BINARY(16)  NOT NULL COMMENT 'identity of the tenant; leads every run-time primary key',
  application_id BINARY(16)  NOT NULL COMMENT 'owning application',
  name           VARCHAR(64) NOT NULL COMMENT 'name, unique in its application',
  created_at     DATETIME(6) NOT NULL COMMENT 'when it was created, UTC',
  PRIMARY KEY (id),
  UNIQUE KEY uq_orbit_namespaces_name (application_id, name),
  CONSTRAINT fk_orbit_namespaces_application FOREIGN KEY (application_id) REFERENCES orbit_applications (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='the tenant boundary';

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

CREATE TABLE orbit_replies (
  namespace_id BINARY(16)        NOT NULL COMMENT 'tenant',
  id           BINARY(16)        NOT NULL COMMENT 'time-ordered identity',
  status       SMALLINT UNSIGNED NOT NULL COMMENT 'HTTP status of the first answer',
  etag         VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'ETag of the first answer; empty if it had none',
  body         MEDIUMBLOB        NOT NULL COMMENT 'bytes of the first answer, written unchanged on replay',
  PRIMARY KEY (namespace_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='replies kept for replay, out of row so that the key index stays narrow';

CREATE TABLE orbit_events (
  namespace_id   BINARY(16)   NOT NULL COMMENT 'tenant',
  batch_id       BINARY(16)   NOT NULL COMMENT 'the transaction that wrote the event',
  ordinal        INT UNSIGNED NOT NULL COMMENT 'order in the batch, from 0',
  aggregate_kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'task, attempt, queue, gate, credential, worker',
  aggregate_id   BINARY(16)   NOT NULL COMMENT 'the thing that changed',
  version        BIGINT       NOT NULL COMMENT 'version of the aggregate after the change; one event each',
  type           VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'what happened, such as task.accepted',
  actor_id       BINARY(16)   NULL     COMMENT 'who caused it; null means the system',
  data           MEDIUMTEXT   NOT NULL COMMENT 'details, JSON text',
  occurred_at    DATETIME(6)  NOT NULL COMMENT 'database time of the transaction, UTC',
  PRIMARY KEY (namespace_id, batch_id, ordinal),
  UNIQUE KEY uq_orbit_events_version (namespace_id, aggregate_id, aggregate_kind, version),
  CONSTRAINT ck_orbit_events_data CHECK (JSON_VALID(data)),
  CONSTRAINT ck_orbit_events_version CHECK (version >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='history, append-only: each change with its event in one commit; UPDATE rejected';

CREATE TABLE orbit_event_spool (
  namespace_id BINARY(16)      NOT NULL COMMENT 'tenant',
  sid          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'taken by the last statement of a transaction, so that it grows along every dependency',
  batch_id     BINARY(16)      NOT NULL COMMENT 'the batch of events',
  event_count  INT UNSIGNED    NOT NULL COMMENT 'events in the batch',
  PRIMARY KEY (namespace_id, sid),
  UNIQUE KEY uq_orbit_event_spool_sid (sid),
  CONSTRAINT ck_orbit_event_spool_count CHECK (event_count >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='committed batches that have no position yet';

CREATE TABLE orbit_event_log (
  namespace_id   BINARY(16)   NOT NULL COMMENT 'tenant',
  first_position BIGINT       NOT NULL COMMENT 'position of the batch''s first event; position = first + ordinal',
  batch_id       BINARY(16)   NOT NULL COMMENT 'the batch of events',
  event_count    INT UNSIGNED NOT NULL COMMENT 'events in the batch',
  PRIMARY KEY (namespace_id, first_position),
  UNIQUE KEY uq_orbit_event_log_batch (namespace_id, batch_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='commit-safe order of events: who sees a position sees all below it';

CREATE TABLE orbit_event_heads (
  namespace_id  BINARY(16) NOT NULL COMMENT 'tenant',
  next_position BIGINT     NOT NULL COMMENT 'position the next event gets, from 1; raised under lock by the sequencer',
  trimmed_below BIGINT     NOT NULL COMMENT 'events below this position were removed by retention, from 1',
  PRIMARY KEY (namespace_id),
  CONSTRAINT fk_orbit_event_heads_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_orbit_event_heads_next CHECK (next_position >= 1 AND trimmed_below >= 1 AND trimmed_below <= next_position)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='one row a tenant: the lock and the counter of the sequencer; created with the namespace';

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

CREATE TABLE orbit_replicas (
  id          BINARY(16)  NOT NULL COMMENT 'identity of one process of the service',
  server_uuid CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '@@server_uuid at the last renewal: another primary has another clock',
  fresh_since DATETIME(6) NOT NULL COMMENT 'start of the unbroken run of renewals on this server, UTC',
  renewed_at  DATETIME(6) NOT NULL COMMENT 'last renewal, UTC',
  host        VARCHAR(255) NOT NULL COMMENT 'host name, for people',
  version     VARCHAR(64) NOT NULL COMMENT 'program version, for people',
  started_at  DATETIME(6) NOT NULL COMMENT 'when the process registered, UTC',
  nudge_address VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'where it takes nudges, ip:port for UDP; empty if nowhere',
  nudge_key   VARBINARY(32) NOT NULL COMMENT 'what nudges to it are authenticated with, random for each process: who has it can cause needless looks',
  PRIMARY KEY (id),
  KEY ix_orbit_replicas_renewed (renewed_at),
  CONSTRAINT ck_orbit_replicas_nudge_key CHECK (LENGTH(nudge_key) = 32)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='liveness of each replica: a lease is declared lost only by one that was alive throughout it';

CREATE TABLE orbit_migration_runs (
  version    BIGINT        NOT NULL COMMENT 'migration step',
  checksum   VARBINARY(32) NOT NULL COMMENT 'SHA-256 of the step''s text',
  started_at DATETIME(6)   NOT NULL COMMENT 'begin of the last run, UTC',
  ended_at   DATETIME(6)   NULL     COMMENT 'end, UTC; null means it did not end: dirty',
  program    VARCHAR(64)   NOT NULL COMMENT 'version of the program that ran it',
  PRIMARY KEY (version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='each step of the schema with its checksum and its dirty mark';
