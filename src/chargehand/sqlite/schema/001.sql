-- One row a run, with a number that stands for its name in the entries: a seventh less to write.
-- holder names the claim that holds it, and owner the opened journal that made the claim; null when it is free.
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    holder TEXT,
    owner INTEGER
);

CREATE INDEX runs_by_owner ON runs (owner) WHERE owner IS NOT NULL;

-- In the order of writing, with an index by run: a third to a half less work than a table clustered by run,
-- because the runs written together then share their pages. A row has either a body or a blob.
CREATE TABLE entries (
    run INTEGER NOT NULL REFERENCES runs (number),
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    epoch INTEGER NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    body BLOB NOT NULL,
    blob TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (run, seq)
);

-- Every opened journal that uses this file. Its process holds a lock on the file named by the token.
-- Numbers are never given twice, so that a claim of one that is gone is not taken for another's.
CREATE TABLE owners (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    token TEXT NOT NULL UNIQUE,
    pid INTEGER NOT NULL,
    beat REAL NOT NULL
);

PRAGMA application_id = 1130915684;

PRAGMA user_version = 1
