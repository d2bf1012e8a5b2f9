-- The tables of a store, in version 1. The functions that work on them are in the other files.
--
-- A job is in one of three tables and moves between them: `job` while it is ready or running,
-- `waiting` until its time comes, `finished` once it has ended. A claim changes no row of a job: it
-- advances the cursor of the queue, and writes one lease for all jobs that the cursor passed.
--
-- Times are microseconds since 1970. Sizes and bounds are the bits of a u64: a number below zero is
-- larger than any real size. States: 0 scheduled, 1 ready, 2 running, 3 retrying, 4 done, 5 dead, 6
-- cancelled. Most tables lose rows as fast as they gain them, so autovacuum starts after a fixed
-- number of dead rows instead of a share of the table.

-- The version of the schema: one row. Pre-releases gave the column another name.
CREATE TABLE version (schema_version int NOT NULL);

-- The digest of every table, index and function as the migration made it. `doctor` compares them
-- with the present ones.
CREATE TABLE shape (name text PRIMARY KEY, digest text NOT NULL);

-- The queues and their bounds. The defaults are those of `backstop_core::QueueBounds`. `configured`
-- says that a user set the bounds. A queue that stays empty is retired and then forgotten: see
-- prune.sql.
CREATE TABLE queue (
  id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name        text COLLATE "C" NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9._-]{1,128}$'),
  paused      boolean NOT NULL DEFAULT false,
  max_size    bigint,
  overflow    text    NOT NULL DEFAULT 'reject',
  dead_max    bigint  NOT NULL DEFAULT 10000,
  configured  boolean NOT NULL DEFAULT false,
  empty_since bigint,
  retired_at  bigint
);

-- Numbers both the places in the ready line (`seq`) and the arrivals (`no`); both are only ever
-- compared. The sequence has no cache: a place drawn later must be behind all others.
CREATE SEQUENCE line AS bigint CACHE 1;

-- The ready and running jobs. `settled_lease` and `settled_tag` identify the last accepted
-- settlement, so that a repetition of it is recognised. They are NULL and take no room until the
-- job is settled once.
CREATE TABLE job (
  seq           bigint   NOT NULL,
  no            bigint   NOT NULL,
  run_at        bigint   NOT NULL,
  inserted_at   bigint   NOT NULL,
  queue         int      NOT NULL,
  attempts      int      NOT NULL,
  lost          int      NOT NULL,
  requeues      int      NOT NULL,
  level         smallint NOT NULL,
  id            uuid     NOT NULL,
  kind          text     NOT NULL,
  payload       bytea    NOT NULL,
  unique_key    text,
  unique_states smallint,
  unique_until  bigint,
  retry         bytea,
  history       bytea,
  settled_lease bigint,
  settled_tag   smallint,
  PRIMARY KEY (queue, level, seq)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000);
CREATE UNIQUE INDEX job_id ON job (id);
CREATE INDEX job_no ON job (no);

