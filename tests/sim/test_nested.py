"""Teams inside teams keep to their money whatever goes wrong; `make soak-nested` plays as many seeds as you like."""

import pytest

from tests.sim.nested import trouble

SEEDS, BLOCKS = 400, 8


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_run_of_a_tree_of_teams_spends_more_than_it_may(block: int) -> None:
    size = SEEDS // BLOCKS
    found = [trouble(seed) for seed in range(block * size, (block + 1) * size)]
    assert {seed: wrong for seed, _, wrong in found if wrong} == {}
    assert sum(runs for _, runs, _ in found) > size, "some of them have runs inside runs"
