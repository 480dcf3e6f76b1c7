"""Clauses about memory: what is to be kept, where, and what is asked of an archive or a block."""

import re

from msgspec import Struct

from chargehand.models.demo.request import Clause
from chargehand.models.demo.tools import ToolCard
from chargehand.models.demo.words import content_stems, join_words, stem, word_set
from chargehand.models.subject import Shown

INSERT = "archival_memory_insert"
APPEND = "core_memory_append"
SEARCH = "archival_memory_search"
_TAGGED = re.compile(r"\btagged (?:as |with )?(?P<tags>[\w-]+(?:(?:,\s*(?:and )?|\s+and\s+)[\w-]+)*)", re.IGNORECASE)
_PLACE = re.compile(
    r"\b(?:to|in|into|on|onto)\s+(?:the |our |my |your )?(?:block )?(?P<place>[\w-]+)(?P<block> block)?", re.IGNORECASE
)
LOOKING = word_set("research find search look tell say list show report")
"""Verbs that ask for what is known."""
_ARCHIVE = frozenset(map(stem, word_set("archive memory findings")))
_KNOWN = re.compile(
    r"\bwhat (?:do|did|have) we (?:already )?(?:know|find|found|learn|learnt|learned|keep|kept)(?P<already>\b.*)",
    re.IGNORECASE,
)
_ALREADY = re.compile(
    r"\b(?:already (?:know|have|found|kept)|in (?:the|our) archive|search the archive)\b", re.IGNORECASE
)
_THAT = re.compile(
    r"\A(?:remember|note|keep in mind|record)(?: down)?(?: that)?[:\s]+(?P<what>.+)", re.IGNORECASE | re.DOTALL
)


class Keeping(Struct, frozen=True):
    """Something that is to be kept: in an archive with tags, or on a block."""

    block: str = ""
    tags: tuple[str, ...] = ()
    text: str = ""
    """What is to be kept, where the clause itself says it; else it is what was found."""

    @property
    def tool(self) -> str:
        return APPEND if self.block else INSERT

    def sentence(self) -> str:
        """How a task says it."""
        if self.block:
            return f"Add what you find to the block {self.block}."
        tags = f", tagged {join_words(list(self.tags))}" if self.tags else ""
        return f"Keep what you find in the archive{tags}."


def read_keeping(clause: Clause) -> Keeping | None:
    """What a clause of the kind `keep` asks for; None where it is not clear."""
    tagged = _TAGGED.search(clause.text)
    tags = tuple(re.findall(r"[\w-]+", re.sub(r"\band\b", " ", tagged["tags"]))) if tagged else ()
    plain = clause.text[: tagged.start()] if tagged else clause.text
    place = None
    for match in _PLACE.finditer(plain):
        place = match
    what = _THAT.match(clause.text)
    if what is not None and not clause.points_back:
        return Keeping(text=what["what"].strip().rstrip("."), tags=tags)
    if place is not None and stem(place["place"]) not in _ARCHIVE:
        return Keeping(block=place["place"].lower(), tags=tags)
    if place is not None or tags or clause.points_back:
        return Keeping(tags=tags)
    return None


def asks_archive(clause: Clause) -> bool:
    """Whether a clause asks what was kept earlier."""
    return _ALREADY.search(clause.text) is not None


def archive_words(clause: Clause) -> str:
    """What to look for in an archive."""
    verb = clause.tokens[0] if clause.tokens and clause.tokens[0].text.lower() in LOOKING else None
    words = [token.text for token in clause.content if token.stem not in _ASKING and token != verb]
    words += [period.words for period in clause.periods]
    return " ".join(words)


_ASKING = frozenset(map(stem, word_set("already know known found kept archive search find memory learnt learned have")))


def asked_block(clause: Clause, blocks: tuple[Shown, ...]) -> Shown | None:
    """The block that a clause asks about by its name."""
    words = {token.stem for token in clause.tokens}
    named = [block for block in blocks if set(content_stems(block.label)) <= words]
    return named[0] if len(named) == 1 else None


def find_tool(name: str, tools: list[ToolCard]) -> ToolCard | None:
    return next((tool for tool in tools if tool.name == name), None)
