"""What a team remembers, over HTTP: blocks with versions, their history, archives to search."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.api import Garden, garden, key_for

BLOCK = "/api/teams/garden/blocks/rules"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Garden]:
    with garden(tmp_path) as found:
        yield found


def test_a_block_is_found_by_its_label_and_by_its_id(home: Garden) -> None:
    listed = home.client.get("/api/teams/garden/blocks").json()["blocks"]
    assert [(one["label"], one["value"]) for one in listed] == [("rules", "Prices are in euros.")]
    assert home.client.get(f"/api/teams/garden/blocks/{listed[0]['id']}").json() == listed[0]
    assert home.client.get(BLOCK).json() == listed[0]
    assert home.client.get("/api/teams/garden/blocks/none").status_code == 404


def test_an_edit_names_the_version_it_was_made_from_and_a_late_one_is_refused(home: Garden) -> None:
    changed = home.client.put(BLOCK, json={"value": "Prices are in euros, with tax.", "version": 1})
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    late = home.client.put(BLOCK, json={"value": "something else", "version": 1})
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    assert home.client.get(BLOCK).json()["value"] == "Prices are in euros, with tax."


def test_the_history_of_a_block_is_paged_and_says_who_changed_what(home: Garden) -> None:
    home.client.put(BLOCK, json={"value": "Prices are in euros. Tax is in.", "version": 1})
    page = home.client.get(f"{BLOCK}/history", params={"limit": 1}).json()
    (change,) = page["changes"]
    assert (change["version"], change["origin"]["by"], change["added"]) == (2, "person", " Tax is in.")
    rest = home.client.get(f"{BLOCK}/history", params={"before": page["next"]}).json()
    assert [one["version"] for one in rest["changes"]] == [1]
    assert rest["next"] is None


def test_archives_are_searched_by_name_and_unknown_ones_are_said(home: Garden) -> None:
    assert [one["name"] for one in home.client.get("/api/teams/garden/archives").json()["archives"]] == ["findings"]
    asked = {"query": "frost", "archives": ["findings"]}
    assert home.client.post("/api/teams/garden/search", json=asked).json() == {"hits": []}
    asked["archives"] = ["attic"]
    assert home.client.post("/api/teams/garden/search", json=asked).status_code == 404


def test_what_one_tenant_writes_another_does_not_see(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        home.client.put(BLOCK, json={"value": "ours", "version": 1})
        assert home.client.get(BLOCK, headers=key_for(tmp_path, "lab")).json()["value"] == "Prices are in euros."
