"""SQLite files as every store here uses them: opening, schema, errors, one thread that writes."""
