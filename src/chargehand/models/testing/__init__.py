"""Models for tests: scripted replies, recorded traffic, and a server that fails on demand."""
