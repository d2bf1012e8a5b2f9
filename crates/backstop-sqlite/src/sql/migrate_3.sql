-- Ordered streams: keys with what they hold, and who has them.

-- `keys`, `holding` and `records` are written once per transaction, as a queue's counts are.
CREATE TABLE backstop_stream (
  id      INTEGER PRIMARY KEY,
  name    TEXT    NOT NULL UNIQUE,
  keys    INTEGER NOT NULL DEFAULT 0,
  holding INTEGER NOT NULL DEFAULT 0,
  records INTEGER NOT NULL DEFAULT 0
);

-- What happened in a stream, a row for each thing counted: a later version that counts more needs no other shape.
-- `place` is that of `backstop_core::stream::Count`.
CREATE TABLE backstop_stream_count (
  stream INTEGER NOT NULL,
  place  INTEGER NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (stream, place)
) WITHOUT ROWID;

-- With a rowid: keys that came in together lie together, whatever their names, and a batch of them changes few pages.
-- What an advance changes comes first and keeps its width, so that the row is overwritten in place; no index knows of it.
-- `number` and `turn` are those of the lease that ended last.
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

-- With a rowid: payloads are too large to be kept in the tree of positions. `stream` is that of the key, so that the oldest
-- record of a stream is the first of an index; that index grows at its end, and costs a record little.
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

-- Only keys that somebody has: a take writes a few pages here, and no row of a key that has no records.
CREATE TABLE backstop_stream_lease (
  key    INTEGER PRIMARY KEY,
  number INTEGER NOT NULL,
  until  INTEGER NOT NULL,
  turn   INTEGER NOT NULL
);

-- Gone with the last of its keys, as a claim is.
CREATE TABLE backstop_stream_take (
  number INTEGER NOT NULL,
  stream INTEGER NOT NULL,
  worker TEXT    NOT NULL,
  live   INTEGER NOT NULL,
  PRIMARY KEY (number, stream)
) WITHOUT ROWID;
