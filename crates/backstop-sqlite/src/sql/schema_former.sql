-- The table in which pre-releases kept their version.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'backstop_meta'
