"""Our own API: teams, runs and their entries. Nobody else imports it."""
