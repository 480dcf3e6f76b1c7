"""Some deaths at every run of the tests; `make kill9` does a thousand."""

import pytest

from tests.kill9 import many
from tests.support.hunts import hunt_size


@pytest.mark.timeout(300)
@pytest.mark.slow("each process is started and killed before the next one begins")
def test_kills_lose_nothing_that_was_told_and_repeat_nothing_that_was_done() -> None:
    kills = hunt_size(quick=8, thorough=20)
    tally = many(kills, seed=20_260_101, size=25)
    assert tally.problems == []
    assert tally.kills == kills
    assert tally.resumes > 0.4 * kills
    assert tally.told > 10 * kills
