"""The tool that reads a page of the web, through `egress`: HTML becomes plain text, and nothing of it runs."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from html import unescape

from msgspec import Struct

from chargehand.models.artifacts import FoundPassage, Passages
from chargehand.tools.calling import ToolFailed
from chargehand.tools.egress import Egress, FetchedPage
from chargehand.tools.tool import Tool, tool

NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]{0,15})")
QUOTE = re.compile(r"=\s*([\"'])")
UNREAD = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object", "nav", "title", "textarea"})
CLOSINGS = {name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in UNREAD}
PARAGRAPHS = re.compile("article|blockquote|h[1-6]|p|pre|section|table")
BREAKS = re.compile("address|aside|br|dd|div|dl|dt|figcaption|figure|footer|form|header|hr|li|main|ol|tr|ul")
CELLS = re.compile("td|th")


class ReadableHtml(Struct, frozen=True):
    title: str
    text: str


class Scanner:
    """Walks through a page once. What was looked for and is not there any more is remembered, so it is sought once."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._absent: set[str] = set()
        self._out: list[str] = []
        self._title = ""

    def read(self) -> ReadableHtml:
        place = 0
        while (tag := self._find("<", place)) >= 0:
            self._out.append(self._page[place:tag])
            place = self._past(tag)
        self._out.append(self._page[place:])
        return ReadableHtml(tidy(self._title), tidy("".join(self._out)))

    def _find(self, what: str, start: int) -> int:
        if what in self._absent:
            return -1
        position = self._page.find(what, start)
        if position < 0:
            self._absent.add(what)
        return position

    def _past(self, tag: int) -> int:
        """Where it goes on after what starts here with `<`."""
        if self._page.startswith("<!--", tag):
            end = self._find("-->", tag + 4)
            return len(self._page) if end < 0 else end + 3
        if self._page.startswith(("<!", "<?"), tag):
            end = self._find(">", tag)
            return len(self._page) if end < 0 else end + 1
        match = NAME.match(self._page, tag)
        if match is None:
            self._out.append("<")
            return tag + 1
        end = self._end_of_tag(match.end())
        return self._passed(match[1].lower(), end, opens=self._page[tag + 1] != "/")

    def _end_of_tag(self, place: int) -> int:
        """Past its `>`, which may not be one inside quotes."""
        end = self._find(">", place)
        while end >= 0 and (quoted := QUOTE.search(self._page, place, end)):
            place = self._find(quoted[1], quoted.end()) + 1
            if place == 0:  # never closed: not a quote then
                break
            if place > end:
                end = self._find(">", place)
        return len(self._page) if end < 0 else end + 1

    def _passed(self, name: str, end: int, *, opens: bool) -> int:
        if PARAGRAPHS.fullmatch(name):
            self._out.append("\n\n")
        elif BREAKS.fullmatch(name):
            self._out.append("\n- " if name == "li" and opens else "\n")
        elif CELLS.fullmatch(name) and opens:
            self._out.append(" | ")
        return self._skipped(name, end) if opens and name in UNREAD else end

    def _skipped(self, name: str, start: int) -> int:
        """Past the closing tag of what is not read; one that is never closed is only a tag."""
        if name in self._absent:
            return start
        closing = CLOSINGS[name].search(self._page, start)
        if closing is None:
            self._absent.add(name)
            return start
        if name == "title":
            self._title = self._title or self._page[start : closing.start()]
        return self._end_of_tag(closing.end())


def tidy(text: str) -> str:
    """Entities as characters, runs of white space as one, at most one empty line."""
    try:
        text = unescape(text)
    except ValueError:  # a number of a character with thousands of digits
        text = text.replace("&#", "")
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def readable(page: str) -> ReadableHtml:
    """The title and the text of a page of HTML."""
    return Scanner(page).read()


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
        parts = tuple(await asyncio.to_thread(passages, page))
        if not parts:
            raise ToolFailed(f"{page.url} holds no text to read")
        return Passages(page.url, parts)

    return fetch_page


def passages(page: FetchedPage) -> Iterator[FoundPassage]:
    """The text in pieces that can be cited, the title first. Each names the page it is from."""
    if page.content_type in HTML:
        plain = readable(page.text)
        text = f"{plain.title}\n\n{plain.text}" if plain.title else plain.text
    else:
        text = page.text.replace("\r\n", "\n")
    if page.cut:
        text += "\n\n(The page goes on; this is its beginning.)"
    for piece in pieces(text.strip()):
        yield FoundPassage(page.url, piece)


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
