-- When a claim was made; not known of those from before.
ALTER TABLE backstop_claim ADD COLUMN since INTEGER;
