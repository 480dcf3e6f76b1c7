"""How a worker says in words what it left out of a task: at the end of its result, whichever model wrote it.

What becomes of a run in which that was said is not known here.
"""

import re
from collections.abc import Sequence

from chargehand.text.sentences import split_sentences

LEFT = "Not answered here: "
HINT = "nswered"
SHOUTED = "NSWERED"
"""No result without one of these says that something was left out: to look for them is next to free."""

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


def left(text: str, seen: Sequence[str] = ()) -> tuple[str, tuple[str, ...]]:
    """A result without what it says it left out, and that, part by part.

    What stands in a block of code, or in a text that was `seen` before, is quoted and not said.
    """
    if HINT not in text and SHOUTED not in text:
        return text, ()
    lines = text.split("\n")
    fenced = _fenced(lines)
    known = [f" {_words(one)} " for one in seen]
    kept: list[str] = []
    parts: dict[str, None] = {}
    at = 0
    while at < len(lines):
        found = None if fenced[at] else _OPENS.match(lines[at])
        end, said = (at + 1, []) if found is None else _block(lines, at + 1, found)
        if found is None or (said and any(f" {_words(f'{LEFT}{said[0]}')} " in one for one in known)):
            kept += lines[at:end]
        else:
            parts |= dict.fromkeys(sentence for one in said for sentence in _sentences(one))
        at = end
    return "\n".join(kept).strip() if len(kept) < len(lines) else text, tuple(parts)


def _block(lines: Sequence[str], at: int, opening: re.Match[str]) -> tuple[int, list[str]]:
    """Where what was left ends, and its items: the rest of the line, a list below, or the paragraph."""
    first = opening["what"].strip(_MARKUP)
    if first and opening["item"]:
        return at, [first]  # an item itself: those below are other things
    said = [first] if first else []
    while at < len(lines):
        below = next((place for place in range(at, len(lines)) if lines[place].strip()), len(lines))
        line = lines[below] if below < len(lines) else ""
        item = _ITEM.match(line)
        if not line or _OPENS.match(line) or (item is None and (_OTHER.match(line) or (said and below > at))):
            break
        if item is not None:
            said.append(item["what"])
        elif not said:
            said.append(line)
        elif len(said[-1]) > _LONGEST or said[-1].rstrip(_MARKUP).endswith((".", "?", "!")):
            break
        else:
            said[-1] += f" {line.strip()}"  # a line that was broken
        at = below + 1
    if len(said) > 1 and first.endswith(":"):  # "two things:" only says that a list follows
        del said[0]
    return at, [one.strip(_MARKUP) for one in said]


def _sentences(item: str) -> list[str]:
    parts = [" ".join(one.split()).strip(_MARKUP)[:_LONGEST] for one in split_sentences(item)]
    return [] if _NONE.fullmatch("".join(parts[:1]).strip("()[]\"'.!; ")) else [one for one in parts if one]


def _fenced(lines: Sequence[str]) -> list[bool]:
    """Which lines are code. A fence that is not closed, or stands around all of it, makes none."""
    found = [False] * len(lines)
    sign = ""
    since = 0
    spoken = [at for at, line in enumerate(lines) if line.strip()]
    for at, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if not sign:
            sign = fence["sign"]
            since = at
        elif fence["sign"].startswith(sign) and not fence["info"].strip():
            if (since, at) != (spoken[0], spoken[-1]):
                found[since : at + 1] = [True] * (at + 1 - since)
            sign = ""
    return found


def _words(text: str) -> str:
    return _GAP.sub(" ", text).strip().casefold()
