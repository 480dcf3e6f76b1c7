"""Shared memory for the offline model: what a text wants kept or looked up, and the calls and words that come of it."""
