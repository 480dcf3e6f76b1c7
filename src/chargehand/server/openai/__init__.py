"""The OpenAI-compatible API: a team as a model."""
