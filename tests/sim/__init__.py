"""Simulated worlds: the production driver and core on virtual time, with faults, watched by oracles."""

import logging

logging.getLogger("chargehand.runtime").setLevel(logging.CRITICAL)  # seeds are meant to be full of trouble
