"""The fixed part of the simulation that every `make test` plays; `make sim` plays as many as you like."""

import pytest

from tests.sim.planted import BUGS, Bug, hunt
from tests.sim.run import Case, corpus, play, resume_everywhere, trouble
from tests.support.hunts import hunt_size

BLOCKS = 10
SEEDS = hunt_size(quick=500, thorough=2_000) // BLOCKS
RESUMED = hunt_size(quick=40, thorough=150) // BLOCKS
CUTS = hunt_size(quick=6, thorough=0)
"""After how many entries a journal is resumed; 0 means each of them."""
SOON_FOUND = (
    "any answer is taken for one of the options",
    "a permanent failure is retried",
    "one slot too few",
    "two probes at once",
    "a zombie may write",
)
"""Planted bugs that are found within a few seeds, each in a module of its own."""
HUNTED = hunt_size(quick=[bug for bug in BUGS if bug.name in SOON_FOUND], thorough=list(BUGS[4::5]))


@pytest.mark.parametrize("case", corpus(), ids=lambda case: str(case.seed))
def test_what_was_wrong_once_is_right(case: Case) -> None:
    assert trouble(case, prefixes=True, most=CUTS) == ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_oracle_is_broken_whatever_goes_wrong(block: int) -> None:
    violations = {seed: trouble(Case(seed), prefixes=False) for seed in range(block * SEEDS, (block + 1) * SEEDS)}
    assert {seed: violation for seed, violation in violations.items() if violation} == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_run_resumed_after_any_entry_ends_as_it_would_have(block: int) -> None:
    """At full size 150 journals, cut after each of their entries: some 6,000 resumes."""
    for seed in range(100_000 + block * RESUMED, 100_000 + (block + 1) * RESUMED):
        plot = Case(seed, tasks=18).plot()
        assert resume_everywhere(plot, play(plot, deep=True), CUTS) > 0


@pytest.mark.timeout(700)  # a hunt itself gives up after 600
@pytest.mark.parametrize("bug", HUNTED, ids=lambda bug: bug.name)
def test_planted_bugs_are_found(bug: Bug) -> None:
    """Some of them here, so that a blunted oracle shows at once; `make planted` hunts all of them."""
    caught, _, said = hunt(bug, 2_000)
    assert caught, said


def test_the_text_of_every_planted_bug_is_still_there() -> None:
    from tests.sim.planted import ROOT

    for bug in BUGS:
        assert (ROOT / "src" / "chargehand" / bug.file).read_text().count(bug.before) == 1, bug.name
    assert len(BUGS) >= 30
    assert {bug.name for bug in BUGS} >= set(SOON_FOUND)
