"""Effects happen as often as a person allows, whatever goes wrong; `make soak-effects` plays more seeds."""

import pytest

from tests.sim.effects import trouble
from tests.sim.planted import EFFECTS, ROOT, Bug, hunt


@pytest.mark.parametrize("block", range(2))
def test_a_bill_is_paid_once_unless_a_person_says_otherwise(block: int) -> None:
    played = [trouble(seed) for seed in range(15 * block, 15 * (block + 1))]
    assert {seed: wrong for seed, _, wrong in played if wrong} == {}
    assert sum(payments for _, payments, _ in played) > 15


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", EFFECTS[::4], ids=lambda bug: bug.name)
def test_bugs_planted_around_effects_are_found(bug: Bug) -> None:
    """Some of them here; `make planted` hunts all of them."""
    caught, _, said = hunt(bug, 60, "tests.sim.effects", ("--hunt",))
    assert caught, said


def test_the_text_of_every_bug_planted_around_effects_is_still_there() -> None:
    for bug in EFFECTS:
        assert (ROOT / "src" / "chargehand" / bug.file).read_text().count(bug.before) == 1, bug.name
