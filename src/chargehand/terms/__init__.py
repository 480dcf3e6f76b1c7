"""The words everything else is said in: plans, rosters, policies, budgets, facts, and what a check says of a plan."""
