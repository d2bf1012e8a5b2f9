-- The statements that made our tables and indexes. No parameters.
SELECT name, sql FROM sqlite_master WHERE tbl_name GLOB 'backstop_*' AND sql IS NOT NULL
