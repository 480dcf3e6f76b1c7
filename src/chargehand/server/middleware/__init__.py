"""Middleware: who may call, under which name, how often and with how much; and no secrets in what is kept."""
