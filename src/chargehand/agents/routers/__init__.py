"""Routers: who of a team should do this? Each decides in its own manner; what is done about it is `routing`'s."""
