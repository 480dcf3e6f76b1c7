"""Twenty deaths at every run of the tests; `make kill9` does a thousand."""

import pytest

from tests.kill9 import many


@pytest.mark.timeout(300)
def test_twenty_kills_lose_nothing_that_was_told_and_repeat_nothing_that_was_done() -> None:
    found = many(20, seed=20_260_101, size=25)
    assert found.problems == []
    assert found.kills == 20
    assert found.resumes > 8
    assert found.told > 200
