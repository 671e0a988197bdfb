-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_queues (
  namespace_id       BINARY(16)   NOT NULL COMMENT 'tenant',
  id                 BINARY(16)   NOT NULL COMMENT 'identity',
  name               VARCHAR(128) NOT NULL COMMENT 'name, unique in the namespace',
  lease_ms           INT UNSIGNED NOT NULL COMMENT 'lease of a started attempt, milliseconds',
  offer_timeout_ms   INT UNSIGNED NOT NULL COMMENT 'an offer not started by then is taken back, milliseconds',
  max_attempts       INT UNSIGNED NOT NULL COMMENT 'default attempt budget of a task, the first included',
  backoff_initial_ms INT UNSIGNED NOT NULL COMMENT 'delay before the second attempt, doubled for each further one, milliseconds',
  backoff_max_ms     INT UNSIGNED NOT NULL COMMENT 'upper bound of the delay, milliseconds',
  retention_ms       BIGINT       NOT NULL COMMENT 'how long an ended task is kept, milliseconds',
  unknown_outcome    VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'what becomes of a task whose worker was lost: review or retry',
  one_step           BOOLEAN      NOT NULL COMMENT 'whether a claim may start tasks at once; only with retry, for of a lost reply nobody knows whether its tasks ran',
  revision           BIGINT       NOT NULL COMMENT 'version for compare-and-swap, from 1',
  created_at         DATETIME(6)  NOT NULL COMMENT 'when it was created, UTC',
  updated_at         DATETIME(6)  NOT NULL COMMENT 'last change, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_queues_name (namespace_id, name),
  CONSTRAINT fk_pulse_queues_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_pulse_queues_policy CHECK (lease_ms >= 1000 AND offer_timeout_ms >= 1000 AND max_attempts BETWEEN 1 AND 100
    AND backoff_initial_ms <= backoff_max_ms AND retention_ms >= 3600000),
  CONSTRAINT ck_pulse_queues_unknown CHECK (unknown_outcome IN ('review', 'retry')),
  CONSTRAINT ck_pulse_queues_one_step CHECK (NOT one_step OR unknown_outcome = 'retry'),
  CONSTRAINT ck_pulse_queues_revision CHECK (revision >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='a queue with its default policy';
-- +goose StatementEnd
