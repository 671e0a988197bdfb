-- Pulse: durable task queues. An open task has exactly one of a ready, scheduled or blocked row or a live attempt;
-- deleting or swapping that row, one row affected, is the only licence to move the task.

CREATE TABLE pulse_queues (
  namespace_id       BINARY(16)   NOT NULL COMMENT 'tenant',
  id                 BINARY(16)   NOT NULL COMMENT 'identity',
  name               VARCHAR(128) NOT NULL COMMENT 'name, unique in the namespace',
  lease_ms           INT UNSIGNED NOT NULL COMMENT 'lease of a started attempt, milliseconds',
  offer_timeout_ms   INT UNSIGNED NOT NULL COMMENT 'an offer not started by then is taken back, milliseconds',
  max_attempts       INT UNSIGNED NOT NULL COMMENT 'default attempt budget of a task, the first included',
  backoff_initial_ms INT UNSIGNED NOT NULL COMMENT 'delay before the second attempt, doubled for each further one, milliseconds',
  backoff_max_ms     INT UNSIGNED NOT NULL COMMENT 'upper bound of the delay, milliseconds',
  retention_ms       BIGINT       NOT NULL COMMENT 'how long an ended task is kept, milliseconds',
  unknown_outcome    VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'what becomes of a task whose worker was lost: review or retry',
  one_step           BOOLEAN      NOT NULL COMMENT 'whether a claim may start tasks at once; only with retry, for of a lost reply nobody knows whether its tasks ran',
  revision           BIGINT       NOT NULL COMMENT 'version for compare-and-swap, from 1',
  created_at         DATETIME(6)  NOT NULL COMMENT 'when it was created, UTC',
  updated_at         DATETIME(6)  NOT NULL COMMENT 'last change, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_queues_name (namespace_id, name),
  CONSTRAINT fk_pulse_queues_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_pulse_queues_policy CHECK (lease_ms >= 1000 AND offer_timeout_ms >= 1000 AND max_attempts BETWEEN 1 AND 100
    AND backoff_initial_ms <= backoff_max_ms AND retention_ms >= 3600000),
  CONSTRAINT ck_pulse_queues_unknown CHECK (unknown_outcome IN ('review', 'retry')),
  CONSTRAINT ck_pulse_queues_one_step CHECK (NOT one_step OR unknown_outcome = 'retry'),
  CONSTRAINT ck_pulse_queues_revision CHECK (revision >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='a queue with its default policy';

CREATE TABLE pulse_execution_gates (
  namespace_id    BINARY(16)   NOT NULL COMMENT 'tenant',
  scope           VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'namespace (the root row, made with the namespace), queue, task_type, instance',
  scope_id        VARCHAR(128) NOT NULL COMMENT 'hex id of the queue or instance, name of the task type; empty on the root row',
  state           VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'open or closed',
  control_version BIGINT       NOT NULL COMMENT 'raised by each change, from 1',
  closed_gates    INT          NOT NULL DEFAULT 0 COMMENT 'on the root row: how many gates of the namespace are closed, so that a start need not look for them; 0 elsewhere',
  reason          VARCHAR(1024) NOT NULL COMMENT 'why it was closed or opened, for people',
  updated_at      DATETIME(6)  NOT NULL COMMENT 'last change, UTC',
  PRIMARY KEY (namespace_id, scope, scope_id),
  KEY ix_pulse_execution_gates_closed (namespace_id, state),
  CONSTRAINT fk_pulse_execution_gates_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_pulse_execution_gates_scope CHECK (scope IN ('namespace', 'queue', 'task_type', 'instance')),
  CONSTRAINT ck_pulse_execution_gates_root CHECK ((scope = 'namespace') = (scope_id = '')),
  CONSTRAINT ck_pulse_execution_gates_state CHECK (state IN ('open', 'closed')),
  CONSTRAINT ck_pulse_execution_gates_version CHECK (control_version >= 1),
  CONSTRAINT ck_pulse_execution_gates_closed CHECK (closed_gates >= 0 AND (closed_gates = 0 OR scope = 'namespace'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='starts pass only open gates: a start shares the root row, a close holds it exclusively';

CREATE TABLE pulse_worker_sessions (
  namespace_id BINARY(16)   NOT NULL COMMENT 'tenant',
  id           BINARY(16)   NOT NULL COMMENT 'identity',
  worker_name  VARCHAR(128) NOT NULL COMMENT 'stable name of the worker, unique in the namespace',
  actor_id     BINARY(16)   NOT NULL COMMENT 'the only actor that may open this name',
  epoch        BIGINT       NOT NULL COMMENT 'raised by each opening, from 1; older incarnations are fenced',
  instance_id  BINARY(16)   NOT NULL COMMENT 'the current incarnation',
  abandoned_claim BIGINT    NOT NULL COMMENT 'claims of the current incarnation up to this claim_seq were given up by it and are refused',
  closed_at    DATETIME(6)  NULL     COMMENT 'when the current incarnation was closed, UTC; null while it is open',
  created_at   DATETIME(6)  NOT NULL COMMENT 'first opening, UTC',
  updated_at   DATETIME(6)  NOT NULL COMMENT 'last opening, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_worker_sessions_name (namespace_id, worker_name),
  CONSTRAINT fk_pulse_worker_sessions_namespace FOREIGN KEY (namespace_id) REFERENCES orbit_namespaces (id),
  CONSTRAINT ck_pulse_worker_sessions_epoch CHECK (epoch >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='head of a worker identity: the fence that every worker call shares and an opening holds exclusively';

CREATE TABLE pulse_worker_instances (
  namespace_id       BINARY(16)   NOT NULL COMMENT 'tenant',
  id                 BINARY(16)   NOT NULL COMMENT 'identity, made by the client',
  session_id         BINARY(16)   NOT NULL COMMENT 'the worker identity',
  epoch              BIGINT       NOT NULL COMMENT 'epoch of this incarnation',
  host               VARCHAR(255) NOT NULL COMMENT 'host name, for people',
  version            VARCHAR(128) NOT NULL COMMENT 'worker version, for people',
  queues             JSON         NOT NULL COMMENT 'ids of the queues it serves, an array of hex strings',
  types              JSON         NOT NULL COMMENT 'task types it handles, an array of strings',
  slots              INT UNSIGNED NOT NULL COMMENT 'attempts it runs at once',
  state              VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'live, superseded, closed, expired',
  heartbeats         BIGINT       NOT NULL COMMENT 'raised by each sign of life, so that a swap always changes the row',
  heartbeat_at       DATETIME(6)  NOT NULL COMMENT 'last sign of life, UTC',
  sweep_due_at       DATETIME(6)  NULL     COMMENT 'set when the incarnation ended: recovery then ends its attempts and clears it, UTC',
  opened_at          DATETIME(6)  NOT NULL COMMENT 'when it was opened, UTC',
  ended_at           DATETIME(6)  NULL     COMMENT 'when it was superseded or closed, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_worker_instances_epoch (namespace_id, session_id, epoch),
  KEY ix_pulse_worker_instances_sweep (sweep_due_at),
  KEY ix_pulse_worker_instances_silent (state, heartbeat_at),
  CONSTRAINT fk_pulse_worker_instances_session FOREIGN KEY (namespace_id, session_id) REFERENCES pulse_worker_sessions (namespace_id, id),
  CONSTRAINT ck_pulse_worker_instances_state CHECK (state IN ('live', 'superseded', 'closed', 'expired')),
  CONSTRAINT ck_pulse_worker_instances_ended CHECK ((state IN ('superseded', 'closed')) = (ended_at IS NOT NULL)),
  CONSTRAINT ck_pulse_worker_instances_sweep CHECK (sweep_due_at IS NULL OR ended_at IS NOT NULL),
  CONSTRAINT ck_pulse_worker_instances_slots CHECK (slots >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='one process incarnation of a worker';

CREATE TABLE pulse_tasks (
  namespace_id    BINARY(16)   NOT NULL COMMENT 'tenant',
  id              BINARY(16)   NOT NULL COMMENT 'identity, time-ordered',
  queue_id        BINARY(16)   NOT NULL COMMENT 'queue, frozen at acceptance',
  type            VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'names the handler',
  payload         LONGTEXT     NOT NULL COMMENT 'business JSON as it was sent, digit by digit',
  payload_version INT UNSIGNED NOT NULL COMMENT 'schema version of the payload, the business''s own',
  priority        TINYINT UNSIGNED NOT NULL COMMENT '1 (first) to 9',
  rank_us         BIGINT       NOT NULL COMMENT 'order among equal priority: run_at in microseconds since 1970, shifted for fairness',
  run_at          DATETIME(6)  NOT NULL COMMENT 'not offered before, UTC',
  deadline_at     DATETIME(6)  NULL     COMMENT 'an open task fails then, UTC',
  max_attempts    INT UNSIGNED NOT NULL COMMENT 'attempt budget, the first included',
  attempts_used   INT UNSIGNED NOT NULL COMMENT 'started attempts that have ended in the present budget',
  generation      BIGINT       NOT NULL COMMENT 'execution generations that have ended; a live attempt has generation + 1',
  idle_offers     INT UNSIGNED NOT NULL COMMENT 'offers in a row that ended without a start; from the second on they back off',
  trace_parent    VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'W3C traceparent of the submission; empty if none',
  trace_state     VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'W3C tracestate of the submission; empty if none',
  actor_id        BINARY(16)   NOT NULL COMMENT 'who submitted it',
  origin_kind     VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'what made it: schedule; empty for a submission',
  origin_id       BINARY(16)   NULL     COMMENT 'which one: of a schedule the occurrence',
  state           VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'open, review, succeeded, failed, cancelled; what is shown of an open task follows from its working row',
  failure_code    VARCHAR(128) NOT NULL COMMENT 'why it failed, waits in review or was last retried; empty if nothing went wrong',
  failure_message VARCHAR(4096) NOT NULL COMMENT 'the same, for people',
  result_evidence_id BINARY(16) NULL    COMMENT 'the evidence that a person accepted as the result; null on success means the receipt of the last generation',
  revision        BIGINT       NOT NULL COMMENT 'version for compare-and-swap, from 1; raised only when this row is written',
  created_at      DATETIME(6)  NOT NULL COMMENT 'acceptance, UTC',
  updated_at      DATETIME(6)  NOT NULL COMMENT 'last change of this row, UTC',
  finished_at     DATETIME(6)  NULL     COMMENT 'end, UTC; set exactly in terminal states',
  expires_at      DATETIME(6)  NULL     COMMENT 'retention may remove it then, UTC; set exactly in terminal states',
  PRIMARY KEY (namespace_id, id),
  KEY ix_pulse_tasks_list (namespace_id, queue_id, state, id),
  KEY ix_pulse_tasks_expiry (expires_at),
  CONSTRAINT fk_pulse_tasks_queue FOREIGN KEY (namespace_id, queue_id) REFERENCES pulse_queues (namespace_id, id),
  CONSTRAINT ck_pulse_tasks_payload CHECK (JSON_VALID(payload)),
  CONSTRAINT ck_pulse_tasks_priority CHECK (priority BETWEEN 1 AND 9),
  CONSTRAINT ck_pulse_tasks_budget CHECK (max_attempts BETWEEN 1 AND 100 AND attempts_used <= max_attempts),
  CONSTRAINT ck_pulse_tasks_origin CHECK (origin_kind IN ('', 'schedule') AND (origin_kind = '') = (origin_id IS NULL)),
  CONSTRAINT ck_pulse_tasks_state CHECK (state IN ('open', 'review', 'succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_pulse_tasks_finished CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)
    AND (finished_at IS NULL) = (expires_at IS NULL)),
  CONSTRAINT ck_pulse_tasks_result CHECK (result_evidence_id IS NULL OR state = 'succeeded'),
  CONSTRAINT ck_pulse_tasks_revision CHECK (revision >= 1 AND generation >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='a task, accepted exactly once; written at acceptance, at every re-queue or park and at the end, never at claim or start';

CREATE TABLE pulse_ready (
  namespace_id BINARY(16)       NOT NULL COMMENT 'tenant',
  queue_id     BINARY(16)       NOT NULL COMMENT 'queue',
  priority     TINYINT UNSIGNED NOT NULL COMMENT '1 (first) to 9',
  rank_us      BIGINT           NOT NULL COMMENT 'order among equal priority',
  task_id      BINARY(16)       NOT NULL COMMENT 'the task that may be offered now',
  PRIMARY KEY (namespace_id, queue_id, priority, rank_us, task_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='working rows that can be claimed; the key is the claim order and there is nothing else';

CREATE TABLE pulse_scheduled (
  due_at       DATETIME(6)      NOT NULL COMMENT 'run_at of the task, UTC',
  namespace_id BINARY(16)       NOT NULL COMMENT 'tenant',
  task_id      BINARY(16)       NOT NULL COMMENT 'the task that is not yet due',
  queue_id     BINARY(16)       NOT NULL COMMENT 'queue',
  priority     TINYINT UNSIGNED NOT NULL COMMENT 'priority of the ready row it becomes',
  rank_us      BIGINT           NOT NULL COMMENT 'rank of the ready row it becomes',
  PRIMARY KEY (due_at, namespace_id, task_id),
  KEY ix_pulse_scheduled_queue (namespace_id, queue_id, due_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='working rows that wait for their time; the key leads with it';

CREATE TABLE pulse_blocked (
  namespace_id BINARY(16)       NOT NULL COMMENT 'tenant',
  blocker_kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'what is waited for: gate',
  blocker_id   VARCHAR(160)     NOT NULL COMMENT 'which one: for a gate its scope, a colon and its scope id',
  priority     TINYINT UNSIGNED NOT NULL COMMENT 'priority of the ready row it becomes',
  rank_us      BIGINT           NOT NULL COMMENT 'rank of the ready row it becomes',
  task_id      BINARY(16)       NOT NULL COMMENT 'the task that waits',
  queue_id     BINARY(16)       NOT NULL COMMENT 'queue',
  PRIMARY KEY (namespace_id, blocker_kind, blocker_id, priority, rank_us, task_id),
  UNIQUE KEY uq_pulse_blocked_task (namespace_id, task_id),
  KEY ix_pulse_blocked_queue (namespace_id, queue_id),
  CONSTRAINT ck_pulse_blocked_kind CHECK (blocker_kind IN ('gate'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='working rows that wait for something else than time; they cost the claim path nothing';

CREATE TABLE pulse_deadlines (
  deadline_at  DATETIME(6) NOT NULL COMMENT 'when the task fails, UTC',
  namespace_id BINARY(16)  NOT NULL COMMENT 'tenant',
  task_id      BINARY(16)  NOT NULL COMMENT 'an open task with a deadline',
  PRIMARY KEY (deadline_at, namespace_id, task_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='deadlines of open tasks, apart so that tasks without one pay nothing';

CREATE TABLE pulse_attempts (
  namespace_id        BINARY(16)    NOT NULL COMMENT 'tenant',
  id                  BINARY(16)    NOT NULL COMMENT 'identity, time-ordered',
  task_id             BINARY(16)    NOT NULL COMMENT 'task',
  queue_id            BINARY(16)    NOT NULL COMMENT 'queue of the task',
  generation          BIGINT        NOT NULL COMMENT 'execution generation of the task, from 1',
  instance_id         BINARY(16)    NOT NULL COMMENT 'worker incarnation it was offered to',
  session_id          BINARY(16)    NOT NULL COMMENT 'worker identity',
  epoch               BIGINT        NOT NULL COMMENT 'session epoch of the offer',
  claim_seq           BIGINT        NOT NULL COMMENT 'the claim that took it',
  token_digest        VARBINARY(32) NOT NULL COMMENT 'SHA-256 of the execution token; the token itself is never stored',
  state               VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'offered, running, succeeded, failed, cancelled, lost, expired, released',
  version             BIGINT        NOT NULL COMMENT 'version of the attempt, from 1; not raised by heartbeats',
  heartbeats          BIGINT        NOT NULL COMMENT 'raised by each heartbeat, so that a swap always changes the row',
  lease_ms            INT UNSIGNED  NOT NULL COMMENT 'while offered the offer time-out, then the lease, milliseconds',
  lease_until         DATETIME(6)   NULL     COMMENT 'end of the offer or lease, UTC; set exactly while live',
  live_instance_id    BINARY(16)    NULL     COMMENT 'instance_id, set exactly while live: the sweep''s index holds no history',
  live_queue_id       BINARY(16)    NULL     COMMENT 'queue_id, set exactly while live: counts of a queue walk no history',
  cancel_requested_at DATETIME(6)   NULL     COMMENT 'when cancellation was asked for, UTC',
  progress            MEDIUMTEXT    NULL     COMMENT 'last progress the worker told, JSON text',
  offered_at          DATETIME(6)   NOT NULL COMMENT 'claim, UTC',
  started_at          DATETIME(6)   NULL     COMMENT 'start, UTC',
  ended_at            DATETIME(6)   NULL     COMMENT 'end, UTC; set exactly when no longer live',
  end_code            VARCHAR(128)  NOT NULL COMMENT 'why it ended; empty while live and on success',
  end_message         VARCHAR(4096) NOT NULL COMMENT 'the same, for people',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_attempts_generation (namespace_id, task_id, generation),
  KEY ix_pulse_attempts_lease (lease_until),
  KEY ix_pulse_attempts_instance (namespace_id, live_instance_id, claim_seq),
  KEY ix_pulse_attempts_live (namespace_id, live_queue_id),
  CONSTRAINT fk_pulse_attempts_task FOREIGN KEY (namespace_id, task_id) REFERENCES pulse_tasks (namespace_id, id),
  CONSTRAINT ck_pulse_attempts_token CHECK (LENGTH(token_digest) = 32),
  CONSTRAINT ck_pulse_attempts_state CHECK (state IN ('offered', 'running', 'succeeded', 'failed', 'cancelled', 'lost', 'expired', 'released')),
  CONSTRAINT ck_pulse_attempts_live CHECK ((state IN ('offered', 'running')) = (lease_until IS NOT NULL)
    AND (lease_until IS NULL) = (live_instance_id IS NULL) AND (lease_until IS NULL) = (live_queue_id IS NULL) AND (lease_until IS NULL) = (ended_at IS NOT NULL)),
  CONSTRAINT ck_pulse_attempts_started CHECK ((state <> 'offered' OR started_at IS NULL) AND (state NOT IN ('running', 'succeeded', 'lost') OR started_at IS NOT NULL)),
  CONSTRAINT ck_pulse_attempts_progress CHECK (progress IS NULL OR JSON_VALID(progress)),
  CONSTRAINT ck_pulse_attempts_version CHECK (version >= 1 AND generation >= 1)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='one execution generation of a task';

CREATE TABLE pulse_attempt_receipts (
  namespace_id  BINARY(16)    NOT NULL COMMENT 'tenant',
  attempt_id    BINARY(16)    NOT NULL COMMENT 'attempt',
  digest        VARBINARY(32) NOT NULL COMMENT 'digest of the submission: a repeat equals it, a contradiction does not',
  outcome       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'succeeded, failed, cancelled: what the worker said',
  result        LONGTEXT      NULL     COMMENT 'business JSON as it was sent',
  error_code    VARCHAR(128)  NOT NULL COMMENT 'error code the worker gave; empty if none',
  error_message VARCHAR(4096) NOT NULL COMMENT 'error message the worker gave; empty if none',
  reply         MEDIUMBLOB    NOT NULL COMMENT 'bytes of the receipt, returned unchanged on a repeat',
  created_at    DATETIME(6)   NOT NULL COMMENT 'acceptance of the result, UTC',
  PRIMARY KEY (namespace_id, attempt_id),
  CONSTRAINT fk_pulse_attempt_receipts_attempt FOREIGN KEY (namespace_id, attempt_id) REFERENCES pulse_attempts (namespace_id, id),
  CONSTRAINT ck_pulse_attempt_receipts_digest CHECK (LENGTH(digest) = 32),
  CONSTRAINT ck_pulse_attempt_receipts_outcome CHECK (outcome IN ('succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_pulse_attempt_receipts_result CHECK (result IS NULL OR JSON_VALID(result))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='the one accepted result of an attempt';

CREATE TABLE pulse_attempt_evidence (
  namespace_id  BINARY(16)    NOT NULL COMMENT 'tenant',
  id            BINARY(16)    NOT NULL COMMENT 'identity, time-ordered',
  attempt_id    BINARY(16)    NOT NULL COMMENT 'attempt the submission was for',
  digest        VARBINARY(32) NOT NULL COMMENT 'digest of the submission; the same one is kept once',
  reason        VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'problem code the worker was answered with: lease_lost, result_conflict, session_superseded, state_conflict',
  outcome       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'succeeded, failed, cancelled: what the worker said',
  result        LONGTEXT      NULL     COMMENT 'business JSON as it was sent',
  error_code    VARCHAR(128)  NOT NULL COMMENT 'error code the worker gave; empty if none',
  error_message VARCHAR(4096) NOT NULL COMMENT 'error message the worker gave; empty if none',
  created_at    DATETIME(6)   NOT NULL COMMENT 'arrival, UTC',
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY uq_pulse_attempt_evidence_digest (namespace_id, attempt_id, digest),
  KEY ix_pulse_attempt_evidence_page (namespace_id, attempt_id, created_at, id),
  CONSTRAINT fk_pulse_attempt_evidence_attempt FOREIGN KEY (namespace_id, attempt_id) REFERENCES pulse_attempts (namespace_id, id),
  CONSTRAINT ck_pulse_attempt_evidence_digest CHECK (LENGTH(digest) = 32),
  CONSTRAINT ck_pulse_attempt_evidence_outcome CHECK (outcome IN ('succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_pulse_attempt_evidence_result CHECK (result IS NULL OR JSON_VALID(result))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin COMMENT='results that came too late, or in contradiction; kept and usable, never applied by themselves';

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
