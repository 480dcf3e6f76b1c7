from collections.abc import Sequence

import pytest

from chargehand.models.offline.matching import Bench, content
from chargehand.models.offline.schemas import filled, needed
from chargehand.models.subject import WorkerCard
from tests.models.offline.teams import CALCULATE, CHART, CLINIC, CONVERT, GARDEN, LIBRARY, RETAIL, search, skill, sql


@pytest.mark.parametrize(
    ("team", "clause", "worker"),
    [
        (RETAIL, "What was turnover in May 2026?", "analyst"),
        (RETAIL, "Which customers bought most?", "analyst"),
        (RETAIL, "What does the handbook say about gifts?", "librarian"),
        (RETAIL, "Can customers return opened products?", "librarian"),
        (RETAIL, "Draw a chart of revenue by month", "painter"),
        (RETAIL, "Convert 250 USD to EUR", "banker"),
        (RETAIL, "What is 12 * (3 + 4)?", "reckoner"),
        (RETAIL, "Write a letter to the owner", "editor"),
        (CLINIC, "How long did patients wait on average?", "registrar"),
        (CLINIC, "What should patients bring to a blood test?", "guide"),
        (LIBRARY, "Who wrote the most borrowed books?", "clerk"),
        (LIBRARY, "What do the rules say about lending to children?", "steward"),
        (GARDEN, "Will it rain in Graz?", "forecaster"),
        (GARDEN, "Which plants suit shade?", "botanist"),
    ],
)
def test_a_clause_finds_its_worker(team: Sequence[WorkerCard], clause: str, worker: str) -> None:
    best = Bench(team).best(clause)
    assert best is not None
    assert best.profile.name == worker


@pytest.mark.parametrize(
    ("team", "clause"),
    [
        (RETAIL, "What is the capital of Peru?"),
        (RETAIL, "How many moons does Jupiter have?"),
        (RETAIL, "Tell a joke"),
        (LIBRARY, "Book a flight to Paris"),
        (CLINIC, "Prescribe antibiotics"),
        (GARDEN, "Translate the national anthem"),
    ],
)
def test_what_nobody_is_meant_for_finds_nobody(team: Sequence[WorkerCard], clause: str) -> None:
    assert Bench(team).best(clause) is None


def test_who_makes_workers_gets_only_what_nobody_else_is_for() -> None:
    spare = WorkerCard("factory", "makes a worker for a task that nobody else is meant for", (), (CONVERT,))
    bench = Bench((GARDEN[0], spare))
    asked = ("Which plants suit shade?", "Convert 5 USD to EUR", "Tell a joke")
    found = [bench.best(text) for text in asked]
    assert [score.profile.name if score else "" for score in found] == ["botanist", "factory", ""]


def test_vectors_find_who_words_do_not() -> None:
    class Meanings:
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[1.0, 0.0] if "petal" in text or "plants" in text else [0.0, 1.0] for text in texts]

    assert Bench(GARDEN).best("Identify this petal") is None
    found = Bench(GARDEN, Meanings()).best("Identify this petal")
    assert found is not None
    assert found.profile.name == "botanist"


def test_tools_say_by_their_schemas_what_they_must_be_given() -> None:
    clock = skill("now", "The time.", {})
    assert [needed(one) for one in (CHART, CONVERT, CALCULATE, sql("x"), search("x"), clock)] == [
        "series",
        "values",
        "values",
        "words",
        "words",
        "nothing",
    ]


def test_numbers_in_the_clause_are_enough_for_a_tool() -> None:
    def enough(text: str) -> bool:
        return filled(text, "values", frozenset(content(text)))

    assert enough("Convert 250 USD to EUR")
    assert enough("What is 12 * 4?")
    assert not enough("Convert the total revenue to EUR")
    assert not enough("What is 15% of the total revenue?")
