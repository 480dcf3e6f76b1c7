"""Same seed, same bytes."""

import sys

from tests.sim.determinism import elsewhere, fingerprints
from tests.support.hunts import hunt_size


def test_a_journal_does_not_depend_on_the_hash_seed() -> None:
    count = hunt_size(quick=20, thorough=60)
    here = fingerprints(0, count)
    assert elsewhere(sys.executable, 1, 0, count) == here
    assert elsewhere(sys.executable, 4_000_000_000, 0, count) == here
    assert len(set(here)) == count
