"""Breakers open in time, never for nothing, and never stay shut; `make soak-breakers` plays as many as you like."""

import pytest

from chargehand.engine.policy import Breaking
from tests.sim.breaker_oracles import Began, Ended, Happened, Refused, healed, watched
from tests.sim.breakers import BUGS, trouble
from tests.sim.planted import ROOT, Bug, hunt
from tests.support.hunts import hunt_size

SEEDS = hunt_size(quick=40, thorough=80)
BLOCKS = 8


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_breaker_breaks_its_rules_whatever_a_provider_does(block: int) -> None:
    size = SEEDS // BLOCKS
    found = dict(map(trouble, range(block * size, (block + 1) * size)))
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS[2::6], ids=lambda bug: bug.name)
def test_bugs_planted_in_breakers_are_found(bug: Bug) -> None:
    """One in six here; `make soak-breakers` hunts all of them."""
    caught, _, said = hunt(bug, 400, "tests.sim.breakers", ("--hunt",))
    assert caught, said


def test_the_text_of_every_bug_planted_in_a_breaker_is_still_there() -> None:
    for bug in BUGS:
        assert (ROOT / "src" / "chargehand" / bug.file).read_text().count(bug.before) == 1, bug.name


def failing(*ends: float) -> list[Happened]:
    made = [(Began(end - 0.1, number), Ended(end, number, "bad")) for number, end in enumerate(ends)]
    return [one for pair in made for one in pair]


def test_each_oracle_can_tell() -> None:
    numbers = Breaking()
    five = failing(1, 2, 3, 4, 5)
    assert watched([*five, Refused(6), Began(36, 9)], numbers) == []
    assert "not before 35" in watched([*five, Began(34, 9)], numbers)[0]
    assert "second probe" in watched([*five, Began(36, 9), Began(37, 10)], numbers)[0]
    assert watched([*five, Began(36, 9), Began(97, 10)], numbers) == [], "a lease ends"
    assert "shut at 5.0" in watched([*failing(1, 2, 3, 4), Refused(5)], numbers)[0]
    assert "stuck" in watched([*five, Refused(400)], numbers)[0]
    assert watched([*five, Began(390, 9), Refused(400)], numbers) == [], "somebody is finding out"
    again = [*five, Began(36, 9), Ended(37, 9, "bad")]
    assert "not before 97" in watched([*again, Began(90, 10)], numbers)[0], "the wait grows"
    well = [*five, Refused(6), Began(36, 9), Ended(37, 9, "good")]
    assert healed([*well, Began(38, 10)], 10, 60) == []
    assert "was shut" in healed([*well, Refused(38)], 10, 60)[0]
    assert "nobody found out" in healed([*five, Refused(500)], 10, 60)[0]
    assert "took until" in healed(well, 10, 20)[0]
