"""The command line: verbs, and what happened in words."""

USUAL_JOURNAL = ".chargehand/runs.db"
USUAL_MEMORY = ".chargehand/memory.db"
USUAL_DATA = ".chargehand/server"
