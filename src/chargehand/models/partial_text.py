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
_FENCE = re.compile(r" {0,3}(?P<sign>```+|~~~+)(?P<info>.*)")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,2}[.)])\s+(?P<what>\S.*)")
_LABELS = "sources?|references?|notes?|confidence|caveats?|summary|next steps?|assumptions?"
_OTHER = re.compile(rf"\s*(?:[|>#]|```|~~~|[*_]{{0,3}}(?:{_LABELS})[*_]{{0,3}}:)", re.IGNORECASE)
_NONE = re.compile(
    r"(?:nothing|none|nil|n/?a|no(?: parts?)?|not applicable|-*|nichts|keine?s?|rien|aucune?|nada|ninguno|niente)"
    r"(?: (?:at all|else|more|further|left|missing|remains|(?:is|was) (?:left|missing)))?(?: out)?",
    re.IGNORECASE,
)
_LONGEST = 400  # characters of one part
_MARKUP = " \t\r*_"
_GAP = re.compile(r"(?:\\[nrt]|[\W_])+")


def missing_parts(text: str, quoted: Sequence[str] = ()) -> tuple[str, ...]:
    """What a result says it left out, part by part.

    What stands in a block of code, or in one of the texts that the worker `quoted`, does not count.
    """
    if "nswered" not in text and "NSWERED" not in text:
        return ()
    lines = text.split("\n")
    is_code = _find_code(lines)
    sources = [f" {_plain(source)} " for source in quoted]
    parts: dict[str, None] = {}
    for at, line in enumerate(lines):
        opening = None if is_code[at] else _OPENS.match(line)
        if opening is None:
            continue
        items = _read_items(opening, lines[at + 1 :])
        if items and not any(f" {_plain(LEFT + items[0])} " in source for source in sources):
            parts |= dict.fromkeys(sentence for item in items for sentence in _sentences(item))
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
        if not line.strip():
            after_blank = True
            continue
        if item is not None:
            items.append(item["what"])
        elif _OPENS.match(line) or _OTHER.match(line) or (items and (after_blank or _is_over(items[-1]))):
            break
        elif items:
            items[-1] += f" {line.strip()}"  # a line that was broken
        else:
            items.append(line)
        after_blank = False
    if len(items) > 1 and first.endswith(":"):  # "two things:" only says that a list follows
        del items[0]
    return [item.strip(_MARKUP) for item in items]


def _is_over(item: str) -> bool:
    return len(item) > _LONGEST or item.rstrip(_MARKUP).endswith((".", "?", "!"))


def _sentences(item: str) -> list[str]:
    parts = [" ".join(sentence.split()).strip(_MARKUP)[:_LONGEST] for sentence in split_sentences(item)]
    is_none = _NONE.fullmatch("".join(parts[:1]).strip("()[]\"'.!; "))
    return [] if is_none else [part for part in parts if part]


def _find_code(lines: Sequence[str]) -> list[bool]:
    """Which lines are code. A fence that is not closed, or stands around all of it, makes none."""
    is_code = [False] * len(lines)
    sign = ""
    start = 0
    written = [at for at, line in enumerate(lines) if line.strip()]
    for at, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if not sign:
            sign = fence["sign"]
            start = at
        elif fence["sign"].startswith(sign) and not fence["info"].strip():
            if (start, at) != (written[0], written[-1]):
                is_code[start : at + 1] = [True] * (at + 1 - start)
            sign = ""
    return is_code


def _plain(text: str) -> str:
    return _GAP.sub(" ", text).strip().casefold()
