"""Reading a page: through the door, as text in passages that name their source."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from chargehand.models.artifacts import Passages
from chargehand.tools.calling import ToolFailed
from chargehand.tools.egress import Egress, FetchedPage, Forbidden
from chargehand.tools.fetch import LONGEST, fetch, passages, readable

PAGE = """<!doctype html><html><head><title>Tides &amp; moons</title><style>p { color: red }</style>
<script>document.write("<p>not this</p>")</script></head><body><nav><a href="/">menu</a></nav>
<h1>Tides</h1><p>Two high <b>tides</b>   a
day.<p>When x &lt; y &eacute;<br>next<ul><li>neap<li>spring</ul>
<table><tr><th>Port</th><th>m</th></tr><tr><td>Brest</td><td>6.1</td></tr></table>
<img alt="a > b" src='x'><!-- hidden <p>comment --> 3 < 4<svg><text>drawn</text></svg></body></html>"""


@asynccontextmanager
async def serving(body: bytes, content_type: str) -> AsyncGenerator[tuple[str, Egress]]:
    """One page on a loopback server, its URL, and a door that may reach it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nX-Inner: secret\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://site.test:{port}/page", Egress(allow_private=frozenset({("127.0.0.1", port)}), resolve=resolve)


def arguments(url: str) -> str:
    return msgspec.json.encode({"url": url}).decode()


async def test_a_page_is_read_and_names_its_source() -> None:
    async with serving(PAGE.encode(), "text/html; charset=utf-8") as (url, door):
        found = await fetch(egress=door).call(arguments(url), "k")
    assert isinstance(found, Passages)
    assert found.query == url
    assert [passage.source for passage in found.found] == [url]
    assert found.found[0].text.startswith("Tides & moons\n\nTides\n\nTwo high tides a\nday.")
    assert "secret" not in found.found[0].text


async def test_json_comes_as_it_is() -> None:
    async with serving(b'{"a": "<b>"}', "application/json") as (url, door):
        found = await fetch(egress=door).call(arguments(url), "k")
    assert isinstance(found, Passages)
    assert found.found[0].text == '{"a": "<b>"}'


async def test_a_page_without_text_is_a_failure_in_words() -> None:
    async with serving(b"<script>1</script>", "text/html") as (url, door):
        with pytest.raises(ToolFailed, match="holds no text"):
            await fetch(egress=door).call(arguments(url), "k")


async def test_the_tool_as_it_comes_reaches_nothing_private() -> None:
    async with serving(b"private", "text/plain") as (url, _):
        port = url.split(":")[2].removesuffix("/page")
        for tool in (
            fetch(),
            fetch(ports=frozenset({int(port)})),
            fetch(allow=["127.0.0.1"], ports=frozenset({int(port)})),
        ):
            with pytest.raises(Forbidden):
                await tool.call(arguments(f"http://127.0.0.1:{port}/page"), "k")


def test_it_says_what_it_does_and_only_reads() -> None:
    tool = fetch()
    assert (tool.name, tool.effect) == ("fetch", "read")
    assert "web page" in tool.spec.description
    assert msgspec.json.decode(tool.spec.parameters)["required"] == ["url"]


def test_what_a_reader_would_read_is_left() -> None:
    plain = readable(PAGE)
    assert plain.title == "Tides & moons"
    assert plain.text == (
        "Tides\n\nTwo high tides a\nday.\n\nWhen x < y é\nnext\n\n- neap\n- spring\n\n"
        "| Port | m\n\n| Brest | 6.1\n\n3 < 4"
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a<b>c</b", "ac"),
        ("a <!-- never closed", "a"),
        ("<p title='it's'>x</p>", "x"),
        ('<p title="never closed>x</p>', "x"),
        ("<script>never closed", "never closed"),
        ("<SCRIPT>no</ScRiPt >yes", "yes"),
        ("&#" + "9" * 5000 + ";", "9" * 5000 + ";"),
        ("a&nbsp;b&bogus;c", "a b&bogus;c"),
        ("<![CDATA[x]]>y", "y"),
        ("<?php echo 1 ?>y", "y"),
        ("1 <2> 3", "1 <2> 3"),
    ],
)
def test_broken_html_is_read_as_far_as_it_goes(page: str, text: str) -> None:
    assert readable(page).text == text


@pytest.mark.parametrize(
    "piece",
    ["<", "<!--", "</", "<a ", "<a b=", "<a b='", '<a b="c" ', "<?", "<![", "&#", "<script>", "<svg><nav>", "= "],
)
@pytest.mark.parametrize("before", ["", "<a ", '<a x="', "<title>"])
def test_no_page_takes_time_that_grows_with_its_square(piece: str, before: str) -> None:
    began = time.process_time()
    readable(before + piece * (300_000 // len(piece)) + ">")
    assert time.process_time() - began < 3  # a tenth of that; the standard library's parser takes minutes


def test_a_long_text_is_cut_between_paragraphs_and_nothing_is_lost() -> None:
    paragraphs = [f"paragraph {n} " + "word " * (n % 90) for n in range(200)]
    text = "\n\n".join(part.strip() for part in paragraphs)
    found = [passage.text for passage in passages(FetchedPage("http://a.test/", "text/plain", text))]
    assert "\n\n".join(found) == text
    assert max(map(len, found)) <= LONGEST
    assert len(found) > 10


def test_a_line_longer_than_a_passage_is_cut_anywhere_and_nothing_is_lost() -> None:
    found = [passage.text for passage in passages(FetchedPage("http://a.test/", "text/plain", "x" * 5001))]
    assert [len(part) for part in found] == [LONGEST, LONGEST, 1001]


def test_a_page_that_was_cut_says_so() -> None:
    *_, last = passages(FetchedPage("http://a.test/", "text/plain", "x", cut=True))
    assert last.text.endswith("(The page goes on; this is its beginning.)")
