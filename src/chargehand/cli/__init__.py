"""The command line: verbs, and what happened in words."""

USUAL_JOURNAL = ".chargehand/runs.db"
