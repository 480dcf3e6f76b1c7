"""Routing: who of a team should do this? Each router decides in its own manner; `strategies.route` acts on it."""
