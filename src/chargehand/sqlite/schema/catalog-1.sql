-- Agents, groups, tools, blocks and archives. The body is the thing as JSON; name is copied from it to be found by.
-- Numbers are in the order of making and are never given twice, so they stand for ids wherever something hangs on one.
CREATE TABLE things (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    space TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (space, id)
);

CREATE INDEX things_by_name ON things (space, kind, name, number);

CREATE INDEX things_by_kind ON things (space, kind, number);

CREATE TABLE tags (
    space TEXT NOT NULL,
    kind TEXT NOT NULL,
    tag TEXT NOT NULL,
    thing INTEGER NOT NULL,
    PRIMARY KEY (space, kind, tag, thing)
) WITHOUT ROWID;

CREATE INDEX tags_by_thing ON tags (thing);

-- Who is in which group; members are ids, because a group may name agents that are not there yet.
CREATE TABLE members (
    space TEXT NOT NULL,
    agent TEXT NOT NULL,
    team INTEGER NOT NULL,
    PRIMARY KEY (space, agent, team)
) WITHOUT ROWID;

CREATE INDEX members_by_team ON members (team);

CREATE TABLE attachments (
    owner INTEGER NOT NULL,
    thing INTEGER NOT NULL,
    access TEXT NOT NULL,
    tainted INTEGER NOT NULL,
    PRIMARY KEY (owner, thing)
) WITHOUT ROWID;

CREATE INDEX attachments_by_thing ON attachments (thing);

-- A block's history. The key is a digest of its origin's, or of one made up: an edit whose answer was lost finds itself
-- here.
-- The digest is of what an append or insert adds, by run and task: a later attempt finds what an earlier one did.
CREATE TABLE changes (
    block INTEGER NOT NULL,
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    origin BLOB NOT NULL,
    moment REAL NOT NULL,
    start INTEGER NOT NULL,
    removed TEXT NOT NULL,
    added TEXT NOT NULL,
    parent INTEGER NOT NULL,
    at INTEGER NOT NULL,
    tainted INTEGER NOT NULL,
    key BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    digest BLOB,
    PRIMARY KEY (block, version)
);

CREATE UNIQUE INDEX changes_by_key ON changes (block, key);

CREATE INDEX changes_by_digest ON changes (block, digest, attempt) WHERE digest IS NOT NULL;

CREATE TABLE turns (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    agent INTEGER NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    moment REAL NOT NULL,
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    tainted INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    old INTEGER NOT NULL
);

-- A summary comes where the last turn was that it stands for.
CREATE INDEX turns_in_order ON turns (agent, iif(upto, upto, number));

CREATE INDEX turns_shown ON turns (agent, iif(upto, upto, number)) WHERE old = 0;

-- The agent's number is a word too, so that a search does not walk through what others said.
CREATE VIRTUAL TABLE turns_words USING fts5 (
    agent, text, content = 'turns', content_rowid = 'number', tokenize = 'porter unicode61 remove_diacritics 2'
);

CREATE TRIGGER turns_said AFTER INSERT ON turns BEGIN
    INSERT INTO turns_words (rowid, agent, text) VALUES (new.number, new.agent, new.text);
END;

CREATE TRIGGER turns_forgotten AFTER DELETE ON turns BEGIN
    INSERT INTO turns_words (turns_words, rowid, agent, text) VALUES ('delete', old.number, old.agent, old.text);
END;

-- Digests of keys under which something was said once; they outlive a reset.
CREATE TABLE said (
    agent INTEGER NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (agent, key)
) WITHOUT ROWID;

PRAGMA application_id = 1130915661;

PRAGMA user_version = 1;
