"""Other ecosystems: protocols, traces, agents of other frameworks; built on what server and library promise to all."""
