-- The jobs of a claim, for the worker that claimed or seized them. Jobs are looked up lease by
-- lease: left a choice, and once it had statistics, the planner read all jobs of the queue for each
-- claim, at 30 ms where 100,000 of them were running. A planner that saw a table when it was empty
-- believes all its indexes to be equally short, and takes the one whose order is of some use. So no
-- other index may serve a query that runs all the time: no join with queue but a look-up of its
-- name, no order by the first column of an index (`no + 0`), no condition on a column of another
-- index (`hi + 0`).
CREATE FUNCTION held(p_number bigint)
RETURNS TABLE (queue text, level smallint, seq bigint, id uuid, kind text, payload bytea, attempts int, lost int, inserted_at bigint,
  run_at bigint, retry bytea, history bytea, vanished_worker text, vanished_number bigint, begun boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT (SELECT q.name FROM queue q WHERE q.id = l.queue), j.level, j.seq, j.id, j.kind, j.payload, j.attempts, j.lost, j.inserted_at, j.run_at, j.retry, j.history,
    l.vanished_worker, l.vanished_number, coalesce(j.seq = ANY (l.begun), false)
  FROM lease l
  CROSS JOIN LATERAL (SELECT j.* FROM job j WHERE j.queue = l.queue AND j.level = l.level AND j.seq BETWEEN l.lo AND l.hi OFFSET 0) j
  WHERE l.number = p_number AND (l.handed IS NULL OR l.handed @> j.seq) AND (l.given_back IS NULL OR NOT j.seq = ANY (l.given_back));
END $$;

-- Leases places of one queue and level: `p_seqs` in order. Places with many gaps between them are
-- spread over several leases: PostgreSQL would store a large multirange outside of its row (TOAST),
-- and fetch it again for every job that is settled.
CREATE FUNCTION lease_out(p_number bigint, p_worker text, p_until bigint, p_queue int, p_level smallint, p_seqs bigint[], p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_jobs int := cardinality(p_seqs);
  v_ranges_max constant int := 256;
  v_handed int8multirange;
  v_part bigint[];
BEGIN
  INSERT INTO tally (queue, ready, running) VALUES (p_queue, -v_jobs, v_jobs);
  IF p_seqs[v_jobs] - p_seqs[1] + 1 <> v_jobs THEN
    v_handed := (SELECT range_agg(int8range(s, s, '[]')) FROM unnest(p_seqs) s);
  END IF;
  IF v_handed IS NULL OR v_jobs <= v_ranges_max OR (SELECT count(*) FROM unnest(v_handed)) <= v_ranges_max THEN
    INSERT INTO lease (number, worker, since, until, queue, level, lo, hi, handed)
    VALUES (p_number, p_worker, p_now, p_until, p_queue, p_level, p_seqs[1], p_seqs[v_jobs], v_handed);
    RETURN;
  END IF;
  FOR i IN 0 .. (v_jobs - 1) / v_ranges_max LOOP
    v_part := p_seqs[i * v_ranges_max + 1 : (i + 1) * v_ranges_max];
    INSERT INTO lease (number, worker, since, until, queue, level, lo, hi, handed)
    VALUES (p_number, p_worker, p_now, p_until, p_queue, p_level, v_part[1], v_part[cardinality(v_part)],
      (SELECT range_agg(int8range(s, s, '[]')) FROM unnest(v_part) s));
  END LOOP;
END $$;

-- How many of these places of a queue and level, in order, a claim takes until their payloads reach
-- `p_bytes`, and how many bytes are left then. In most cases one sum over the range shows that the
-- claim takes all of them.
CREATE FUNCTION fitting(p_queue int, p_level smallint, p_seqs bigint[], p_bytes bigint, OUT jobs int, OUT bytes_left bigint)
LANGUAGE plpgsql AS $$
BEGIN
  jobs := cardinality(p_seqs);
  bytes_left := p_bytes - (SELECT coalesce(sum(octet_length(j.payload)), 0) FROM job j
    WHERE j.queue = p_queue AND j.level = p_level AND j.seq BETWEEN p_seqs[1] AND p_seqs[jobs]);
  IF bytes_left > 0 THEN RETURN; END IF;
  bytes_left := p_bytes;
  FOR i IN 1 .. jobs LOOP
    bytes_left := bytes_left - coalesce((SELECT octet_length(j.payload) FROM job j
      WHERE j.queue = p_queue AND j.level = p_level AND j.seq = p_seqs[i]), 0);
    IF bytes_left <= 0 THEN
      jobs := i;
      RETURN;
    END IF;
  END LOOP;
END $$;

-- Claims ready jobs. A repeated claim returns those jobs of the first call that are still running.
-- Claims of one queue run one after the other: they are short, and none of them waits for a disk. A
-- claim takes no further job once the payloads have `p_bytes` bytes. It reads the places first and
-- the jobs after, by their range: `seq = ANY (…)` alone made the planner walk the whole queue.
CREATE FUNCTION claim(p_number bigint, p_worker text, p_until bigint, p_queues text[], p_max int[], p_now bigint,
  p_bytes bigint DEFAULT 4194304)
RETURNS TABLE (queue text, level smallint, seq bigint, id uuid, kind text, payload bytea, attempts int, lost int, inserted_at bigint,
  run_at bigint, retry bytea, history bytea, vanished_worker text, vanished_number bigint, begun boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_locked int[];
  v_queue int;
  v_seqs bigint[];
  v_reached reached%ROWTYPE;
  v_before reached%ROWTYPE;
  v_swept record;
  v_left int;
  v_bytes bigint := p_bytes;
  v_fitting record;
  v_round int;
BEGIN
  -- Use only these queues below: a queue that is made after this statement is not locked.
  v_locked := ARRAY(SELECT q.id FROM queue q WHERE q.name = ANY (p_queues) ORDER BY q.id FOR UPDATE);
  IF EXISTS (SELECT 1 FROM lease l WHERE l.number = p_number) THEN
    RETURN QUERY SELECT * FROM held(p_number);
    -- If no job is left under the number, the call claims as if the number was new.
    IF FOUND THEN RETURN; END IF;
  END IF;
  FOR v_want IN 1 .. cardinality(p_queues) LOOP
    SELECT q.id INTO v_queue FROM queue q WHERE q.name = p_queues[v_want] AND q.id = ANY (v_locked) AND NOT q.paused;
    v_left := p_max[v_want];
    CONTINUE WHEN NOT FOUND OR v_left <= 0 OR v_bytes <= 0;
    SELECT * INTO v_reached FROM reached c WHERE c.queue = v_queue ORDER BY c.step DESC LIMIT 1;
    v_before := v_reached;
    -- A queue that always has more than is wanted is swept once a second; one that runs dry, at
    -- once.
    IF (v_reached.at <> v_reached.swept OR v_reached.pending <> '{}') AND NOT p_now - v_reached.swept_at BETWEEN 0 AND 1000000 THEN
      SELECT * INTO v_swept FROM sweep(v_reached, p_now);
      v_reached := v_swept.p_reached;
    END IF;
    v_round := 1;
    LOOP
      FOR v_level IN 0 .. 3 LOOP
        v_seqs := ARRAY(SELECT r.seq FROM returned r WHERE r.queue = v_queue AND r.level = v_level
          AND r.seq >= v_reached.low[v_level + 1] ORDER BY r.seq LIMIT v_left);
        IF cardinality(v_seqs) > 0 THEN
          SELECT * INTO v_fitting FROM fitting(v_queue, v_level::smallint, v_seqs, v_bytes);
          v_seqs := v_seqs[1 : v_fitting.jobs];
          v_bytes := v_fitting.bytes_left;
          -- Delete exactly these places: another job may have been given back since they were read.
          DELETE FROM returned r WHERE r.queue = v_queue AND r.level = v_level
            AND r.seq BETWEEN v_seqs[1] AND v_seqs[cardinality(v_seqs)] AND r.seq = ANY (v_seqs);
          PERFORM lease_out(p_number, p_worker, p_until, v_queue, v_level::smallint, v_seqs, p_now);
          RETURN QUERY SELECT p_queues[v_want], j.level, j.seq, j.id, j.kind, j.payload, j.attempts, j.lost, j.inserted_at, j.run_at,
              j.retry, j.history, NULL::text, NULL::bigint, false
            FROM job j WHERE j.queue = v_queue AND j.level = v_level AND j.seq BETWEEN v_seqs[1] AND v_seqs[cardinality(v_seqs)]
              AND j.seq = ANY (v_seqs) ORDER BY j.seq;
          v_reached.low[v_level + 1] := v_seqs[cardinality(v_seqs)] + 1;
          v_left := CASE WHEN v_bytes > 0 THEN v_left - cardinality(v_seqs) ELSE 0 END;
          EXIT WHEN v_left = 0;
        END IF;
        v_seqs := ARRAY(SELECT j.seq FROM job j WHERE j.queue = v_queue AND j.level = v_level AND j.seq > v_reached.at[v_level + 1]
          ORDER BY j.seq LIMIT v_left);
        IF cardinality(v_seqs) > 0 THEN
          SELECT * INTO v_fitting FROM fitting(v_queue, v_level::smallint, v_seqs, v_bytes);
          v_seqs := v_seqs[1 : v_fitting.jobs];
          v_bytes := v_fitting.bytes_left;
          PERFORM lease_out(p_number, p_worker, p_until, v_queue, v_level::smallint, v_seqs, p_now);
          -- A range without a gap belongs to this claim as a whole. A range with gaps may contain a
          -- late job that this statement already sees.
          RETURN QUERY SELECT p_queues[v_want], j.level, j.seq, j.id, j.kind, j.payload, j.attempts, j.lost, j.inserted_at, j.run_at,
              j.retry, j.history, NULL::text, NULL::bigint, false
            FROM job j WHERE j.queue = v_queue AND j.level = v_level AND j.seq BETWEEN v_seqs[1] AND v_seqs[cardinality(v_seqs)]
              AND (v_seqs[cardinality(v_seqs)] - v_seqs[1] + 1 = cardinality(v_seqs) OR j.seq = ANY (v_seqs)) ORDER BY j.seq;
          v_reached.at[v_level + 1] := v_seqs[cardinality(v_seqs)];
          v_left := CASE WHEN v_bytes > 0 THEN v_left - cardinality(v_seqs) ELSE 0 END;
          EXIT WHEN v_left = 0;
        END IF;
      END LOOP;
      EXIT WHEN v_left = 0 OR v_round = 2 OR (v_reached.at = v_reached.swept AND v_reached.pending = '{}');
      SELECT * INTO v_swept FROM sweep(v_reached, p_now);
      v_reached := v_swept.p_reached;
      EXIT WHEN v_swept.late = 0;
      v_round := 2;
    END LOOP;
    IF v_reached <> v_before THEN PERFORM reach(v_reached); END IF;
  END LOOP;
END $$;
