-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_schedule_occurrences (
  namespace_id         BINARY(16)  NOT NULL COMMENT 'tenant',
  id                   BINARY(16)  NOT NULL COMMENT 'identity, time-ordered',
  schedule_id          BINARY(16)  NOT NULL COMMENT 'schedule',
  fire_at              DATETIME(6) NOT NULL COMMENT 'the instant, UTC; of a trigger the time of the call, never on a whole millisecond, where timetables have theirs',
  schedule_version     BIGINT      NOT NULL COMMENT 'version of the schedule it is of',
  source               VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'timetable, trigger or backfill',
  outcome              VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'fired (has a task), buffered (waits for an earlier task to end), skipped, missed',
  code                 VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'why it was skipped or missed; empty otherwise',
  task_id              BINARY(16)  NULL     COMMENT 'its task; set exactly when fired',
  version              BIGINT      NOT NULL COMMENT 'raised by each change of the outcome, from 1',
  live_schedule_id     BINARY(16)  NULL     COMMENT 'schedule_id, set exactly while the task has not ended',
  buffered_schedule_id BINARY(16)  NULL     COMMENT 'schedule_id, set exactly while buffered',
  actor_id             BINARY(16)  NULL     COMMENT 'who triggered or backfilled it; null for the timetable',
  created_at           DATETIME(6) NOT NULL COMMENT 'when the instant was dealt with first, UTC',
  updated_at           DATETIME(6) NOT NULL COMMENT 'last change of the outcome, UTC',
  expires_at           DATETIME(6) NULL     COMMENT 'retention may remove it then, UTC; set exactly when it neither waits nor has a task that has not ended',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_schedule_occurrences_fire (namespace_id, schedule_id, fire_at),
  KEY ix_pulse_schedule_occurrences_live (namespace_id, live_schedule_id),
  KEY ix_pulse_schedule_occurrences_buffered (buffered_schedule_id, namespace_id, fire_at),
  KEY ix_pulse_schedule_occurrences_expiry (expires_at),
  CONSTRAINT fk_pulse_schedule_occurrences_version FOREIGN KEY (namespace_id, schedule_id, schedule_version) REFERENCES pulse_schedule_versions (namespace_id, schedule_id, version),
  CONSTRAINT ck_pulse_schedule_occurrences_source CHECK (source IN ('timetable', 'trigger', 'backfill') AND (source = 'timetable') = (actor_id IS NULL)),
  CONSTRAINT ck_pulse_schedule_occurrences_outcome CHECK (outcome IN ('fired', 'buffered', 'skipped', 'missed') AND (outcome = 'fired') = (task_id IS NOT NULL)
    AND (outcome IN ('skipped', 'missed')) = (code <> '')),
  CONSTRAINT ck_pulse_schedule_occurrences_open CHECK ((outcome = 'buffered') = (buffered_schedule_id IS NOT NULL) AND (live_schedule_id IS NULL OR outcome = 'fired')
    AND (expires_at IS NULL) = (buffered_schedule_id IS NOT NULL OR live_schedule_id IS NOT NULL)),
  CONSTRAINT ck_pulse_schedule_occurrences_version CHECK (version >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='what became of one instant of a schedule; one row an instant, whatever is edited or raced';
-- +goose StatementEnd
