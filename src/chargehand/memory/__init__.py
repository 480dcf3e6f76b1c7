"""What a team shares: blocks, archives, conversations; the catalog that keeps them; searching."""
