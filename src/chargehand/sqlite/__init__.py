"""SQLite files: connections, transactions, group commit."""
