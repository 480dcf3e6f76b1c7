"""Teams inside teams keep to their money whatever goes wrong; `make soak-nested` plays as many seeds as you like."""

import pytest

from tests.sim.nested import trouble
from tests.sim.planted import MONEY, NESTED, ROOT, Bug, hunt
from tests.support.hunts import hunt_size

SEEDS = hunt_size(quick=80, thorough=240)
BLOCKS = 8
HUNT = hunt_size(quick=("--first", "120", "--hunt", "60"), thorough=("--hunt", "2000"))
"""The bugs that are planted in the quick hunt are found by seeds from 120 on."""
HUNTED = hunt_size(quick=MONEY[::3], thorough=MONEY)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_run_of_a_tree_of_teams_spends_more_than_it_may(block: int) -> None:
    size = SEEDS // BLOCKS
    found = [trouble(seed) for seed in range(block * size, (block + 1) * size)]
    assert {seed: wrong for seed, _, wrong in found if wrong} == {}
    assert sum(runs for _, runs, _ in found) > size, "some of them have runs inside runs"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", HUNTED, ids=lambda bug: bug.name)
def test_bugs_planted_in_reservations_are_found(bug: Bug) -> None:
    """Some of them here; `make planted` hunts all of them."""
    caught, _, said = hunt(bug, int(HUNT[-1]), "tests.sim.nested", HUNT[:-1])
    assert caught, said


def test_the_text_of_every_bug_planted_in_reservations_is_still_there() -> None:
    for bug in (*MONEY, *NESTED):
        assert (ROOT / "src" / "chargehand" / bug.file).read_text().count(bug.before) == 1, bug.name
