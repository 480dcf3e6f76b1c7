-- What became of requests that were routed to somebody: one row for each run, source and worker that it tells of.
-- Numbers count up and are never given twice, so whoever knows the last one reads only what is new.
-- The vector is that of the request, made by the embedding that is named; null until somebody made it.
CREATE TABLE lessons (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    team TEXT NOT NULL,
    run TEXT NOT NULL,
    source TEXT NOT NULL,
    worker TEXT NOT NULL,
    request TEXT NOT NULL,
    score REAL NOT NULL,
    at REAL NOT NULL,
    embedding TEXT NOT NULL DEFAULT '',
    vector BLOB,
    UNIQUE (team, run, source, worker)
);

CREATE INDEX lessons_in_order ON lessons (team, number);

-- How far a team's lessons go. The generation is another one once they were forgotten.
CREATE TABLE lesson_books (
    team TEXT NOT NULL PRIMARY KEY,
    generation TEXT NOT NULL,
    latest INTEGER NOT NULL
) WITHOUT ROWID;

PRAGMA user_version = 2
