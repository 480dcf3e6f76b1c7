-- What a team's router learnt from the cards of its workers. No longer written: a process learns it when it first routes.
CREATE TABLE fitted_routers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    team TEXT NOT NULL,
    key TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (team, key)
);

PRAGMA user_version = 3
