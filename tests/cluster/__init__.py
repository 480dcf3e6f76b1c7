"""A whole cluster of real processes on this machine, and what must hold whatever happens to them."""
