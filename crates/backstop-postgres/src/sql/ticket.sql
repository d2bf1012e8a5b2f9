-- Tells everybody that places in line are about to be drawn, until this transaction ends. The key
-- of the lock says which: those behind the last one drawn so far. Whoever sweeps reads it in
-- pg_locks. Must come before the first place is drawn. One is enough for a transaction: the mark
-- goes with the lock, also when a savepoint is rolled back. Calls are assigned, not performed:
-- PL/pgSQL evaluates a plain expression without starting an executor.
CREATE FUNCTION ticket() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_mark text := current_schema() || ' ' || pg_current_xact_id();
  v_done text;
BEGIN
  IF current_setting('backstop.ticket', true) = v_mark THEN RETURN; END IF;
  v_done := set_config('backstop.ticket', v_mark, true);
  v_done := pg_advisory_xact_lock_shared((ticket_tag()::bigint << 48) | (coalesce(pg_sequence_last_value('line'), 1) - 1));
END $$;

-- The same for a transaction that takes but one, and so needs no mark: that costs more than the
-- lock.
CREATE FUNCTION single_ticket() RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_done text;
BEGIN
  v_done := pg_advisory_xact_lock_shared((ticket_tag()::bigint << 48) | (coalesce(pg_sequence_last_value('line'), 1) - 1));
END $$;

-- Everything here looks for what others did a moment ago: an old snapshot would not see it.
CREATE FUNCTION see_others() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'jobs are taken in and handed out by transactions that are READ COMMITTED; this one is %',
      upper(current_setting('transaction_isolation'))
      USING ERRCODE = 'feature_not_supported', HINT = 'Begin the transaction with ISOLATION LEVEL READ COMMITTED.';
  END IF;
END $$;

-- Sets the locks of this schema apart from those of others: the upper 16 bits of the key.
CREATE FUNCTION ticket_tag() RETURNS int LANGUAGE sql STABLE AS $$
  SELECT (hashtext('backstop.' || current_schema()) & 8191) + 8192
$$;
