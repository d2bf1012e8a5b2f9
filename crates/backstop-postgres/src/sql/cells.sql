-- The cells of these names, by index from 1 on; names without a cell are left out.
CREATE FUNCTION cells(p_names text[]) RETURNS TABLE (at int, version bigint, value bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT u.o::int, c.version, c.value FROM unnest(p_names) WITH ORDINALITY u(name, o)
    CROSS JOIN LATERAL (SELECT c.version, c.value FROM cell c WHERE c.name = u.name OFFSET 0) c;
END $$;

-- The next cells from a name on, ordered by the bytes of their names.
CREATE FUNCTION list_cells(p_from text, p_max int) RETURNS TABLE (name text, version bigint, value bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT c.name, c.version, c.value FROM cell c WHERE c.name >= p_from ORDER BY c.name LIMIT p_max;
END $$;

-- Applies compare-and-set changes to cells one after the other, as
-- `backstop_core::port::CellSwap::judge` says. Returns a row for each change that was refused: its
-- index from 1 on and the current cell; no version if there is none.
-- Parameters, per change: name, the version that the caller saw, the version it gets, value.
CREATE FUNCTION swap(p_names text[], p_seen bigint[], p_versions bigint[], p_values bytea[])
RETURNS TABLE (at int, version bigint, value bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done text := see_others();
  v_cell cell%ROWTYPE;
BEGIN
  -- All sessions lock in the same order, so that they cannot deadlock.
  PERFORM 1 FROM cell c WHERE c.name = ANY (p_names) ORDER BY c.name FOR UPDATE;
  FOR i IN 1 .. cardinality(p_names) LOOP
    LOOP
      SELECT * INTO v_cell FROM cell c WHERE c.name = p_names[i] FOR UPDATE;
      EXIT WHEN v_cell.version = p_versions[i] OR (NOT FOUND AND p_values[i] IS NULL);
      IF v_cell.version IS DISTINCT FROM p_seen[i] THEN
        RETURN QUERY SELECT i, v_cell.version, v_cell.value;
        EXIT;
      END IF;
      IF p_values[i] IS NULL THEN
        DELETE FROM cell c WHERE c.name = p_names[i];
      ELSIF p_seen[i] IS NOT NULL THEN
        UPDATE cell c SET version = p_versions[i], value = p_values[i] WHERE c.name = p_names[i];
      ELSE
        INSERT INTO cell (name, version, value) VALUES (p_names[i], p_versions[i], p_values[i]) ON CONFLICT (name) DO NOTHING;
        -- Another session made the cell between the two statements: look again.
        CONTINUE WHEN NOT FOUND;
      END IF;
      EXIT;
    END LOOP;
  END LOOP;
END $$;
