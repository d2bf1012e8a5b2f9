-- The first shape. Small key tables say where a job stands; the job's own row is left alone by claims.

CREATE TABLE backstop_queue (
  id              INTEGER PRIMARY KEY,
  name            TEXT    NOT NULL UNIQUE,
  paused          INTEGER NOT NULL DEFAULT 0,
  next_seq        INTEGER NOT NULL DEFAULT 0,
  scheduled       INTEGER NOT NULL DEFAULT 0,
  ready           INTEGER NOT NULL DEFAULT 0,
  running         INTEGER NOT NULL DEFAULT 0,
  retrying        INTEGER NOT NULL DEFAULT 0,
  done            INTEGER NOT NULL DEFAULT 0,
  dead            INTEGER NOT NULL DEFAULT 0,
  cancelled       INTEGER NOT NULL DEFAULT 0,
  total_enqueued  INTEGER NOT NULL DEFAULT 0,
  total_done      INTEGER NOT NULL DEFAULT 0,
  total_dead      INTEGER NOT NULL DEFAULT 0,
  total_cancelled INTEGER NOT NULL DEFAULT 0
);

-- What changes comes first, and keeps its width when a job succeeds: SQLite then overwrites the row in place.
-- `no` is the order of arrival. A number may come back once its job and every later one are gone: order is only
-- ever asked for among jobs that exist. State: 0 queued (ready or running), 1 done, 2 scheduled, 3 retrying, 4 dead, 5 cancelled.
CREATE TABLE backstop_job (
  no            INTEGER PRIMARY KEY,
  state         INTEGER NOT NULL,
  attempts      INTEGER NOT NULL,
  lost          INTEGER NOT NULL,
  requeues      INTEGER NOT NULL,
  seq           INTEGER NOT NULL,
  run_at        INTEGER NOT NULL,
  finished_at   INTEGER NOT NULL,
  settled_lease INTEGER NOT NULL,
  settled_tag   INTEGER NOT NULL,
  reason        TEXT,
  history       BLOB,
  id            BLOB    NOT NULL,
  queue         INTEGER NOT NULL,
  level         INTEGER NOT NULL,
  kind          TEXT    NOT NULL,
  unique_key    TEXT,
  unique_states INTEGER,
  unique_until  INTEGER,
  inserted_at   INTEGER NOT NULL,
  retry         BLOB,
  payload       BLOB    NOT NULL
);
CREATE UNIQUE INDEX backstop_job_id ON backstop_job (id);

CREATE TABLE backstop_ready (
  queue INTEGER NOT NULL,
  level INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  no    INTEGER NOT NULL,
  PRIMARY KEY (queue, level, seq)
) WITHOUT ROWID;

-- `begun` is a note of the worker that claimed the job; a seizer leaves it, as it leaves who vanished.
CREATE TABLE backstop_running (
  id              BLOB    NOT NULL PRIMARY KEY,
  no              INTEGER NOT NULL,
  lease           INTEGER NOT NULL,
  queue           INTEGER NOT NULL,
  level           INTEGER NOT NULL,
  seq             INTEGER NOT NULL,
  begun           INTEGER NOT NULL DEFAULT 0,
  vanished_worker TEXT,
  vanished_lease  INTEGER
) WITHOUT ROWID;

CREATE TABLE backstop_claim (
  number INTEGER PRIMARY KEY,
  worker TEXT    NOT NULL,
  until  INTEGER NOT NULL,
  live   INTEGER NOT NULL
);

CREATE TABLE backstop_due (
  run_at INTEGER NOT NULL,
  no     INTEGER NOT NULL,
  PRIMARY KEY (run_at, no)
) WITHOUT ROWID;

CREATE TABLE backstop_finished (
  queue       INTEGER NOT NULL,
  state       INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  no          INTEGER NOT NULL,
  PRIMARY KEY (queue, state, finished_at, no)
) WITHOUT ROWID;

-- `forget_at` is set once the job is gone, so that a pruning reads nothing but keys that it removes.
CREATE TABLE backstop_key (
  queue     INTEGER NOT NULL,
  key       TEXT    NOT NULL,
  id        BLOB    NOT NULL,
  states    INTEGER NOT NULL,
  until     INTEGER,
  forget_at INTEGER,
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX backstop_key_forget ON backstop_key (forget_at) WHERE forget_at IS NOT NULL;

CREATE TABLE backstop_worker (
  name    TEXT    NOT NULL PRIMARY KEY,
  queues  TEXT    NOT NULL,
  seen_at INTEGER NOT NULL
) WITHOUT ROWID;
