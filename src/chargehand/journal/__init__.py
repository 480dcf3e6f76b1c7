"""The journal of runs: what every journal promises, in memory and in SQLite; large bodies beside it."""
