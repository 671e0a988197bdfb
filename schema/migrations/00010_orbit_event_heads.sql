-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_event_heads (
  namespace_id  BINARY(16) NOT NULL COMMENT 'tenant',
  next_position BIGINT     NOT NULL COMMENT 'position the next event gets, from 1; raised under lock by the sequencer',
  trimmed_below BIGINT     NOT NULL COMMENT 'events below this position were removed by retention, from 1',
  PRIMARY KEY (namespace_id),
  CONSTRAINT fk_orbit_event_heads_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_orbit_event_heads_next CHECK (next_position >= 1 AND trimmed_below >= 1 AND trimmed_below <= next_position)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='one row a tenant: the lock and the counter of the sequencer; created with the namespace';
-- +goose StatementEnd
