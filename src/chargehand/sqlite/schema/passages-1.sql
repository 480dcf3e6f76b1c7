-- What is known of an archive here: one row once it has, or had, a passage. last_passage and last_sign count up and
-- never back, so that no number is ever given twice, and removed counts the vectors taken away.
-- handle and width say which model made its vectors, where embedded, the number of them, is not 0.
CREATE TABLE holdings (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    space TEXT NOT NULL,
    archive TEXT NOT NULL,
    handle TEXT NOT NULL DEFAULT '',
    width INTEGER NOT NULL DEFAULT 0,
    passages INTEGER NOT NULL DEFAULT 0,
    embedded INTEGER NOT NULL DEFAULT 0,
    removed INTEGER NOT NULL DEFAULT 0,
    last_passage INTEGER NOT NULL DEFAULT 0,
    last_sign INTEGER NOT NULL DEFAULT 0,
    UNIQUE (space, archive)
);

-- The number of a passage is its holding's number times 2^32 and a count: an archive is a range of numbers in every
-- table and in the word index, so it is searched, listed and deleted without looking at another.
-- source, run, task and worker are out of origin, for filters, and null where there is none.
CREATE TABLE passages (
    number INTEGER PRIMARY KEY,
    holding INTEGER NOT NULL,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    digest BLOB NOT NULL,
    tags TEXT NOT NULL,
    metadata TEXT NOT NULL,
    origin TEXT NOT NULL,
    source TEXT,
    run TEXT,
    task TEXT,
    worker TEXT,
    created REAL NOT NULL,
    document TEXT NOT NULL,
    part INTEGER NOT NULL,
    key TEXT,
    UNIQUE (holding, digest),
    UNIQUE (id, holding)
);

CREATE UNIQUE INDEX passages_by_key ON passages (holding, key, part) WHERE key IS NOT NULL;

CREATE INDEX passages_by_time ON passages (holding, created);

CREATE INDEX passages_by_run ON passages (holding, run) WHERE run IS NOT NULL;

CREATE INDEX passages_by_source ON passages (holding, source) WHERE source IS NOT NULL;

CREATE INDEX passages_by_worker ON passages (holding, worker) WHERE worker IS NOT NULL;

CREATE TABLE passage_tags (
    tag TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (tag, number)
) WITHOUT ROWID;

CREATE VIRTUAL TABLE passage_words USING fts5(
    text, content = 'passages', content_rowid = 'number', tokenize = 'porter unicode61 remove_diacritics 2'
);

-- vec is width little-endian floats of 32 bits, of length one. sign is the row of its signs.
CREATE TABLE passage_vectors (
    number INTEGER PRIMARY KEY,
    sign INTEGER NOT NULL,
    vec BLOB NOT NULL
);

-- One bit a dimension, in the order the vectors came: read whole into memory, so they lie apart from the vectors.
CREATE TABLE passage_signs (
    sign INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    bits BLOB NOT NULL
);
