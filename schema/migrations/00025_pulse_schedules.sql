-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_schedules (
  namespace_id    BINARY(16)    NOT NULL COMMENT 'tenant',
  id              BINARY(16)    NOT NULL COMMENT 'identity',
  name            VARCHAR(128)  NOT NULL COMMENT 'name, unique in the namespace; an archived schedule keeps it',
  current_version BIGINT        NOT NULL COMMENT 'the version that fires',
  paused_at       DATETIME(6)   NULL     COMMENT 'since when it is paused, UTC; null while it is not',
  pause_reason    VARCHAR(1024) NOT NULL COMMENT 'why it was paused, for people; empty while it is not',
  archived_at     DATETIME(6)   NULL     COMMENT 'when it ended for good, UTC; null while it has not',
  watermark       DATETIME(6)   NOT NULL COMMENT 'every instant up to this one has been dealt with, UTC; never goes back',
  next_fire_at    DATETIME(6)   NULL     COMMENT 'first instant after the watermark, UTC; null while paused, when archived, and when none is to come',
  revision        BIGINT        NOT NULL COMMENT 'version for compare-and-swap, from 1; raised by changes, not by fires',
  created_at      DATETIME(6)   NOT NULL COMMENT 'when it was created, UTC',
  updated_at      DATETIME(6)   NOT NULL COMMENT 'last change, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_schedules_name (namespace_id, name),
  KEY ix_pulse_schedules_due (next_fire_at),
  CONSTRAINT fk_pulse_schedules_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_pulse_schedules_next CHECK (next_fire_at IS NULL OR next_fire_at > watermark AND paused_at IS NULL AND archived_at IS NULL),
  CONSTRAINT ck_pulse_schedules_revision CHECK (revision >= 1 AND current_version >= 1 AND current_version <= revision)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='a schedule: makes tasks at the instants of its current version; whoever fires or changes it holds its row';
-- +goose StatementEnd
