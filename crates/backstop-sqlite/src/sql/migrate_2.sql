-- How much a queue holds, what dead jobs died of, and small shared values.

-- NULL where nobody has said otherwise: as `backstop_core::Bounds` usually is. Numbers are the bits of a u64.
ALTER TABLE backstop_queue ADD COLUMN max_size INTEGER;
ALTER TABLE backstop_queue ADD COLUMN overflow TEXT;
ALTER TABLE backstop_queue ADD COLUMN dead_max INTEGER;

-- Beside `backstop_finished`, for dead jobs only: no other job pays for it. A dead job's place is found here by its number,
-- whatever has become of its own row.
CREATE TABLE backstop_dead (
  no          INTEGER PRIMARY KEY,
  queue       INTEGER NOT NULL,
  fingerprint INTEGER NOT NULL,
  finished_at INTEGER NOT NULL
);
CREATE INDEX backstop_dead_group ON backstop_dead (queue, fingerprint, finished_at);

-- With a rowid: values are too large to be kept in the tree of names.
CREATE TABLE backstop_cell (
  name    TEXT    NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  value   BLOB    NOT NULL
);
