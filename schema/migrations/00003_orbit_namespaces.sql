-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_namespaces (
  id             BINARY(16)  NOT NULL COMMENT 'identity of the tenant; leads every run-time primary key',
  application_id BINARY(16)  NOT NULL COMMENT 'owning application',
  name           VARCHAR(64) NOT NULL COMMENT 'name, unique in its application',
  created_at     DATETIME(6) NOT NULL COMMENT 'when it was created, UTC',
  PRIMARY KEY (id),
  UNIQUE KEY uq_orbit_namespaces_name (application_id, name),
  CONSTRAINT fk_orbit_namespaces_application FOREIGN KEY (application_id) REFERENCES orbit_applications (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='the tenant boundary';
-- +goose StatementEnd
