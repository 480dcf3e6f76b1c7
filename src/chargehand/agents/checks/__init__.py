"""What a result must pass before it counts as done: declared, checked by rules or by models, sent back or refused."""
