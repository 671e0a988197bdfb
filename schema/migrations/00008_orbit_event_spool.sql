-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_event_spool (
  namespace_id BINARY(16)      NOT NULL COMMENT 'tenant',
  sid          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'taken by the last statement of a transaction, so that it grows along every dependency',
  batch_id     BINARY(16)      NOT NULL COMMENT 'the batch of events',
  event_count  INT UNSIGNED    NOT NULL COMMENT 'events in the batch',
  PRIMARY KEY (namespace_id, sid),
  UNIQUE KEY uq_orbit_event_spool_sid (sid),
  CONSTRAINT ck_orbit_event_spool_count CHECK (event_count >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='committed batches that have no position yet';
-- +goose StatementEnd
