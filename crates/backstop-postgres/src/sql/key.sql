-- The rule of `backstop_core::unique::UniqueHold::is_held`. A NULL state means that the job is
-- removed: it left its key behind because its last state held it.
CREATE FUNCTION is_held(p_states smallint, p_until bigint, p_state smallint, p_now bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT (p_until IS NULL OR p_now < p_until) AND (p_state IS NULL OR (p_states >> p_state) & 1 = 1)
$$;

-- The job that holds a unique key; NULL if none does.
CREATE FUNCTION key_holder(p_queue int, p_key text, p_now bigint) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT k.id FROM key k WHERE k.queue = p_queue AND k.key = p_key AND is_held(k.states, k.until, state_of(k.id), p_now));
END $$;

-- For each of these unique keys of a queue, by index from 1 on: the job that holds it, or that had
-- it last and is still live. Keys without such a job are left out. A NULL state means that the job
-- is removed.
CREATE FUNCTION holders(p_queue text, p_keys text[], p_now bigint) RETURNS TABLE (at int, id uuid, state smallint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT u.o::int, k.id, k.state FROM unnest(p_keys) WITH ORDINALITY u(key, o)
    CROSS JOIN LATERAL (SELECT k.id, k.states, k.until, state_of(k.id) AS state FROM key k
      WHERE k.queue = (SELECT q.id FROM queue q WHERE q.name = p_queue) AND k.key = u.key OFFSET 0) k
    WHERE is_held(k.states, k.until, k.state, p_now) OR k.state < 4;
END $$;

-- Gives a unique key to a job. If another job holds the key, returns that job instead. `p_own`: the
-- job may already have the key.
CREATE FUNCTION take_key(p_queue int, p_key text, p_id uuid, p_states smallint, p_until bigint, p_own boolean, p_now bigint)
RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE v_key key%ROWTYPE;
BEGIN
  -- Look without a lock first: a refused caller that locked the row would block the settlement of
  -- the holder until its own transaction ends.
  SELECT * INTO v_key FROM key k WHERE k.queue = p_queue AND k.key = p_key;
  IF FOUND AND NOT (p_own AND v_key.id = p_id) AND is_held(v_key.states, v_key.until, state_of(v_key.id), p_now) THEN
    RETURN v_key.id;
  END IF;
  LOOP
    INSERT INTO key (queue, key, id, states, until) VALUES (p_queue, p_key, p_id, p_states, p_until)
    ON CONFLICT (queue, key) DO NOTHING;
    IF FOUND THEN RETURN NULL; END IF;
    SELECT * INTO v_key FROM key k WHERE k.queue = p_queue AND k.key = p_key FOR UPDATE;
    -- The holder freed the key between the two statements: insert again.
    CONTINUE WHEN NOT FOUND;
    -- A separate statement after the lock, so that its snapshot sees the holder that this call
    -- waited for.
    IF NOT (p_own AND v_key.id = p_id) AND is_held(v_key.states, v_key.until, state_of(v_key.id), p_now) THEN
      RETURN v_key.id;
    END IF;
    UPDATE key SET id = p_id, states = p_states, until = p_until, forget_at = NULL WHERE queue = p_queue AND key = p_key;
    RETURN NULL;
  END LOOP;
END $$;

-- Frees the unique key of a job that is removed in its last state. The key stays behind if that
-- state holds it.
CREATE FUNCTION leave_key(p_queue int, p_key text, p_id uuid, p_states smallint, p_until bigint, p_state smallint, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_key IS NULL THEN RETURN; END IF;
  IF is_held(p_states, p_until, p_state, p_now) THEN
    UPDATE key SET forget_at = until WHERE queue = p_queue AND key = p_key AND id = p_id;
  ELSE
    DELETE FROM key WHERE queue = p_queue AND key = p_key AND id = p_id;
  END IF;
END $$;
