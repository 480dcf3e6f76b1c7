"""What thinks: one protocol, a guard around every provider, and models that need none."""
