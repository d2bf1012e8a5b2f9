-- A digest of every object in the schema: tables by their columns and settings, indexes by their
-- definition and whether they are usable, functions by their text and settings and whether they run
-- as their owner.
CREATE FUNCTION shapes() RETURNS TABLE (name text, digest text) LANGUAGE sql STABLE AS $$
  SELECT 'table ' || c.relname, md5(concat(c.reloptions::text, (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
      a.attnotnull), ',' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)))
    FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  UNION ALL
  SELECT 'index ' || c.relname, md5(concat(pg_get_indexdef(c.oid), i.indisvalid, i.indisready))
    FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relnamespace = current_schema()::regnamespace
  UNION ALL
  SELECT 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
      md5(concat(p.prosrc, p.proconfig::text, p.prosecdef))
    FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
$$;

-- The names of objects that differ from what the migration made: missing, changed or foreign.
CREATE FUNCTION drift() RETURNS TABLE (name text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT coalesce(made.name, found.name) FROM shape made FULL JOIN shapes() found USING (name)
    WHERE made.digest IS DISTINCT FROM found.digest ORDER BY 1;
END $$;
