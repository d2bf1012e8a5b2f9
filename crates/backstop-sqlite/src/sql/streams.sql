-- All streams. No parameters.
SELECT id, name, keys, holding, records FROM backstop_stream ORDER BY name
