"""The API that `letta-client` speaks: wire shapes, their mapping, routes. Nobody else imports it."""
