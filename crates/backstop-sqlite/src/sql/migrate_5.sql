-- When a claim was made; not known of those from before.
ALTER TABLE backstop_claim ADD COLUMN since INTEGER;
-- When a pruning first found the queue empty.
ALTER TABLE backstop_queue ADD COLUMN empty_since INTEGER;
-- Ended jobs of all queues in the order of their end.
CREATE INDEX backstop_finished_at ON backstop_finished (state, finished_at, no);
CREATE INDEX backstop_dead_at ON backstop_dead (fingerprint, finished_at);
