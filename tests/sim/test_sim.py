"""The fixed part of the simulation that every `make test` plays; `make sim` plays as many as you like."""

import pytest

from tests.sim.planted import BUGS, hunt
from tests.sim.run import Case, corpus, play, resume_everywhere, trouble

SEEDS = 2_000
RESUMED = 150
BLOCKS = 50


@pytest.mark.parametrize("case", corpus(), ids=lambda case: str(case.seed))
def test_what_was_wrong_once_is_right(case: Case) -> None:
    assert trouble(case, prefixes=True) == ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_oracle_is_broken_whatever_goes_wrong(block: int) -> None:
    size = SEEDS // BLOCKS
    wrong = {
        seed: found
        for seed in range(block * size, (block + 1) * size)
        if (found := trouble(Case(seed), prefixes=False))
    }
    assert wrong == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_run_resumed_after_any_entry_ends_as_it_would_have(block: int) -> None:
    """550 journals, cut after each of their entries: some 21,000 resumes."""
    size = RESUMED // BLOCKS
    for seed in range(100_000 + block * size, 100_000 + (block + 1) * size):
        plot = Case(seed, tasks=18).plot()
        assert resume_everywhere(plot, play(plot, deep=True)) > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS[4::10], ids=lambda bug: bug.name)
def test_planted_bugs_are_found(bug: object) -> None:
    """One in ten here, so that a blunted oracle shows at once; `make planted` hunts all of them."""
    assert isinstance(bug, type(BUGS[0]))
    caught, _, said = hunt(bug, 2_000)
    assert caught, said


def test_the_text_of_every_planted_bug_is_still_there() -> None:
    from tests.sim.planted import ROOT

    for bug in BUGS:
        assert (ROOT / "src" / "chargehand" / bug.file).read_text().count(bug.before) == 1, bug.name
    assert len(BUGS) >= 30
