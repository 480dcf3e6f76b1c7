"""How a worker says in words what it left out of a task: at the end of its result, by whichever model."""

import re
from collections.abc import Sequence

from chargehand.text.words import split_sentences

LEFT = "Not answered here: "

_OPENS = re.compile(
    r" {0,3}(?:#{1,6} +|(?P<item>(?:[-*+•]|\d{1,2}[.)]) +))?"
    r"[*_]{0,3}not answered here[*_]{0,3} ?[:\uff1a][*_]{0,3}(?P<what>.*)",
    re.IGNORECASE,
)
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,2}[.)])\s+(?P<what>\S.*)")
_OTHER = re.compile(r"\s*(?:[|>#]|```|~~~|[*_]{0,3}\w{3,12}[*_]{0,3}:)")
"""A table, a quotation, a heading, a block of code, or a label such as `Sources:`."""
_NONE = re.compile(
    r"(?:nothing|none|n/?a|no parts?|not applicable|-*)(?: (?:else|more|was left)(?: out)?)?", re.IGNORECASE
)
_LONGEST = 400  # characters of one part
_MARKUP = " \t\r*_"
_GAP = re.compile(r"(?:\\[nrt]|[\W_])+")


def missing_parts(text: str, quoted: Sequence[str] = ()) -> tuple[str, ...]:
    """What a result says it left out, part by part; not what stands in one of the texts that the worker `quoted`."""
    lines = text.split("\n")
    parts: dict[str, None] = {}
    for number, line in enumerate(lines):
        opening = _OPENS.match(line)
        if opening is None:
            continue
        items = _read_items(opening, lines[number + 1 :])
        if items and not _is_quoted(LEFT + items[0], quoted):
            for item in items:
                parts |= dict.fromkeys(_sentences(item))
    return tuple(parts)


def _read_items(opening: re.Match[str], following: Sequence[str]) -> list[str]:
    """The rest of the line, a list below, or the paragraph."""
    first = opening["what"].strip(_MARKUP)
    if first and opening["item"]:
        return [first]  # an item itself: those below are other things
    items = [first] if first else []
    after_blank = False
    for line in following:
        item = _ITEM.match(line)
        if item is not None:
            items.append(item["what"])
        elif line.strip():
            if _OTHER.match(line) or _OPENS.match(line) or (items and after_blank):
                break
            if items:
                items[-1] += f" {line.strip()}"  # a line that was broken
            else:
                items.append(line)
        after_blank = not line.strip()
    if len(items) > 1 and first.endswith(":"):  # "two things:" only says that a list follows
        del items[0]
    return [item.strip(_MARKUP) for item in items]


def _sentences(item: str) -> list[str]:
    parts = [" ".join(sentence.split()).strip(_MARKUP)[:_LONGEST] for sentence in split_sentences(item)]
    if not parts or _NONE.fullmatch(parts[0].strip("()[]\"'.!; ")):
        return []
    return [part for part in parts if part]


def _is_quoted(words: str, sources: Sequence[str]) -> bool:
    wanted = f" {_plain(words)} "
    return any(wanted in f" {_plain(source)} " for source in sources)


def _plain(text: str) -> str:
    return _GAP.sub(" ", text).strip().casefold()
