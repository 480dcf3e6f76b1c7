"""The shell: time, jobs, cancellation. It does what the core says is owed and reports what came of it."""
