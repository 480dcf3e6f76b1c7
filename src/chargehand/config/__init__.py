"""What people write: the team file, the environment, settings."""
