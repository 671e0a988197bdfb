-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
CREATE TABLE pulse_schedule_versions (
  namespace_id       BINARY(16)   NOT NULL COMMENT 'tenant',
  schedule_id        BINARY(16)   NOT NULL COMMENT 'schedule',
  version            BIGINT       NOT NULL COMMENT 'number of the version, from 1',
  timetable          JSON         NOT NULL COMMENT 'when it fires: cron, interval, calendar or one instant; zone, policies where clocks change, bounds',
  jitter_ms          BIGINT       NOT NULL COMMENT 'tasks may run up to this much after their instant, a function of schedule and instant, milliseconds',
  run_overlap        VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'what an instant does while an earlier task has not ended: skip, buffer_one, buffer_all, allow, cancel_running',
  catch_up_window_ms BIGINT       NOT NULL COMMENT 'instants older than this are missed, milliseconds',
  catch_up_max       INT UNSIGNED NOT NULL COMMENT 'of instants more than a minute late only so many, the latest, are made up for; the others are missed',
  queue_id           BINARY(16)   NOT NULL COMMENT 'queue of the tasks',
  type               VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'names the handler',
  payload            LONGTEXT     NOT NULL COMMENT 'business JSON of each task as it was sent, digit by digit',
  payload_version    INT UNSIGNED NOT NULL COMMENT 'schema version of the payload, the business''s own',
  priority           TINYINT UNSIGNED NOT NULL COMMENT '1 (first) to 9',
  max_attempts       INT UNSIGNED NOT NULL COMMENT 'attempt budget of each task; 0 takes the queue''s when it fires',
  deadline_ms        BIGINT       NOT NULL COMMENT 'deadline of each task, counted from when it may run, milliseconds; 0 is none',
  actor_id           BINARY(16)   NOT NULL COMMENT 'who published it; its tasks are submitted in this name',
  created_at         DATETIME(6)  NOT NULL COMMENT 'publication, UTC',
  PRIMARY KEY (namespace_id, schedule_id, version),
  CONSTRAINT fk_pulse_schedule_versions_schedule FOREIGN KEY (namespace_id, schedule_id) REFERENCES pulse_schedules (namespace_id, id),
  CONSTRAINT fk_pulse_schedule_versions_queue FOREIGN KEY (namespace_id, queue_id) REFERENCES pulse_queues (namespace_id, id),
  CONSTRAINT ck_pulse_schedule_versions_overlap CHECK (run_overlap IN ('skip', 'buffer_one', 'buffer_all', 'allow', 'cancel_running')),
  CONSTRAINT ck_pulse_schedule_versions_policy CHECK (version >= 1 AND jitter_ms >= 0 AND catch_up_window_ms >= 60000 AND deadline_ms >= 0),
  CONSTRAINT ck_pulse_schedule_versions_task CHECK (priority BETWEEN 1 AND 9 AND max_attempts <= 100 AND JSON_VALID(payload))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='what a schedule is, from one change to the next; never updated';
-- +goose StatementEnd
