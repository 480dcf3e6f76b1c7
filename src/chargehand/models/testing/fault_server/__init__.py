"""A model server on this machine that fails on purpose, in every way a provider has been seen to fail.

It is for tests, ours and our users'. What a client ought to make of a fault is not decided here.
"""

from chargehand.models.testing.fault_server.faults import MODES
from chargehand.models.testing.fault_server.server import FaultServer, serve

__all__ = ["MODES", "FaultServer", "serve"]
