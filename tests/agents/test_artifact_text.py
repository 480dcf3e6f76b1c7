"""A reader is spared what has nothing to do with a result; who judges it is not."""

import msgspec
import pytest

from chargehand.agents.inputs import result_text
from chargehand.models.artifacts import FoundPassage, Passages, WorkerOutput
from chargehand.models.request_facts import Given

FOUND = (
    FoundPassage("deed.md#fees", "The fee of Birch Design is 40 crowns.", 9.0),
    FoundPassage("deed.md#term", "Birch Design may be told to leave after two years.", 1.0),
)
PRODUCT = WorkerOutput(
    "The fee is 40 crowns (deed.md#fees).", (Passages("fee", FOUND),), ("deed.md#fees", "deed.md#term")
)
GIVEN = Given("t1", "clerk", "What is the fee?", msgspec.to_builtins(PRODUCT))


@pytest.mark.parametrize("whole", [False, True])
def test_a_passage_that_nobody_named_and_that_hardly_fits_is_for_judges_only(whole: bool) -> None:
    said = result_text(GIVEN.value, whole=whole)
    assert "40 crowns" in said
    assert ("two years" in said) == whole
    assert ("deed.md#term" in said) == whole
