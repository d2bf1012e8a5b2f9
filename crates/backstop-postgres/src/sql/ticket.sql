-- Announces until the end of this transaction that it is about to draw places in the ready line.
-- The key of the shared advisory lock says which ones: those behind the last one drawn so far. A
-- sweep reads it in pg_locks. This must come before the first place is drawn. Once per transaction
-- is enough: the mark goes with the lock, also when a savepoint is rolled back. Calls are assigned,
-- not performed: PL/pgSQL evaluates a plain expression without starting an executor.
CREATE FUNCTION ticket() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_mark text := current_schema() || ' ' || pg_current_xact_id();
  v_done text;
BEGIN
  IF current_setting('backstop.ticket', true) = v_mark THEN RETURN; END IF;
  v_done := set_config('backstop.ticket', v_mark, true);
  v_done := pg_advisory_xact_lock_shared((ticket_tag()::bigint << 48) | (coalesce(pg_sequence_last_value('line'), 1) - 1));
END $$;

-- The same for a transaction that calls it only once, and so needs no mark: setting the mark costs
-- more than the lock.
CREATE FUNCTION single_ticket() RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_done text;
BEGIN
  v_done := pg_advisory_xact_lock_shared((ticket_tag()::bigint << 48) | (coalesce(pg_sequence_last_value('line'), 1) - 1));
END $$;

-- Refuses every isolation level but READ COMMITTED: the functions look for what other transactions
-- committed a moment ago, and an older snapshot would not see it.
CREATE FUNCTION see_others() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'jobs are taken in and handed out by transactions that are READ COMMITTED; this one is %',
      upper(current_setting('transaction_isolation'))
      USING ERRCODE = 'feature_not_supported', HINT = 'Begin the transaction with ISOLATION LEVEL READ COMMITTED.';
  END IF;
END $$;

-- The upper 16 bits of the lock keys, which keep the advisory locks of this schema apart from
-- others.
CREATE FUNCTION ticket_tag() RETURNS int LANGUAGE sql STABLE AS $$
  SELECT (hashtext('backstop.' || current_schema()) & 8191) + 8192
$$;
