"""How good a team is: cases with what ought to come of them, run for real, scored, compared and gated."""
