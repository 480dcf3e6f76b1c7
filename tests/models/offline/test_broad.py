"""Broad requests, requests for a translation, and results that are code."""

import pytest

from chargehand.models.exhibits import Product
from chargehand.models.offline.answering import answer
from chargehand.models.offline.matching import Bench
from chargehand.models.offline.task_text import asked
from chargehand.models.subject import Answering, Given, WorkerCard
from tests.models.offline.teams import search

CODE = "```python\n# sieve.py\ndef sieve(most: int) -> list[int]:\n    return []\n```"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Conduct a comprehensive analysis of Corvid from all perspectives.", "Tell us about Corvid."),
        ("Give us a full account of the harbour.", "Tell us about the harbour."),
        ("Conduct a survey of the harbour.", "Conduct a survey of the harbour."),
        ("What does a full review of the harbour cost?", "What does a full review of the harbour cost?"),
    ],
)
def test_a_comprehensive_analysis_asks_each_for_what_they_know(said: str, meant: str) -> None:
    assert asked(f"{said} Return the answer and where it comes from.") == meant


def test_who_translates_must_say_so() -> None:
    reader = WorkerCard("reader", "Finds what the contracts say in documents.", skills=(search("contracts"),))
    translator = WorkerCard("translator", "Translates contracts and letters.")
    request = "Translate the contracts into French."
    assert Bench([reader]).best(request) is None
    found = Bench([reader, translator]).best(request)
    assert found is not None
    assert found.profile.name == "translator"


def test_code_keeps_its_lines_and_its_comments() -> None:
    results = (
        Given("t1", "Show the code of the sieve.", "coder", Product(CODE)),
        Given("t2", "Count the apples.", "counter", Product("There are 12 apples.")),
    )
    text = answer(Answering("Show the code and count the apples.", results))
    assert CODE in text
    assert text.startswith("Code of the sieve: see below [t1].")


def test_a_heading_outside_of_code_becomes_a_bold_line() -> None:
    results = (Given("t1", "Show the code of the sieve.", "coder", Product(f"# The sieve\n\n{CODE}")),)
    text = answer(Answering("Show the code.", results))
    assert "**The sieve**" in text
    assert CODE in text
