-- The seventh shape: the tables of the sixth. No function takes another index where the server believes that a table is empty.

-- `configured`: somebody set its bounds. A queue that stays empty is retired and then forgotten, see prune.sql.
ALTER TABLE queue
  ADD COLUMN configured  boolean NOT NULL DEFAULT false,
  ADD COLUMN empty_since bigint,
  ADD COLUMN retired_at  bigint;
-- Ended jobs of all queues in the order of their end. Found by the sum and by nothing else, so that no function takes one of these
-- for an index of a queue.
CREATE INDEX finished_at ON finished ((state + 0), finished_at, no);
CREATE INDEX finished_dead_at ON finished ((fingerprint + 0), finished_at, no) WHERE state = 5;
