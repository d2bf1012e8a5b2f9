-- The fifth shape: what every push, claim, settlement and promotion reads does not grow while a long transaction keeps removed rows alive.

-- Found by where they end: those behind a place are met first, and not all that there ever were.
DROP INDEX lease_line;
CREATE INDEX lease_line ON lease (queue, level, hi);
-- Those that expire now are beside each other.
CREATE INDEX lease_until ON lease (until);

-- With each step of the cursor: how far behind it late jobs were looked for, when, and which transactions were under way then; see
-- sweep.sql. `low`: in `returned` there is nothing before these places, level by level. Whoever has the queue's lock changes it.
ALTER TABLE reached
  ADD COLUMN swept    bigint[] NOT NULL DEFAULT '{0,0,0,0}',
  ADD COLUMN low      bigint[] NOT NULL DEFAULT '{0,0,0,0}',
  ADD COLUMN swept_at bigint   NOT NULL DEFAULT 0,
  ADD COLUMN pending  text[]   NOT NULL DEFAULT '{}';
UPDATE reached r SET swept = s.at, swept_at = s.swept_at, pending = s.pending FROM swept s WHERE s.queue = r.queue;
DROP TABLE swept;

-- Changes of counts are found by the transaction that made them, see tell.sql.
ALTER TABLE tally ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX tally_xid ON tally (xid);
ALTER TABLE stream_tally ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX stream_tally_xid ON stream_tally (xid);

-- Counts have steps as the cursor has: the newest row of a queue holds.
ALTER TABLE total ADD COLUMN step bigint NOT NULL DEFAULT 0, DROP CONSTRAINT total_pkey, ADD PRIMARY KEY (queue, step),
  SET (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- How far changes of counts were added up, of jobs and of streams: those of transactions before `xid` are, but for those of `pending`.
-- The newest row holds.
CREATE TABLE added (
  step    bigint  NOT NULL,
  streams boolean NOT NULL,
  xid     xid8    NOT NULL,
  pending xid8[]  NOT NULL,
  PRIMARY KEY (streams, step)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO added (step, streams, xid, pending) VALUES (0, false, '0', '{}'), (0, true, '0', '{}');
