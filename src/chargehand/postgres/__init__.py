"""Databases of PostgreSQL: connections, transactions, the schema, errors. What rows mean is not decided here."""
