"""The tool that reads a page of the web, through the door of `egress`. How HTML becomes text is up to `readable`."""

import asyncio
from collections.abc import Iterator, Sequence

from chargehand.models.exhibits import Passage, Passages
from chargehand.tools.calling import ToolFailed
from chargehand.tools.egress import Egress, Page
from chargehand.tools.readable import readable
from chargehand.tools.tool import Tool, tool

LONGEST = 2000
HTML = frozenset({"text/html", "application/xhtml+xml"})


def fetch(allow: Sequence[str] = (), *, ports: frozenset[int] = frozenset(), egress: Egress | None = None) -> Tool:
    """A tool that reads public web pages. With `allow` only from these hosts: `example.com`, `*.example.com`."""
    door = egress or Egress(allow=allow, ports=ports)

    @tool(name="fetch", effect="read", timeout=30.0)
    async def fetch_page(url: str) -> Passages:
        """Read a public web page or text file and return its text in passages.

        url: the full address, starting with http:// or https://
        """
        page = await door.get(url)
        found = tuple(await asyncio.to_thread(passages, page))
        if not found:
            raise ToolFailed(f"{page.url} holds no text to read")
        return Passages(page.url, found)

    return fetch_page


def passages(page: Page) -> Iterator[Passage]:
    """The text in pieces that can be cited, the title first. Each names the page it is from."""
    if page.content_type in HTML:
        plain = readable(page.text)
        text = f"{plain.title}\n\n{plain.text}" if plain.title else plain.text
    else:
        text = page.text.replace("\r\n", "\n")
    if page.cut:
        text += "\n\n(The page goes on; this is its beginning.)"
    for piece in pieces(text.strip()):
        yield Passage(page.url, piece)


def pieces(text: str) -> Iterator[str]:
    """Cut between paragraphs where possible, else between lines, else anywhere."""
    start = 0
    while len(text) - start > LONGEST:
        end = max(text.rfind("\n\n", start + 1, start + LONGEST), start)
        end = end if end > start else max(text.rfind("\n", start + 1, start + LONGEST), start)
        end = end if end > start else start + LONGEST
        if piece := text[start:end].strip():
            yield piece
        start = end
    if piece := text[start:].strip():
        yield piece
