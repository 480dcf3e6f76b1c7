"""The API that `letta-client` speaks: wire shapes, routes, sessions, message log, index."""
