-- The one table every version knows.
CREATE TABLE IF NOT EXISTS backstop_meta (key TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID
