"""Same seed, same bytes."""

import sys

from tests.sim.determinism import elsewhere, fingerprints


def test_a_journal_does_not_depend_on_the_hash_seed() -> None:
    here = fingerprints(0, 60)
    assert elsewhere(sys.executable, 1, 0, 60) == here
    assert elsewhere(sys.executable, 4_000_000_000, 0, 60) == here
    assert len(set(here)) == 60
