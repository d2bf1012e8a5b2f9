-- Lines that go on, one for each event. The key is what makes an event happen once.
CREATE TABLE line (
    seq INTEGER PRIMARY KEY,
    subscription TEXT NOT NULL,
    position INTEGER NOT NULL,
    effect TEXT NOT NULL,
    range_to INTEGER,
    range_count INTEGER,
    at_ms INTEGER NOT NULL,
    line TEXT NOT NULL,
    UNIQUE (subscription, position, effect)
);

CREATE TABLE standing (
    detector INTEGER PRIMARY KEY,
    standing TEXT NOT NULL
);

CREATE TABLE incident (
    detector INTEGER NOT NULL,
    opened_ms INTEGER NOT NULL,
    closed_ms INTEGER,
    PRIMARY KEY (detector, opened_ms)
) WITHOUT ROWID;

-- Changes to the directory, in the order in which every process makes them.
CREATE TABLE change (
    seq INTEGER PRIMARY KEY,
    change TEXT NOT NULL
);

-- How far immediate backfill has come; the stream keeps watermarks of its own.
CREATE TABLE last_update (
    subscription TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    step INTEGER NOT NULL
) WITHOUT ROWID;
