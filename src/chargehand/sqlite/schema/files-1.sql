-- Files that runs are given by reference.
CREATE TABLE files (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL
);

PRAGMA user_version = 5
