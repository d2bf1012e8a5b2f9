-- The next dead jobs of a queue behind a place, oldest first, and whether they have their fingerprint. Version 1 kept none.
-- queue, place: time and number; how many rows to look at
CREATE FUNCTION unprinted(p_queue int, p_at bigint, p_no bigint, p_looks int)
RETURNS TABLE (id uuid, reason text, history bytea, at bigint, no bigint, printed boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT f.id, f.reason, f.history, f.finished_at, f.no, f.fingerprint IS NOT NULL FROM finished f
    WHERE f.queue = p_queue AND f.state = 5 AND (f.finished_at, f.no) > (p_at, p_no)
    ORDER BY f.finished_at, f.no LIMIT p_looks;
END $$;

-- Gives dead jobs their fingerprints. One that came back to life, or died anew, meanwhile is left alone.
-- per job: id, fingerprint
CREATE FUNCTION print_dead(p_ids uuid[], p_fingerprints bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. cardinality(p_ids) LOOP
    UPDATE finished f SET fingerprint = p_fingerprints[i] WHERE f.id = p_ids[i] AND f.state = 5 AND f.fingerprint IS NULL;
  END LOOP;
END $$;
