-- The sixth shape: a lease knows since when it is held. Of those that were out before nobody wrote it down.
ALTER TABLE lease ADD COLUMN since bigint;
