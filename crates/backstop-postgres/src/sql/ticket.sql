-- Tells everybody that places in line are about to be drawn, until this transaction ends. The key of the lock says which: those
-- behind the last one drawn so far. Whoever sweeps reads it in pg_locks. Must come before the first place is drawn. One is enough
-- for a transaction: the mark goes with the lock, also when a savepoint is rolled back.
CREATE FUNCTION ticket() RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_mark text := current_schema() || ' ' || pg_current_xact_id();
BEGIN
  IF current_setting('backstop.ticket', true) = v_mark THEN RETURN; END IF;
  PERFORM set_config('backstop.ticket', v_mark, true);
  PERFORM pg_advisory_xact_lock_shared((ticket_tag()::bigint << 48) | ((SELECT last_value FROM line) - 1));
END $$;

-- Sets the locks of this schema apart from those of others: the upper 16 bits of the key.
CREATE FUNCTION ticket_tag() RETURNS int LANGUAGE sql STABLE AS $$
  SELECT (hashtext('backstop.' || current_schema()) & 8191) + 8192
$$;
