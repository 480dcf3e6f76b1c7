-- Up to which entry each webhook of a run was told; due: from when on it may be tried.
CREATE TABLE deliveries (
    run TEXT NOT NULL,
    webhook TEXT NOT NULL,
    seq INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    given_up INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (webhook, run)
) WITHOUT ROWID;

PRAGMA user_version = 4
