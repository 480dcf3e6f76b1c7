-- Version 3 added a table that nothing reads any more. New files do not have it.
PRAGMA user_version = 3
