"""Where entries and large bodies are kept: in memory or in a SQLite file, behind one protocol."""
