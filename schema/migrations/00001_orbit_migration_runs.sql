-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE orbit_migration_runs (
  version    BIGINT        NOT NULL COMMENT 'migration step',
  checksum   VARBINARY(32) NOT NULL COMMENT 'SHA-256 of the step''s text',
  started_at DATETIME(6)   NOT NULL COMMENT 'begin of the last run, UTC',
  ended_at   DATETIME(6)   NULL     COMMENT 'end, UTC; null means it did not end: dirty',
  program    VARCHAR(64)   NOT NULL COMMENT 'version of the program that ran it',
  PRIMARY KEY (version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='each step of the schema with its checksum and its dirty mark';
-- +goose StatementEnd
