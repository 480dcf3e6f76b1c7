-- Runs, messages and steps as clients of agents read them. All of it is derived: the journal is the truth, and this file
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
    usage BLOB NOT NULL,
    body BLOB NOT NULL
);

CREATE INDEX runs_in_order ON runs (created, number);

CREATE INDEX runs_of_agent ON runs (agent, created, number);

CREATE INDEX runs_of_conversation ON runs (conversation, created) WHERE conversation <> '';

CREATE INDEX runs_by_name ON runs (name);

CREATE INDEX runs_open ON runs (number) WHERE open = 1;

CREATE INDEX runs_ended ON runs (agent, created) WHERE open = 0;

-- Words are what a message can be found by. Messages of one run stand together: `at` is when it began.
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    conversation TEXT NOT NULL,
    run TEXT NOT NULL,
    step TEXT NOT NULL,
    type TEXT NOT NULL,
    at REAL NOT NULL,
    words TEXT NOT NULL,
    body BLOB NOT NULL
);

CREATE INDEX messages_in_order ON messages (at, number);

CREATE INDEX messages_of_agent ON messages (agent, at, number);

CREATE INDEX messages_of_conversation ON messages (conversation, at, number) WHERE conversation <> '';

CREATE INDEX messages_of_run ON messages (run, number);

CREATE INDEX messages_of_step ON messages (step, number);

CREATE VIRTUAL TABLE message_words USING fts5 (
    words, content = 'messages', content_rowid = 'number', tokenize = 'porter unicode61 remove_diacritics 2'
);

CREATE TRIGGER messages_said AFTER INSERT ON messages WHEN new.words <> '' BEGIN
    INSERT INTO message_words (rowid, words) VALUES (new.number, new.words);
END;

CREATE TRIGGER messages_forgotten AFTER DELETE ON messages WHEN old.words <> '' BEGIN
    INSERT INTO message_words (message_words, rowid, words) VALUES ('delete', old.number, old.words);
END;

-- The feedback is a person's: it is kept when the body is written again.
CREATE TABLE steps (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    run TEXT NOT NULL,
    at REAL NOT NULL,
    model TEXT NOT NULL,
    feedback TEXT NOT NULL DEFAULT '',
    tags TEXT NOT NULL DEFAULT '[]',
    body BLOB NOT NULL
);

CREATE INDEX steps_of_agent ON steps (agent, number);

CREATE INDEX steps_of_run ON steps (run, number);

PRAGMA application_id = 1130915668;

PRAGMA user_version = 1
