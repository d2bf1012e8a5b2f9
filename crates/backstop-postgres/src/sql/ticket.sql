-- Tells everybody that places in line are about to be drawn, until this transaction ends. The key of the lock says which: those
-- behind the last one drawn so far. Whoever sweeps reads it in pg_locks. Must come before the first place is drawn.
CREATE FUNCTION ticket() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared((ticket_tag()::bigint << 48) | ((SELECT last_value FROM line) - 1));
END $$;

-- Sets the locks of this schema apart from those of others: the upper 16 bits of the key.
CREATE FUNCTION ticket_tag() RETURNS int LANGUAGE sql STABLE AS $$
  SELECT (hashtext('backstop.' || current_schema()) & 8191) + 8192
$$;
