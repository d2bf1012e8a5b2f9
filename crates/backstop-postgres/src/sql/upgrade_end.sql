-- Whoever could call a function can call the one of that name. What is new goes to those who could do the like: cells and streams to
-- whoever claims, dead letters and bounds to whoever amends, the lists of streams to whoever lists queues.
DO $$
DECLARE v_grant record;
BEGIN
  FOR v_grant IN
    SELECT DISTINCT p.oid::regprocedure AS function, g.is_grantable,
      CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END AS grantee
    FROM granted g JOIN pg_proc p ON p.pronamespace = current_schema()::regnamespace AND (p.proname::text = g.name
      OR NOT EXISTS (SELECT 1 FROM known k WHERE k.name = p.proname::text) AND p.proname::text = ANY (CASE g.name
        WHEN 'claim' THEN '{cells,list_cells,swap,offer,take,take_due,keep,advance}'::text[]
        WHEN 'amend' THEN '{bury,groups,set_bounds}'::text[]
        WHEN 'queues' THEN '{streams,list_stream_keys,read_stream_key}'::text[] END))
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s %s', v_grant.function, v_grant.grantee,
      CASE WHEN v_grant.is_grantable THEN 'WITH GRANT OPTION' END);
  END LOOP;
END $$;
DROP TABLE granted, known;
