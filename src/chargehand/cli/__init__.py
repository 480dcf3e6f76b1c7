"""The command line: verbs, and what happened in words."""

USUAL_JOURNAL = ".chargehand/runs.db"
USUAL_MEMORY = ".chargehand/memory.db"
USUAL_DATA = ".chargehand/server"
STORE = "CHARGEHAND_STORE"
"""The variable that names a database for all stores, in the place of `--store`."""
