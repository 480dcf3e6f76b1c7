-- Runs and messages as clients of agents read them. All of it is derived: the journal is the truth, and this file
-- can be made again from it. Bodies are what is sent, as JSON.
-- A conversation is one beside the agent's own, or nothing.
-- A run is open until its journal ends. The name is that of the journal: a run inside another has an id of its own.
CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    agent TEXT NOT NULL,
    conversation TEXT NOT NULL,
    created REAL NOT NULL,
    status TEXT NOT NULL,
    stop TEXT NOT NULL,
    open INTEGER NOT NULL,
    background INTEGER NOT NULL,
    body BLOB NOT NULL
);

CREATE INDEX runs_in_order ON runs (created, number);

CREATE INDEX runs_of_agent ON runs (agent, created, number);

CREATE INDEX runs_by_name ON runs (name);

CREATE INDEX runs_open ON runs (number) WHERE open = 1;

-- Messages of one run stand together: `created` is when it began.
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    conversation TEXT NOT NULL,
    run TEXT NOT NULL,
    type TEXT NOT NULL,
    created REAL NOT NULL,
    body BLOB NOT NULL
);

CREATE INDEX messages_in_order ON messages (created, number);

CREATE INDEX messages_of_agent ON messages (agent, created, number);

CREATE INDEX messages_of_conversation ON messages (conversation, created, number) WHERE conversation <> '';

CREATE INDEX messages_of_run ON messages (run, created, number);

PRAGMA application_id = 1130915668;

PRAGMA user_version = 1
