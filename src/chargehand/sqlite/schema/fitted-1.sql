-- What a team's router learnt from the cards of its workers, by a digest of all that it was learnt from.
-- It can be learnt again at any time: a row that is missing or damaged costs seconds and nothing else.
CREATE TABLE fitted_routers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    team TEXT NOT NULL,
    key TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (team, key)
);

PRAGMA user_version = 3
