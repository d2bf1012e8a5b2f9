-- Jobs by id, in the order of the ids; ids without a job are left out. A job whose queue is missing
-- has no queue name.
CREATE FUNCTION jobs_by_id(p_ids uuid[])
RETURNS TABLE (id uuid, queue text, kind text, state smallint, payload bytea, level smallint, attempts int, lost int, requeues int,
  run_at bigint, inserted_at bigint, finished_at bigint, unique_key text, retry bytea, history bytea, reason text, worker text, until bigint,
  since bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_id uuid;
  v_lease bigint;
BEGIN
  FOREACH v_id IN ARRAY p_ids LOOP
    v_lease := (SELECT lease_of(j.queue, j.level, j.seq) FROM job j WHERE j.id = v_id);
    RETURN QUERY SELECT j.id, (SELECT q.name FROM queue q WHERE q.id = j.queue),
        j.kind, CASE WHEN l.no IS NULL THEN 1 ELSE 2 END::smallint, j.payload, j.level, j.attempts, j.lost, j.requeues,
        j.run_at, j.inserted_at, NULL::bigint, j.unique_key, j.retry, j.history, NULL::text, l.worker, l.until, l.since
      FROM job j LEFT JOIN lease l ON l.no = v_lease WHERE j.id = v_id;
    CONTINUE WHEN FOUND;
    RETURN QUERY SELECT w.id, (SELECT q.name FROM queue q WHERE q.id = w.queue),
        w.kind, w.state, w.payload, w.level, w.attempts, w.lost, w.requeues, w.run_at, w.inserted_at,
        NULL::bigint, w.unique_key, w.retry, w.history, NULL::text, NULL::text, NULL::bigint, NULL::bigint
      FROM waiting w WHERE w.id = v_id;
    CONTINUE WHEN FOUND;
    RETURN QUERY SELECT f.id, (SELECT q.name FROM queue q WHERE q.id = f.queue),
        f.kind, f.state, f.payload, f.level, f.attempts, f.lost, f.requeues, f.run_at, f.inserted_at,
        f.finished_at, f.unique_key, f.retry, f.history, f.reason, NULL::text, NULL::bigint, NULL::bigint
      FROM finished f WHERE f.id = v_id;
  END LOOP;
END $$;

-- The same, up to and with the job whose payload and history bring the sum to `p_bytes` bytes.
CREATE FUNCTION jobs_within(p_ids uuid[], p_bytes bigint)
RETURNS TABLE (id uuid, queue text, kind text, state smallint, payload bytea, level smallint, attempts int, lost int, requeues int,
  run_at bigint, inserted_at bigint, finished_at bigint, unique_key text, retry bytea, history bytea, reason text, worker text, until bigint,
  since bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_left bigint := p_bytes;
BEGIN
  FOR i IN 1 .. cardinality(p_ids) LOOP
    v_left := v_left - coalesce(
      (SELECT octet_length(j.payload) + coalesce(octet_length(j.history), 0) FROM job j WHERE j.id = p_ids[i]),
      (SELECT octet_length(w.payload) + coalesce(octet_length(w.history), 0) FROM waiting w WHERE w.id = p_ids[i]),
      (SELECT octet_length(f.payload) + coalesce(octet_length(f.history), 0) FROM finished f WHERE f.id = p_ids[i]), 0);
    IF v_left <= 0 OR i = cardinality(p_ids) THEN
      RETURN QUERY SELECT * FROM jobs_by_id(p_ids[1 : i]);
      RETURN;
    END IF;
  END LOOP;
END $$;

-- Scheduled and retrying jobs by their time, behind a cursor.
-- Parameters: the cursor as time and number; how many rows to read.
CREATE FUNCTION list_waiting(p_at bigint, p_no bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, at bigint, no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT w.id, w.queue, w.kind, w.state, w.run_at, w.no FROM waiting w
    WHERE (w.run_at, w.no) > (p_at, p_no) ORDER BY w.run_at, w.no LIMIT p_looks;
END $$;

-- Ready and running jobs of a queue in claim order, behind a cursor.
-- Parameters: queue; the cursor as level and seq; how many rows to read.
CREATE FUNCTION list_ready(p_queue int, p_level smallint, p_seq bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, level bigint, seq bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT j.id, j.queue, j.kind, CASE WHEN lease_of(j.queue, j.level, j.seq) IS NULL THEN 1 ELSE 2 END::smallint,
      j.level::bigint, j.seq FROM job j
    WHERE j.queue = p_queue AND (j.level, j.seq) > (p_level, p_seq) ORDER BY j.level, j.seq LIMIT p_looks;
END $$;

-- Ended jobs of one queue, or of all queues if it is NULL, in one state behind a cursor, newest or
-- oldest first; with a fingerprint, only dead jobs that have it.
-- Parameters: queue, state, fingerprint, whether oldest first; the cursor as time and number; how
--   many rows to read.
CREATE FUNCTION list_finished(p_queue int, p_state smallint, p_fingerprint bigint, p_oldest boolean, p_at bigint, p_no bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, at bigint, no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_queue IS NULL THEN
    RETURN QUERY SELECT * FROM list_finished_all(p_state, p_fingerprint, p_oldest, p_at, p_no, p_looks);
  ELSIF p_fingerprint IS NULL AND p_oldest THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.queue = p_queue AND f.state = p_state AND (f.finished_at, f.no) > (p_at, p_no)
      ORDER BY f.finished_at, f.no LIMIT p_looks;
  ELSIF p_fingerprint IS NULL THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.queue = p_queue AND f.state = p_state AND (f.finished_at, f.no) < (p_at, p_no)
      ORDER BY f.finished_at DESC, f.no DESC LIMIT p_looks;
  ELSIF p_oldest THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.queue = p_queue AND f.state = 5 AND f.fingerprint = p_fingerprint AND (f.finished_at, f.no) > (p_at, p_no)
      ORDER BY f.finished_at, f.no LIMIT p_looks;
  ELSE
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.queue = p_queue AND f.state = 5 AND f.fingerprint = p_fingerprint AND (f.finished_at, f.no) < (p_at, p_no)
      ORDER BY f.finished_at DESC, f.no DESC LIMIT p_looks;
  END IF;
END $$;

-- The same for all queues.
CREATE FUNCTION list_finished_all(p_state smallint, p_fingerprint bigint, p_oldest boolean, p_at bigint, p_no bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, at bigint, no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_fingerprint IS NULL AND p_oldest THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.state + 0 = p_state AND (f.finished_at, f.no) > (p_at, p_no)
      ORDER BY f.finished_at, f.no LIMIT p_looks;
  ELSIF p_fingerprint IS NULL THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.state + 0 = p_state AND (f.finished_at, f.no) < (p_at, p_no)
      ORDER BY f.finished_at DESC, f.no DESC LIMIT p_looks;
  ELSIF p_oldest THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.fingerprint + 0 = p_fingerprint AND f.state = 5 AND (f.finished_at, f.no) > (p_at, p_no)
      ORDER BY f.finished_at, f.no LIMIT p_looks;
  ELSE
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, f.finished_at, f.no FROM finished f
      WHERE f.fingerprint + 0 = p_fingerprint AND f.state = 5 AND (f.finished_at, f.no) < (p_at, p_no)
      ORDER BY f.finished_at DESC, f.no DESC LIMIT p_looks;
  END IF;
END $$;

-- Jobs by arrival, newest first, before a number; optionally only running jobs, or only dead jobs
-- with a fingerprint.
-- Parameters: number, whether running jobs only, fingerprint, how many rows to read.
CREATE FUNCTION list_arrivals(p_no bigint, p_running boolean, p_fingerprint bigint, p_looks int)
RETURNS TABLE (id uuid, queue int, kind text, state smallint, at bigint, no bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_fingerprint IS NOT NULL THEN
    RETURN QUERY SELECT f.id, f.queue, f.kind, f.state, 0::bigint, f.no FROM finished f
      WHERE f.fingerprint = p_fingerprint AND f.state = 5 AND f.no < p_no ORDER BY f.no DESC LIMIT p_looks;
    RETURN;
  END IF;
  IF p_running THEN
    RETURN QUERY SELECT j.id, j.queue, j.kind, 2::smallint, 0::bigint, j.no
      FROM lease l
      -- Go from the leases to their jobs, and never from all jobs by number to the leases.
      CROSS JOIN LATERAL (SELECT * FROM job j WHERE j.queue = l.queue AND j.level = l.level AND j.seq BETWEEN l.lo AND l.hi OFFSET 0) j
      WHERE (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back)) AND j.no < p_no
      ORDER BY j.no DESC LIMIT p_looks;
    RETURN;
  END IF;
  RETURN QUERY SELECT x.id, x.queue, x.kind, x.state, 0::bigint, x.no FROM (
      (SELECT j.id, j.queue, j.kind, 1::smallint AS state, j.no FROM job j WHERE j.no < p_no ORDER BY j.no DESC LIMIT p_looks)
      UNION ALL (SELECT w.id, w.queue, w.kind, w.state, w.no FROM waiting w WHERE w.no < p_no ORDER BY w.no DESC LIMIT p_looks)
      UNION ALL (SELECT f.id, f.queue, f.kind, f.state, f.no FROM finished f WHERE f.no < p_no ORDER BY f.no DESC LIMIT p_looks)) x
    ORDER BY x.no DESC LIMIT p_looks;
END $$;
