"""Text into vectors: models on this machine, and models behind a URL."""
