"""The shell: time, jobs, cancellation. It does what the engine says is owed and reports what came of it."""
