"""Where things are kept, as people say it: an archive, or a block by its label; and the tags they give.

What is to be kept there is in `wishes`.
"""

import re

from msgspec import Struct

OUR = r"(?:(?:the|our|your|my|their|this|that|an?|team'?s|team|shared|common)\s+)*"
_KEPT = r"(?:(?:long[- ]term|archival|shared|team|common)\s+)?(?:archives?|memory)"
_ITEM = r"[\"'\u2018\u201c]?\w[\w./ -]{0,40}?[\"'\u2019\u201d]|\w[\w./-]*"
_END = r"(?=\s*(?:[,.;:)!?]|\b(?:and|in|into|to|for)\b|\Z))"
TAGGED = (
    r"\s*[,;(]?\s*(?:and\s+)?\b(?:tagged(?:\s+(?:as|with))?|tag\s+(?:it|them|this)(?:\s+(?:as|with))?|"
    rf"(?:with|under)\s+(?:the\s+)?tags?)\s*:?\s*"
    rf"(?P<tags>(?:{_ITEM}){_END}(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+)(?:{_ITEM}){_END})*)\s*\)?"
)
_PLAIN = frozenset(("long-term", "archival", "shared", "team", "common", "whole", "entire", "same", "company"))
_USUAL = ("notes", "status", "log", "guidelines", "scratchpad", "decisions", "progress", "todo", "persona")
_HIDDEN = re.compile(
    r"\"[^\"\n]{0,1000}\"|\u201c[^\u201d\n]{0,1000}\u201d|`[^`\n]{0,1000}`|(?<!\w)'[^'\n]{0,1000}'(?!\w)"
)
_BLANKS, _LINES = re.compile(r"[^\S\n]+"), re.compile(r"\n[ \n]*")


class Place(Struct, frozen=True):
    """`label` names a block, else it is an archive, which `archive` may name. `start` and `end` are where it stands."""

    start: int
    end: int
    label: str = ""
    archive: str = ""


class Labels(Struct, frozen=True):
    """The blocks there are, by label. `guess`: usual labels are understood too, for whoever cannot see the blocks."""

    known: tuple[str, ...] = ()
    guess: bool = False

    @property
    def pattern(self) -> str:
        """A block by name, as people write it: `team_notes` is "team notes"; with or without the word block."""
        held = sorted({*self.known, *(_USUAL if self.guess else ())}, key=lambda one: (-len(one), one))
        known = "|".join(re.sub(r"(?:_|\\-)+", "[ _-]", re.escape(one)) for one in held)
        named = rf"(?:block\s+)?[\"'`]?(?P<label>{known})[\"'`]?(?:\s+block)?|" if known else ""
        return rf"(?:{named}(?P<strange>[\w-]+)\s+block|block\s+[\"'`]?(?P<quoted>[\w-]+)[\"'`]?)(?![\w-])"

    def named(self, match: re.Match[str], text: str) -> str:
        """The label as the block has it; `text` is what was matched, with its quotations."""
        group = next((one for one in ("label", "strange", "quoted") if match[one]), "label")
        said = text[match.start(group) : match.end(group)]
        plain = re.sub(r"[ _-]", "", said.lower())
        return next((one for one in self.known if re.sub(r"[ _-]", "", one.lower()) == plain), said.lower())


NO_LABELS = Labels()


def archive_pattern() -> str:
    return (
        rf"(?:(?P<archive>(?!(?:in|into|to|of|from)\b)[\w-]+)\s+)?{_KEPT}"
        r"(?:\s+(?:called\s+|named\s+)?[\"'`](?P<called>[\w -]+)[\"'`])?(?![\w-])"
    )


def archive_named(match: re.Match[str], text: str) -> str:
    """The name of an archive, where the words give it one; `text` is what was matched, with its quotations."""
    group = "called" if match["called"] else "archive"
    said = text[match.start(group) : match.end(group)].lower() if match[group] else ""
    return "" if said in _PLAIN else said


def places(text: str, labels: Labels = NO_LABELS) -> list[Place]:
    """Every "in the archive" and "to the notes", in order."""
    before = rf"\b(?:in|into|to|on|onto|from)\s+{OUR}"
    hidden = masked(text)
    found = [
        Place(match.start(), match.end(), archive=archive_named(match, text))
        for match in re.finditer(before + archive_pattern(), hidden, re.IGNORECASE)
    ]
    for match in re.finditer(before + labels.pattern, hidden, re.IGNORECASE):
        if not any(one.start < match.end() and match.start() < one.end for one in found):
            found.append(Place(match.start(), match.end(), label=labels.named(match, text)))
    return sorted(found, key=lambda one: one.start)


def tag_list(said: str | None) -> tuple[str, ...]:
    """`carrier, "late parcels" and strike` as three tags."""
    parts = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", said or "")
    plain = (part.strip(" \"'\u2018\u2019\u201c\u201d.").lower() for part in parts)
    return tuple(dict.fromkeys(one for one in plain if one))


def tidy(text: str) -> str:
    """The text without runs of blanks and empty lines: patterns that begin with a blank take long over those."""
    return _LINES.sub("\n", _BLANKS.sub(" ", text))


def masked(text: str) -> str:
    """The text with quotations made of x, as long as before: what stands in them is not looked at."""
    return _HIDDEN.sub(lambda found: found[0][0] + "x" * (len(found[0]) - 2) + found[0][-1], text)
