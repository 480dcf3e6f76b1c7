"""The server: three APIs behind middleware, and the runs and memory of each tenant. The command line starts it."""
