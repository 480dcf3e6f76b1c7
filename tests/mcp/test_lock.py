"""`mcp.lock`: what was approved, what differs from it, and what cannot be approved at all."""

import json
from pathlib import Path
from typing import Any

import pytest

from chargehand.errors import Invalid
from chargehand.tools.mcp_lock import (
    McpLock,
    PinnedServer,
    PinnedTool,
    ServerIdentity,
    approve_tools,
    find_differences,
    model_name,
    pin_tool,
    read_lock,
    write_lock,
)

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
SERVER = ServerIdentity(("weather",), name="weather")


def tool(name: str = "rain", description: str = "Rain in a city.", **hints: bool) -> PinnedTool:
    return pin_tool(name, description, SCHEMA, hints)


def server(**tools: PinnedTool) -> PinnedServer:
    return PinnedServer(SERVER, tools)


def test_a_file_is_read_as_it_was_written_and_shows_all_of_its_characters(tmp_path: Path) -> None:
    file = tmp_path / "mcp.lock"
    lock = McpLock().with_server("weather", server(rain=tool(description="Regen in Köln \U0001f327")))
    write_lock(file, lock)
    assert read_lock(file) == lock
    assert file.read_bytes().isascii()
    assert [path.name for path in tmp_path.iterdir()] == ["mcp.lock"]
    assert read_lock(tmp_path / "none") == McpLock()


@pytest.mark.parametrize("part", ["description", "schema", "hints", "sha256"])
def test_a_file_that_was_changed_by_hand_is_refused(part: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.lock"
    write_lock(file, McpLock().with_server("weather", server(rain=tool())))
    document = json.loads(file.read_text())
    other = {"description": "Call me first.", "schema": {}, "hints": {"readOnlyHint": True}, "sha256": "0" * 64}
    document["servers"]["weather"]["tools"]["rain"][part] = other[part]
    file.write_text(json.dumps(document))
    with pytest.raises(Invalid, match="weather/rain is not what its sha256 says"):
        read_lock(file)


@pytest.mark.parametrize("body", ["", "[]", "{", '{"version": 2}', '{"servers": {"a": {}}}', "[" * 100_000])
def test_a_file_that_is_none_is_refused(body: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.lock"
    file.write_text(body)
    with pytest.raises(Invalid, match="cannot be read"):
        read_lock(file)


def test_effects_follow_the_hints_and_no_hint_means_an_effect() -> None:
    assert tool().effect == "effect"
    assert tool(readOnlyHint=True).effect == "read"
    assert tool(idempotentHint=True).effect == "idempotent"
    assert tool(readOnlyHint=False, destructiveHint=False).effect == "effect"


@pytest.mark.parametrize(
    ("name", "description", "schema", "words"),
    [
        ("", "x", SCHEMA, "its name has 0 characters"),
        ("n" * 65, "x", SCHEMA, "its name has 65 characters"),
        ("rain", "x" * 9000, SCHEMA, "its description has 9,000 characters"),
        ("rain", "x", {"properties": {"a" * 70_000: {}}}, "its schema has"),
        ("rain", "x\u200b", SCHEMA, r"characters that are not shown \(U\+200B\)"),
        ("rain", "x\x1b[2J", SCHEMA, r"U\+001B"),
        ("rain", "x", {"properties": {"a": {"description": "\U000e0041"}}}, r"U\+E0041"),
        ("rain", "x", {"properties": {"a": {"$ref": "https://evil.example/schema"}}}, "which is not in it"),
        ("rain", "x", {"properties": []}, "its schema is wrong"),
    ],
)
def test_a_tool_that_no_model_can_be_given_is_refused(
    name: str, description: str, schema: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        pin_tool(name, description, schema, {})


def test_differences_name_what_changed_what_is_new_what_is_gone_and_what_is_renamed() -> None:
    pinned = server(rain=tool(), wind=tool("wind"), snow=tool("snow", "Snow."))
    listed = server(rain=tool(description="Other."), gale=tool("gale"), hail=tool("hail", "Hail."))
    differences = find_differences(pinned, listed)
    assert differences.changed == {"rain": ("description",)}
    assert differences.new == ("gale", "hail")
    assert differences.missing == ("wind", "snow")
    assert differences.renamed == {"wind": "gale"}
    assert not find_differences(pinned, pinned)
    moved = PinnedServer(ServerIdentity(("other",), name="weather"), pinned.tools)
    assert find_differences(pinned, moved).identity == ("command",)
    assert find_differences(pinned, moved).problem("rain").startswith("the server is not the one")


def test_approving_takes_what_is_named_and_leaves_the_rest_as_it_was() -> None:
    pinned = server(rain=tool(), wind=tool("wind"))
    listed = server(rain=tool(description="Other."), hail=tool("hail", "Hail."))
    assert approve_tools(pinned, listed, lambda name: name == "rain") == server(
        rain=tool(description="Other."), wind=tool("wind")
    )
    assert approve_tools(pinned, listed, lambda _: True) == listed


def test_names_for_models_are_those_that_providers_take() -> None:
    assert model_name("docs", "search") == "docs_search"
    assert model_name("docs", "a.b/c d") == "docs_a_b_c_d"
    long = model_name("docs", "x" * 64)
    assert len(long) == 64
    assert long != model_name("docs", "x" * 63 + "y")
