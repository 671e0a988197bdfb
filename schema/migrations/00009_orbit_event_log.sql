-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_event_log (
  namespace_id   BINARY(16)   NOT NULL COMMENT 'tenant',
  first_position BIGINT       NOT NULL COMMENT 'position of the batch''s first event; position = first + ordinal',
  batch_id       BINARY(16)   NOT NULL COMMENT 'the batch of events',
  event_count    INT UNSIGNED NOT NULL COMMENT 'events in the batch',
  PRIMARY KEY (namespace_id, first_position),
  UNIQUE KEY uq_orbit_event_log_batch (namespace_id, batch_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='commit-safe order of events: who sees a position sees all below it';
-- +goose StatementEnd
