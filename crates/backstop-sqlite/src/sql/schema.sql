-- The schema of a store, in version 1. A job is one row of `backstop_job`; small tables of keys say
-- where it stands, so that a claim changes no row of a job. Times are microseconds since 1970.
-- Numbers of jobs, bounds among them, are the bits of a u64.

-- The version of the schema: one row.
CREATE TABLE backstop_schema (version INTEGER NOT NULL);

-- The queues: whether each is paused, its bounds, how many jobs it has in each state, and how many
-- it ever had. `next_seq` is the next place in its ready line. Bounds are NULL until a user sets
-- them: then the defaults of `backstop_core::QueueBounds` apply. `empty_since` is when a pruning
-- first found the queue empty.
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
  total_cancelled INTEGER NOT NULL DEFAULT 0,
  max_size        INTEGER,
  overflow        TEXT,
  dead_max        INTEGER,
  empty_since     INTEGER
);

-- The jobs. The columns that a settlement changes come first and keep their width when a job
-- succeeds: SQLite then overwrites the row in place. `no` is the order of arrival. A number may be
-- given out again once its job and every later one are removed: only jobs that exist are ever put
-- in order. State: 0 queued (ready or running), 1 done, 2 scheduled, 3 retrying, 4 dead, 5
-- cancelled. `settled_lease` and `settled_tag` identify the last accepted settlement, so that a
-- repetition of it is recognised.
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

-- The ready jobs of each queue, in the order in which they are claimed.
CREATE TABLE backstop_ready (
  queue INTEGER NOT NULL,
  level INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  no    INTEGER NOT NULL,
  PRIMARY KEY (queue, level, seq)
) WITHOUT ROWID;

-- The running jobs, each with its lease number. `begun` says whether the worker recorded the start
-- of the run; a seizure keeps it, and records the worker that vanished.
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

-- The claims: one row for all jobs that one call leased. `live` is how many are still running.
CREATE TABLE backstop_claim (
  number INTEGER PRIMARY KEY,
  worker TEXT    NOT NULL,
  until  INTEGER NOT NULL,
  live   INTEGER NOT NULL,
  since  INTEGER NOT NULL
);
CREATE INDEX backstop_claim_until ON backstop_claim (until, number);

-- The scheduled and retrying jobs of all queues, by the time at which they become ready.
CREATE TABLE backstop_due (
  run_at INTEGER NOT NULL,
  no     INTEGER NOT NULL,
  PRIMARY KEY (run_at, no)
) WITHOUT ROWID;

-- The jobs that have ended, by queue, state and time.
CREATE TABLE backstop_finished (
  queue       INTEGER NOT NULL,
  state       INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  no          INTEGER NOT NULL,
  PRIMARY KEY (queue, state, finished_at, no)
) WITHOUT ROWID;
-- The ended jobs of all queues by the time of their end.
CREATE INDEX backstop_finished_at ON backstop_finished (state, finished_at, no);

-- The fingerprints of dead jobs. Dead jobs are in `backstop_finished` too, but jobs that succeed do
-- not pay for this index. A dead job is found here by its number, even if its own row is damaged.
CREATE TABLE backstop_dead (
  no          INTEGER PRIMARY KEY,
  queue       INTEGER NOT NULL,
  fingerprint INTEGER NOT NULL,
  finished_at INTEGER NOT NULL
);
-- Dead jobs of all queues by the time of their end.
CREATE INDEX backstop_dead_at ON backstop_dead (fingerprint, finished_at);
CREATE INDEX backstop_dead_group ON backstop_dead (queue, fingerprint, finished_at);

-- The unique keys of jobs. `forget_at` is set once the job is removed, so that pruning reads only
-- keys that it removes.
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

-- The last heartbeat of each worker.
CREATE TABLE backstop_worker (
  name    TEXT    NOT NULL PRIMARY KEY,
  queues  TEXT    NOT NULL,
  seen_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX backstop_worker_seen ON backstop_worker (seen_at);

-- Cells: small shared values, changed by compare-and-set. The table has a rowid, because values are
-- too large for the B-tree of names.
CREATE TABLE backstop_cell (
  name    TEXT    NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  value   BLOB    NOT NULL
);

-- The streams: how many keys each has, how many of them hold records, and how many records they
-- hold. A transaction writes these counts once, like those of a queue.
CREATE TABLE backstop_stream (
  id      INTEGER PRIMARY KEY,
  name    TEXT    NOT NULL UNIQUE,
  keys    INTEGER NOT NULL DEFAULT 0,
  holding INTEGER NOT NULL DEFAULT 0,
  records INTEGER NOT NULL DEFAULT 0
);

-- The counts of streams: one row for each kind of event, so that a later version can count more
-- without another table. `place` is that of `backstop_core::stream::StreamCounter`.
CREATE TABLE backstop_stream_count (
  stream INTEGER NOT NULL,
  place  INTEGER NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (stream, place)
) WITHOUT ROWID;

-- The keys of streams. The table has a rowid: keys that arrived together are stored together, and a
-- batch of them changes few pages. The columns that an advance changes come first, keep their width
-- and are in no index: SQLite overwrites the row in place. `number` and `turn` belong to the lease
-- that ended last.
CREATE TABLE backstop_stream_key (
  id        INTEGER PRIMARY KEY,
  number    INTEGER NOT NULL,
  turn      INTEGER NOT NULL,
  watermark INTEGER,
  arrived   INTEGER NOT NULL,
  records   INTEGER NOT NULL,
  due       INTEGER,
  stream    INTEGER NOT NULL,
  key       TEXT    NOT NULL,
  standing  BLOB    NOT NULL
);
CREATE UNIQUE INDEX backstop_stream_key_name ON backstop_stream_key (stream, key);
CREATE INDEX backstop_stream_key_due ON backstop_stream_key (stream, due) WHERE due IS NOT NULL;
CREATE INDEX backstop_stream_key_holding ON backstop_stream_key (stream, key) WHERE records > 0;

-- The held records of keys. The table has a rowid, because payloads are too large for the B-tree of
-- positions. `stream` repeats that of the key: this way the oldest record of a stream is the first
-- of an index, which grows at its end and costs a record little.
CREATE TABLE backstop_stream_record (
  no       INTEGER PRIMARY KEY,
  key      INTEGER NOT NULL,
  position INTEGER NOT NULL,
  arrival  INTEGER NOT NULL,
  step     INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  stream   INTEGER NOT NULL,
  tenant   TEXT,
  payload  BLOB    NOT NULL
);
CREATE UNIQUE INDEX backstop_stream_record_position ON backstop_stream_record (key, position);
CREATE INDEX backstop_stream_record_at ON backstop_stream_record (stream, at);

-- The current leases of keys. A take writes a few pages here, and no row of a key.
CREATE TABLE backstop_stream_lease (
  key    INTEGER PRIMARY KEY,
  number INTEGER NOT NULL,
  until  INTEGER NOT NULL,
  turn   INTEGER NOT NULL
);

-- The takes: one row for all keys of a stream that one call leased. The row is removed with the
-- last of these leases. `live` is how many are left.
CREATE TABLE backstop_stream_take (
  number INTEGER NOT NULL,
  stream INTEGER NOT NULL,
  worker TEXT    NOT NULL,
  live   INTEGER NOT NULL,
  PRIMARY KEY (number, stream)
) WITHOUT ROWID;
