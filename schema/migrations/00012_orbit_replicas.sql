-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
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
-- +goose StatementEnd
