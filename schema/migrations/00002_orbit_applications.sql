-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_applications (
  id         BINARY(16)  NOT NULL COMMENT 'identity of the application',
  name       VARCHAR(64) NOT NULL COMMENT 'name, unique on this installation',
  created_at DATETIME(6) NOT NULL COMMENT 'when it was created, UTC',
  PRIMARY KEY (id),
  UNIQUE KEY uq_orbit_applications_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='an application that owns namespaces';
-- +goose StatementEnd
