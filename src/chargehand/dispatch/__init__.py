"""Engines that have runs driven by any process: the local one, and Temporal."""
