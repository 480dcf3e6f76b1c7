"""Reading files inside a folder: every way out is closed."""

import asyncio
import contextlib
import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chargehand.errors import Invalid
from chargehand.models.artifacts import Passages, Table
from chargehand.tools.files import MOST_BYTES, files
from chargehand.tools.tool import ToolFailed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("SECRET", encoding="utf-8")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key.txt").write_text("SECRET", encoding="utf-8")
    inside = tmp_path / "inside"
    (inside / "notes").mkdir(parents=True)
    (inside / "notes" / "a.md").write_text("".join(f"line {n}\n" for n in range(1, 501)), encoding="utf-8")
    (inside / "b.txt").write_text("short", encoding="utf-8")
    (inside / ".hidden").write_text("SECRET", encoding="utf-8")
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    (inside / "up").symlink_to(tmp_path / "private")
    (inside / "loop").symlink_to("loop")
    (inside / "same.txt").symlink_to("b.txt")
    return inside


async def read(root: Path, path: str, **more: int) -> tuple[str, str]:
    found = await files(root)[0].call(json.dumps({"path": path, **more}), "k")
    assert isinstance(found, Passages)
    return found.found[0].source, found.found[0].text


async def refusal(root: Path, path: str, **more: int) -> str:
    with pytest.raises(ToolFailed) as caught:
        await read(root, path, **more)
    return str(caught.value)


async def test_a_file_is_read_by_lines(root: Path) -> None:
    assert await read(root, "b.txt") == ("b.txt#L1-L1", "short")
    source, text = await read(root, "notes/a.md", start=10, lines=2)
    assert (source, text) == ("notes/a.md#L10-L11", "[lines 10 to 11 of 500]\nline 10\nline 11\n")
    assert (await read(root, "notes/a.md"))[0] == "notes/a.md#L1-L200"
    assert "has 500 lines" in await refusal(root, "notes/a.md", start=501)


async def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    assert (await read(root, "same.txt"))[1] == "short"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "notes/../../secret.txt",
        "notes/../b.txt",
        "/etc/passwd",
        "//etc/passwd",
        "link.txt",
        "up/key.txt",
        "up/../secret.txt",
        "loop",
        "b.txt\0.md",
        "\0",
        "",
        " ",
        ".",
        "notes",
        "missing.txt",
        "b.txt/x",
        "~/x",
        "x" * 300,
        "\ud800",
        "..",
        "...",
        "b.txt/../../secret.txt",
        "notes/./../../secret.txt",
    ],
)
async def test_no_path_leads_out_of_the_folder(root: Path, path: str) -> None:
    assert "SECRET" not in await refusal(root, path)


PARTS = st.sampled_from(
    ["..", ".", "/", "up", "link.txt", "notes", "secret.txt", "key.txt", "private", "\0", "%2e%2e", "\\"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(PARTS, max_size=6))
def test_no_mix_of_parts_leads_out_of_the_folder(root: Path, parts: list[str]) -> None:
    for path in ("/".join(parts), "".join(parts)):
        with pytest.raises(ToolFailed):
            asyncio.run(read(root, path))


async def test_pipes_sockets_and_devices_are_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(root)  # the path of a socket must be short
        try:
            listener.bind("socket")
        finally:
            os.chdir(before)
        assert "is no file" in await refusal(root, "pipe")
        assert "cannot read" in await refusal(root, "socket")
    (root / "null").symlink_to("/dev/zero")
    assert "leads out" in await refusal(root, "null")


async def test_what_is_no_text_or_too_large_is_refused(root: Path) -> None:
    (root / "x.bin").write_bytes(b"abc\x00def")
    (root / "latin.txt").write_bytes(b"caf\xe9")
    with (root / "large.txt").open("wb") as large:
        large.truncate(MOST_BYTES + 1)
    assert "not a text file" in await refusal(root, "x.bin")
    assert "not a text file" in await refusal(root, "latin.txt")
    assert "is the most" in await refusal(root, "large.txt")
    (root / "wide.txt").write_text("x" * 1_000_000, encoding="utf-8")
    assert len((await read(root, "wide.txt"))[1]) < 70_000


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_no_file_stays_open(root: Path) -> None:
    await read(root, "b.txt")
    before = open_files()
    for path in ("b.txt", "notes/a.md", "missing", "up/key.txt", "notes", "b.txt/x"):
        with contextlib.suppress(ToolFailed):
            await read(root, path)
    assert open_files() == before


async def test_files_are_listed_without_links_and_hidden_ones(root: Path) -> None:
    listing = files(root)[1]
    assert await listing.call("{}", "k") == Table(
        ("path", "bytes"), (("b.txt", 5), ("notes/a.md", 4392)), "inside", "*"
    )
    found = await listing.call('{"pattern": "*.md"}', "k")
    assert isinstance(found, Table)
    assert found.rows == (("notes/a.md", 4392),)
    for pattern in ("*.csv", "../*", "/etc/*", ""):
        with pytest.raises(ToolFailed, match="try"):
            await listing.call(json.dumps({"pattern": pattern}), "k")


async def test_a_long_list_is_cut_and_says_so(tmp_path: Path) -> None:
    for n in range(205):
        (tmp_path / f"{n:03d}.txt").touch()
    found = await files(tmp_path)[1].call("{}", "k")
    assert isinstance(found, Table)
    assert (len(found.rows), found.more) == (200, 5)


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no folder"):
        files(tmp_path / "missing")
