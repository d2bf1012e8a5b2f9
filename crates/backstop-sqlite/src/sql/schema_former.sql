-- The table in which pre-releases kept the version of their schema.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'backstop_meta'
