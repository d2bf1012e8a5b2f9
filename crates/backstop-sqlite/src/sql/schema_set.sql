-- ?1 version
INSERT OR REPLACE INTO backstop_schema (rowid, version) VALUES (1, ?1)
