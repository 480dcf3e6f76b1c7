"""Persons, effects and repeated work: a share of what `make people` plays."""

import pytest

from tests.postgres import PostgresServer
from tests.sim.people import Seed, trouble
from tests.sim.people_planted import PEOPLE, find_bug
from tests.sim.planted import ROOT, Bug
from tests.support.hunts import hunt_size

BLOCKS = 4
SIZE = hunt_size(quick=10, thorough=20)
SHORT = ("a no of a person is a yes", "a refused call is no gap", "effects are not offered to a fork")
"""Planted bugs that are found within a few seeds; `make people ARGS=--planted` hunts all of them."""


@pytest.mark.parametrize("block", range(BLOCKS))
def test_programs_of_workers_and_persons_keep_every_property(block: int) -> None:
    played = [trouble(seed) for seed in range(SIZE * block, SIZE * (block + 1))]
    assert {seed: wrong for seed, wrong in played if wrong} == {}


def test_programs_keep_every_property_with_a_journal_in_a_file() -> None:
    played = [trouble(seed, "sqlite") for seed in range(5)]
    assert {seed: wrong for seed, wrong in played if wrong} == {}


def test_programs_keep_every_property_with_a_journal_in_postgresql(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        played = [trouble(seed, url) for seed in range(5)]
    assert {seed: wrong for seed, wrong in played if wrong} == {}


def test_a_seed_plays_the_same_way_every_time() -> None:
    for seed in range(5):
        assert Seed(seed).play() == Seed(seed).play()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", [bug for bug in PEOPLE if bug.name in SHORT], ids=lambda bug: bug.name)
def test_a_bug_planted_around_persons_is_found(bug: Bug) -> None:
    caught, _, said = find_bug(bug, 20)
    assert caught, said


def test_the_text_of_every_bug_planted_around_persons_is_still_there() -> None:
    for bug in PEOPLE:
        assert (ROOT / "src" / "chargehand" / bug.file).read_text().count(bug.before) == 1, bug.name
