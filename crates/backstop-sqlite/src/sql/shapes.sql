-- How our tables and indexes were made. No parameters.
SELECT name, sql FROM sqlite_master WHERE tbl_name GLOB 'backstop_*' AND sql IS NOT NULL
