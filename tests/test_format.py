"""Format 1 is published: nothing of an event, the team file or the HTTP API is removed or changed, only added to."""

import copy
from typing import Any

import pytest

from tests.format.published import DOCUMENTS, broken, present, published


@pytest.mark.parametrize("name", DOCUMENTS)
def test_nothing_published_was_removed_or_changed(name: str) -> None:
    assert list(broken(published(name), present(name))) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_everything_there_is_is_published(name: str) -> None:
    """`python -m tests.format.published` writes what was added."""
    assert list(broken(present(name), published(name))) == []


def changed(document: Any, *path: str, to: object) -> Any:
    """A copy of a document with one value changed; `...` removes it."""
    copied = copy.deepcopy(document)
    place = copied
    for key in path[:-1]:
        place = place[key]
    if to is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return copied


@pytest.mark.parametrize(
    ("name", "path", "to"),
    [
        ("events-1.json", ("attempt.failed",), ...),
        ("events-1.json", ("attempt.failed", "fields", "failure"), ...),
        ("events-1.json", ("attempt.failed", "fields", "task", "type"), "int"),
        ("events-1.json", ("attempt.failed", "fields", "task", "required"), False),
        ("team-file-1.json", ("properties", "budget"), ...),
        ("team-file-1.json", ("properties", "name", "default"), "crew"),
        ("http-api-1.json", ("paths", "/api/runs", "post"), ...),
        ("http-api-1.json", ("components", "schemas", "RunSummary", "properties", "state"), ...),
    ],
)
def test_a_change_of_what_is_published_is_found(name: str, path: tuple[str, ...], to: object) -> None:
    assert len(list(broken(published(name), changed(published(name), *path, to=to)))) == 1


def test_a_union_of_facts_may_grow_and_may_not_shrink() -> None:
    events = published("events-1.json")
    union = events["noted"]["fields"]["fact"]["type"]
    more = changed(events, "noted", "fields", "fact", "type", to=f"facts.Another | {union}")
    assert list(broken(events, more)) == []
    assert len(list(broken(more, events))) == 1
    api = published("http-api-1.json")
    note = ("components", "schemas", "NoteTrace", "properties", "fact")
    fewer = copy.deepcopy(api)
    facts = next(
        item for item in fewer["components"]["schemas"]["NoteTrace"]["properties"]["fact"]["anyOf"] if "anyOf" in item
    )
    facts["anyOf"].pop()
    assert list(broken(fewer, api)) == []
    assert [line.startswith("/" + "/".join(note)) for line in broken(api, fewer)] == [True]


def test_an_addition_and_another_wording_are_allowed() -> None:
    document = published("team-file-1.json")
    document["properties"]["name"]["description"] = "Another sentence."
    document["properties"]["colour"] = {"type": "string"}
    assert list(broken(published("team-file-1.json"), document)) == []
