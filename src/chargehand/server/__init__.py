"""The server: one house a tenant, several doors into it, and walls around it. Starting one is the command line's."""
