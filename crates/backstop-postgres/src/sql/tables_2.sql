-- The second shape: how much a queue holds, what dead jobs died of, and small shared values.

-- As `backstop_core::Bounds` usually is, until somebody says otherwise. Numbers are the bits of a u64: one below zero is more than
-- there can be.
ALTER TABLE queue
  ADD COLUMN max_size bigint,
  ADD COLUMN overflow text   NOT NULL DEFAULT 'reject',
  ADD COLUMN dead_max bigint NOT NULL DEFAULT 10000;

-- Of dead jobs only: no other job pays for it, or for these indexes.
ALTER TABLE finished ADD COLUMN fingerprint bigint;
CREATE INDEX finished_dead ON finished (queue, fingerprint, finished_at, no) WHERE state = 5;
CREATE INDEX finished_group ON finished (fingerprint, no) WHERE state = 5;

CREATE TABLE cell (
  name    text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  value   bytea  NOT NULL
) WITH (fillfactor = 50);
