-- The first shape. A job is in one of three tables, and moves between them: `job` while it is ready or runs, `waiting` until
-- its time comes, `finished` once it has ended. A claim touches no job: it moves the queue's cursor on and writes one
-- lease for all the jobs it passed. Times are microseconds since 1970. States: 0 scheduled, 1 ready, 2 running, 3 retrying,
-- 4 done, 5 dead, 6 cancelled.

CREATE TABLE version (number int NOT NULL);

CREATE TABLE queue (
  id     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name   text COLLATE "C" NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9._-]{1,128}$'),
  paused boolean NOT NULL DEFAULT false
);

-- Draws places in line and numbers of arrival; both are only ever compared. Not cached: a place drawn later is behind.
CREATE SEQUENCE line AS bigint CACHE 1;

-- `settled_lease` and `settled_tag` are the last settlement that was accepted, to recognise its repetition. A row that was
-- never settled has neither, and takes no room for them.
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
  PRIMARY KEY (queue, state, finished_at, no)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000);
CREATE UNIQUE INDEX finished_id ON finished (id);
CREATE INDEX finished_no ON finished (no);

-- How far the claims of a queue have come in each level. A claim adds a row and removes the one before it, instead of changing
-- one in place: the newest is at the end of the index, and old ones that a long transaction keeps alive are never read.
CREATE TABLE reached (
  queue int      NOT NULL,
  step  bigint   NOT NULL,
  at    bigint[] NOT NULL,
  PRIMARY KEY (queue, step)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A lease over the jobs of one queue and level with places from `lo` to `hi`. `handed` says which of these places were given
-- out; NULL means every one. `given_back` are those that left it and are still in line; the others that left it have left
-- `job` too. `begun` are the places whose runs are known to have begun.
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
  vanished_number bigint
) WITH (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lease_number ON lease (number);
CREATE INDEX lease_line ON lease (queue, level);

-- Places behind the cursor that are to be claimed: jobs that were given back, and jobs whose transaction took so long to commit
-- that the cursor had passed them.
CREATE TABLE returned (
  queue int      NOT NULL,
  level smallint NOT NULL,
  seq   bigint   NOT NULL,
  PRIMARY KEY (queue, level, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- How far behind the cursor late jobs were looked for, and which transactions were under way then. See sweep.sql.
CREATE TABLE swept (
  queue    int      PRIMARY KEY,
  at       bigint[] NOT NULL,
  swept_at bigint   NOT NULL,
  pending  text[]   NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- `forget_at` is set once the job is gone, so that a pruning reads nothing but keys that it removes.
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

CREATE TABLE worker (
  name    text COLLATE "C" PRIMARY KEY,
  queues  text   NOT NULL,
  seen_at bigint NOT NULL
) WITH (fillfactor = 50);

-- Counts, and changes of them that are not added up yet: a count that every transaction changed in place would make them wait
-- for each other's commits.
CREATE TABLE total (
  queue           int    PRIMARY KEY,
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
  total_cancelled bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE tally (
  queue           int NOT NULL,
  scheduled       int NOT NULL DEFAULT 0,
  ready           int NOT NULL DEFAULT 0,
  running         int NOT NULL DEFAULT 0,
  retrying        int NOT NULL DEFAULT 0,
  done            int NOT NULL DEFAULT 0,
  dead            int NOT NULL DEFAULT 0,
  cancelled       int NOT NULL DEFAULT 0,
  total_enqueued  int NOT NULL DEFAULT 0,
  total_done      int NOT NULL DEFAULT 0,
  total_dead      int NOT NULL DEFAULT 0,
  total_cancelled int NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
