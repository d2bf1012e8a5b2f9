-- Makes room for the functions of the next version: what was here before goes, but for the one that users call by name and may
-- build upon. Who may call what is noted, and granted again in upgrade_end.sql; so is what there was to call.
SET LOCAL lock_timeout = '4s';
CREATE TABLE granted AS
  SELECT p.proname::text AS name, a.grantee, a.is_grantable FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
  WHERE p.pronamespace = current_schema()::regnamespace AND a.privilege_type = 'EXECUTE' AND a.grantee <> p.proowner;
CREATE TABLE known AS SELECT DISTINCT p.proname::text AS name FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace;
DO $$
DECLARE v_function text;
BEGIN
  FOR v_function IN SELECT substr(s.name, 10) FROM shape s WHERE s.name LIKE 'function %' AND s.name NOT LIKE 'function enqueue(%' LOOP
    EXECUTE format('DROP FUNCTION IF EXISTS %I.%s', current_schema(), v_function);
  END LOOP;
END $$;
DROP TABLE shape;
