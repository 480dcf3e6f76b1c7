"""The journal of runs: what every journal promises, in memory, in SQLite and in PostgreSQL; large bodies beside it."""
