-- The lease that holds a place in line, if one does. None holds a place that is to be claimed. Of
-- those that end behind a place, the first is nearly always the one: leases that are gone, and kept
-- alive by a long transaction, ended before it.
CREATE FUNCTION lease_of(p_queue int, p_level smallint, p_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM returned r WHERE r.queue = p_queue AND r.level = p_level AND r.seq = p_seq) THEN RETURN NULL; END IF;
  RETURN (SELECT l.no FROM lease l WHERE l.queue = p_queue AND l.level = p_level AND l.hi >= p_seq AND l.lo <= p_seq
          AND (l.handed IS NULL OR l.handed @> p_seq) AND (l.given_back IS NULL OR NOT p_seq = ANY (l.given_back)) ORDER BY l.hi LIMIT 1);
END $$;

-- Where a job stands; NULL if there is none of this id.
CREATE FUNCTION state_of(p_id uuid) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE v_state smallint;
BEGIN
  SELECT CASE WHEN lease_of(j.queue, j.level, j.seq) IS NULL THEN 1 ELSE 2 END INTO v_state FROM job j WHERE j.id = p_id;
  IF NOT FOUND THEN SELECT w.state INTO v_state FROM waiting w WHERE w.id = p_id; END IF;
  IF NOT FOUND THEN SELECT f.state INTO v_state FROM finished f WHERE f.id = p_id; END IF;
  RETURN v_state;
END $$;

-- Which of these ids are known outside of a table: 0 job, 1 waiting. Looked up anew after a row was
-- written: a job of the same id may have moved meanwhile.
CREATE FUNCTION known_outside(p_table int, p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT j.id FROM job j WHERE p_table <> 0 AND j.id = ANY (p_ids)
    UNION ALL SELECT w.id FROM waiting w WHERE p_table <> 1 AND w.id = ANY (p_ids)
    UNION ALL SELECT f.id FROM finished f WHERE f.id = ANY (p_ids));
END $$;
