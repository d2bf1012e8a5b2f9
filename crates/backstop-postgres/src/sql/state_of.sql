-- The lease that covers a place in the ready line, if there is one. A place in `returned` has no
-- lease. Of the leases that end at or behind a place, the first is nearly always the right one: the
-- dead tuples of removed leases ended before it.
CREATE FUNCTION lease_of(p_queue int, p_level smallint, p_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM returned r WHERE r.queue = p_queue AND r.level = p_level AND r.seq = p_seq) THEN RETURN NULL; END IF;
  RETURN (SELECT l.no FROM lease l WHERE l.queue = p_queue AND l.level = p_level AND l.hi >= p_seq AND l.lo <= p_seq
          AND (l.handed IS NULL OR l.handed @> p_seq) AND (l.given_back IS NULL OR NOT p_seq = ANY (l.given_back)) ORDER BY l.hi LIMIT 1);
END $$;

-- The state of a job; NULL if no job has this id.
CREATE FUNCTION state_of(p_id uuid) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE v_state smallint;
BEGIN
  SELECT CASE WHEN lease_of(j.queue, j.level, j.seq) IS NULL THEN 1 ELSE 2 END INTO v_state FROM job j WHERE j.id = p_id;
  IF NOT FOUND THEN SELECT w.state INTO v_state FROM waiting w WHERE w.id = p_id; END IF;
  IF NOT FOUND THEN SELECT f.state INTO v_state FROM finished f WHERE f.id = p_id; END IF;
  RETURN v_state;
END $$;

-- Returns those of these ids that other tables have: `p_table` 0 skips `job`, 1 skips `waiting`, 2
-- skips none. Callers ask again after they wrote a row: a job of the same id may have moved
-- meanwhile.
CREATE FUNCTION known_outside(p_table int, p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT j.id FROM job j WHERE p_table <> 0 AND j.id = ANY (p_ids)
    UNION ALL SELECT w.id FROM waiting w WHERE p_table <> 1 AND w.id = ANY (p_ids)
    UNION ALL SELECT f.id FROM finished f WHERE f.id = ANY (p_ids));
END $$;