-- The scheduled and retrying jobs, by the time at which they become ready.
CREATE TABLE waiting (
  run_at        bigint   NOT NULL,
  no            bigint   NOT NULL,
  inserted_at   bigint   NOT NULL,
  queue         int      NOT NULL,
  attempts      int      NOT NULL,
  lost          int      NOT NULL,
  requeues      int      NOT NULL,
  level         smallint NOT NULL,
  state         smallint NOT NULL CHECK (state IN (0, 3)),
  id            uuid     NOT NULL,
  kind          text     NOT NULL,
  payload       bytea    NOT NULL,
  unique_key    text,
  unique_states smallint,
  unique_until  bigint,
  retry         bytea,
  history       bytea,
  settled_lease bigint,
  settled_tag   smallint,
  PRIMARY KEY (run_at, no)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE UNIQUE INDEX waiting_id ON waiting (id);
CREATE INDEX waiting_no ON waiting (no);

-- The jobs that have ended. Only dead jobs have a `fingerprint`, and only they are in the two
-- partial indexes below: jobs that succeed do not pay for them.
CREATE TABLE finished (
  finished_at   bigint   NOT NULL,
  no            bigint   NOT NULL,
  run_at        bigint   NOT NULL,
  inserted_at   bigint   NOT NULL,
  queue         int      NOT NULL,
  attempts      int      NOT NULL,
  lost          int      NOT NULL,
  requeues      int      NOT NULL,
  level         smallint NOT NULL,
  state         smallint NOT NULL,
  id            uuid     NOT NULL,
  kind          text     NOT NULL,
  payload       bytea    NOT NULL,
  reason        text,
  unique_key    text,
  unique_states smallint,
  unique_until  bigint,
  retry         bytea,
  history       bytea,
  settled_lease bigint,
  settled_tag   smallint,
  fingerprint   bigint,
  PRIMARY KEY (queue, state, finished_at, no)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000);
CREATE UNIQUE INDEX finished_id ON finished (id);
CREATE INDEX finished_no ON finished (no);
CREATE INDEX finished_dead ON finished (queue, fingerprint, finished_at, no) WHERE state = 5;
CREATE INDEX finished_group ON finished (fingerprint, no) WHERE state = 5;
-- The ended jobs of all queues by the time of their end. Only a query with the sum `state + 0` can
-- use such an index, so the planner never takes it for the index of one queue.
CREATE INDEX finished_at ON finished ((state + 0), finished_at, no);
CREATE INDEX finished_dead_at ON finished ((fingerprint + 0), finished_at, no) WHERE state = 5;

-- The cursor of each queue: `at` is how far its claims have come, level by level. A claim adds a
-- row and deletes the one before it instead of updating it: the newest row is at the end of the
-- index, and no query reads the dead tuples that a long transaction keeps. `swept`, `swept_at` and
-- `pending` say where the cursor was at the last sweep for late jobs, when that was, and which
-- transactions were open then; see sweep.sql. `low` says for each level the lowest place that
-- `returned` may have. Only the holder of the queue's row lock writes here.
CREATE TABLE reached (
  queue    int      NOT NULL,
  step     bigint   NOT NULL,
  at       bigint[] NOT NULL,
  swept    bigint[] NOT NULL DEFAULT '{0,0,0,0}',
  low      bigint[] NOT NULL DEFAULT '{0,0,0,0}',
  swept_at bigint   NOT NULL DEFAULT 0,
  pending  text[]   NOT NULL DEFAULT '{}',
  PRIMARY KEY (queue, step)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The leases: each covers jobs of one queue and level with places from `lo` to `hi`. `handed` says
-- which of these places the claim took; NULL means all of them. `given_back` lists the places that
-- left the lease and are in the ready line again; all other jobs that left the lease are no longer
-- in `job`. `begun` lists the places whose runs are known to have started. `since` is the time of
-- the claim. `lease_line` ends with `hi`, so that a search from a place on reads only leases that
-- reach it.
CREATE TABLE lease (
  no              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  number          bigint   NOT NULL,
  lo              bigint   NOT NULL,
  hi              bigint   NOT NULL,
  until           bigint   NOT NULL,
  queue           int      NOT NULL,
  level           smallint NOT NULL,
  worker          text     NOT NULL,
  handed          int8multirange,
  given_back      bigint[],
  begun           bigint[],
  vanished_worker text,
  vanished_number bigint,
  since           bigint   NOT NULL
) WITH (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lease_number ON lease (number);
CREATE INDEX lease_line ON lease (queue, level, hi);
CREATE INDEX lease_until ON lease (until);

-- Places behind the cursor that are to be claimed: jobs that were given back, and jobs whose
-- transaction committed after the cursor had passed them.
CREATE TABLE returned (
  queue int      NOT NULL,
  level smallint NOT NULL,
  seq   bigint   NOT NULL,
  PRIMARY KEY (queue, level, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The unique keys of jobs. `forget_at` is set once the job is removed, so that pruning reads only
-- keys that it removes.
CREATE TABLE key (
  queue     int      NOT NULL,
  key       text COLLATE "C" NOT NULL,
  id        uuid     NOT NULL,
  states    smallint NOT NULL,
  until     bigint,
  forget_at bigint,
  PRIMARY KEY (queue, key)
);
CREATE INDEX key_forget ON key (forget_at) WHERE forget_at IS NOT NULL;

-- The last heartbeat of each worker.
CREATE TABLE worker (
  name    text COLLATE "C" PRIMARY KEY,
  queues  text   NOT NULL,
  seen_at bigint NOT NULL
);
CREATE INDEX worker_seen ON worker (seen_at);

-- How many jobs each queue has in each state, and how many it ever had. Only the newest row of a
-- queue is valid, as in `reached`.
CREATE TABLE total (
  queue           int    NOT NULL,
  scheduled       bigint NOT NULL DEFAULT 0,
  ready           bigint NOT NULL DEFAULT 0,
  running         bigint NOT NULL DEFAULT 0,
  retrying        bigint NOT NULL DEFAULT 0,
  done            bigint NOT NULL DEFAULT 0,
  dead            bigint NOT NULL DEFAULT 0,
  cancelled       bigint NOT NULL DEFAULT 0,
  total_enqueued  bigint NOT NULL DEFAULT 0,
  total_done      bigint NOT NULL DEFAULT 0,
  total_dead      bigint NOT NULL DEFAULT 0,
  total_cancelled bigint NOT NULL DEFAULT 0,
  step            bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, step)
) WITH (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Changes of these counts that are not added up yet. If every transaction changed `total` in place,
-- each would wait for the commit of the other. A reader finds the rows of a transaction by their
-- `xid`; see tell.sql.
CREATE TABLE tally (
  queue           int  NOT NULL,
  scheduled       int  NOT NULL DEFAULT 0,
  ready           int  NOT NULL DEFAULT 0,
  running         int  NOT NULL DEFAULT 0,
  retrying        int  NOT NULL DEFAULT 0,
  done            int  NOT NULL DEFAULT 0,
  dead            int  NOT NULL DEFAULT 0,
  cancelled       int  NOT NULL DEFAULT 0,
  total_enqueued  int  NOT NULL DEFAULT 0,
  total_done      int  NOT NULL DEFAULT 0,
  total_dead      int  NOT NULL DEFAULT 0,
  total_cancelled int  NOT NULL DEFAULT 0,
  xid             xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX tally_xid ON tally (xid);

-- How far the changes of counts are added up, one series of rows for jobs and one for streams. All
-- changes of transactions below `xid` are added up, except those of the transactions in `pending`.
-- Only the newest row of each series is valid.
CREATE TABLE added (
  step    bigint  NOT NULL,
  streams boolean NOT NULL,
  xid     xid8    NOT NULL,
  pending xid8[]  NOT NULL,
  PRIMARY KEY (streams, step)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO added (step, streams, xid, pending) VALUES (0, false, '0', '{}'), (0, true, '0', '{}');

-- Cells: small shared values, changed by compare-and-set.
CREATE TABLE cell (
  name    text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  value   bytea  NOT NULL
) WITH (fillfactor = 50);

-- The streams.
CREATE TABLE stream (
  id   int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9._-]{1,128}$')
);

-- The keys of a stream, each updated in place. `number` and `turn` belong to the current or last
-- lease of the key, and let a repetition be recognised; `until` and `worker` are set only while a
-- worker has the key leased. `records` is the number of held records. `due_take` equals `number` if
-- the key was taken because it was due: a repeated take of due keys finds the key by it. A record
-- that arrives in order updates the row twice, and changes no indexed column. The fill factor
-- leaves room in each page for the new versions of all its rows (heap-only updates).
CREATE TABLE stream_key (
  watermark bigint,
  arrived   bigint NOT NULL DEFAULT 0,
  number    bigint,
  turn      bigint NOT NULL DEFAULT 0,
  until     bigint,
  due       bigint,
  due_take  bigint,
  stream    int    NOT NULL,
  records   int    NOT NULL DEFAULT 0,
  key       text COLLATE "C" NOT NULL,
  worker    text,
  standing  bytea  NOT NULL DEFAULT '',
  PRIMARY KEY (stream, key)
) WITH (fillfactor = 40, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.2, autovacuum_vacuum_threshold = 20000);
-- The sum `stream + 0` keeps these indexes apart from the primary key. Otherwise the planner may
-- mistake one for the other while the table looks empty, and keeps that plan when the table has
-- filled.
CREATE INDEX stream_key_due ON stream_key ((stream + 0), due) WHERE due IS NOT NULL;
CREATE INDEX stream_key_due_take ON stream_key (due_take) WHERE due_take IS NOT NULL;
CREATE INDEX stream_key_holding ON stream_key ((stream + 0), key) WHERE records > 0;

-- The held records of keys. Only the transaction that has locked the row of the key adds or removes
-- one.
CREATE TABLE stream_record (
  position bigint NOT NULL,
  step     bigint NOT NULL,
  at       bigint NOT NULL,
  arrival  bigint NOT NULL,
  stream   int    NOT NULL,
  key      text COLLATE "C" NOT NULL,
  tenant   text,
  payload  bytea  NOT NULL,
  PRIMARY KEY (stream, key, position)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX stream_record_at ON stream_record ((stream + 0), at);

-- The counts of a stream, one row for each. `what` is a number of
-- `backstop_core::stream::StreamCounter`, or -1 for keys, -2 for keys with held records, -3 for
-- held records.
CREATE TABLE stream_total (
  stream int      NOT NULL,
  what   smallint NOT NULL,
  number bigint   NOT NULL,
  PRIMARY KEY (stream, what)
) WITH (fillfactor = 50);

-- Changes of these counts that are not added up yet, as in `tally`.
CREATE TABLE stream_tally (
  stream int      NOT NULL,
  what   smallint NOT NULL,
  number bigint   NOT NULL,
  xid    xid8     NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX stream_tally_xid ON stream_tally (xid);
