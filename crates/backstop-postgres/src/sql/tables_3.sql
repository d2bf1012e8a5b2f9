-- The third shape: ordered streams. A key is one row that is changed in place; what it keeps are rows of another table.

CREATE TABLE stream (
  id   int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9._-]{1,128}$')
);

-- `number` and `turn` are of the lease it is or was under last, to recognise a repetition; `until` and `worker` only while it is
-- under one. `records` is how many it keeps. `due_take` is `number` if it was handed out because it was due: a repeated take
-- of what is due finds it by that.
-- A record that comes in order changes its row twice, and no column that an index knows: the room left in a page takes the new
-- versions of all its rows, and the next change finds the old ones gone.
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
-- Found by the sum and by nothing else: the planner must not take one of these for the primary key, or the other way round, when a
-- table looks empty to it; its plans stay when the table has filled.
CREATE INDEX stream_key_due ON stream_key ((stream + 0), due) WHERE due IS NOT NULL;
CREATE INDEX stream_key_due_take ON stream_key (due_take) WHERE due_take IS NOT NULL;
CREATE INDEX stream_key_holding ON stream_key ((stream + 0), key) WHERE records > 0;

-- Only whoever has locked the row of its key adds or removes a record.
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

-- Counts of a stream, and changes of them that are not added up yet. What is counted: from 0 on as `backstop_core::stream::Count`
-- has them; -1 keys, -2 keys that keep records, -3 records.
CREATE TABLE stream_total (
  stream int      NOT NULL,
  what   smallint NOT NULL,
  number bigint   NOT NULL,
  PRIMARY KEY (stream, what)
) WITH (fillfactor = 50);

CREATE TABLE stream_tally (
  stream int      NOT NULL,
  what   smallint NOT NULL,
  number bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
