"""The HTTP API of chargehand: teams, runs, entries, memory."""
