"""A small language model on this machine: fetched by pinned hash, run in process, or served on loopback.

The engine is in the extra `local`; nothing here imports it before it is needed.
"""

from chargehand.models.local.model import LocalModel, serve_local

__all__ = ["LocalModel", "serve_local"]
