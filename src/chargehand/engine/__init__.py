"""The pure engine: what a run is, and what follows from what has happened. No I/O, no clock, no randomness."""
