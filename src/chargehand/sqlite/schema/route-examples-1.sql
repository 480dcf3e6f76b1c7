-- Requests that were confirmed to be for a worker: one row for each run, source and worker.
CREATE TABLE route_examples (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    team TEXT NOT NULL,
    run TEXT NOT NULL,
    source TEXT NOT NULL,
    worker TEXT NOT NULL,
    request TEXT NOT NULL,
    at REAL NOT NULL,
    UNIQUE (team, run, source, worker)
);

CREATE INDEX route_examples_of_workers ON route_examples (team, worker, source, number);

PRAGMA user_version = 2
