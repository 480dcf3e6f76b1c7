"""One answer from many results: what was asked, in short; then each part; then sources, and what is missing.

Nothing is added to the results: every figure stands in one of them, and every statement names the task it comes from.
"""

import re
from collections.abc import Sequence

from msgspec import structs

from chargehand.models.exhibits import Chart, Exhibit, Figure, Passages, Table
from chargehand.models.offline.closing import Part, asked, heading, kept, missing, sources, tabled
from chargehand.models.offline.showing import amount, exhibit, figure, product
from chargehand.models.offline.voices import heard, voices
from chargehand.models.subject import Answering

_SENTENCE = re.compile(r".+?[.!?](?=\s|$)(?<!\b[A-Z]\.)|.+$", re.DOTALL)
_SERVES = ("Report ", "Find what is said about ")  # how a task begins that was put in for another one
_READS = re.compile(r"\bt\d+\b")
_LEAD = 320
_WRITTEN = re.compile(r"(?:write|draft|compose|summari[sz]e)\b", re.IGNORECASE)
_SOURCE = re.compile(r"\s*\([^()\s]+\)\s*$")
_FENCED = re.compile(r"(^```.*?^```[ \t]*$)", re.DOTALL | re.MULTILINE)


def answer(subject: Answering) -> str:
    """The answer as Markdown."""
    parts = [Part(given, tabled(product(given.value))) for given in subject.results if given.value is not None]
    gaps = missing(subject)
    if not parts:
        return "\n\n".join(["Nothing of this could be answered.", *gaps])
    parts, notes = kept(parts)
    parts, open_ = heard(parts)
    body = _body(subject, parts)
    return "\n\n".join(part for part in [*body, *notes, *(gaps or open_)] if part) + "\n"


def _body(subject: Answering, parts: list[Part]) -> list[str]:
    if subject.combine == "forward":
        return [*_whole(parts[-1]), *sources(parts[-1:])]
    if len(parts) == 1:
        return [*_whole(parts[0]), *sources(parts)]
    if subject.combine == "reduce":
        return [*_short(parts), *sources(parts)]
    return [*_short(parts), *_details(parts), *sources(parts)]


def _short(parts: Sequence[Part]) -> list[str]:
    """The direct answer: prose that rests on the other results if there is some, else a sentence from each result."""
    if opening := _opening(parts):
        return [_cited(_body_text(opening.product.text), opening.task)]
    named = voices(parts)
    said = [
        _cited(f"{named.get(part.task, '')}{_lead(part)}", part.task) for part in parts if part.task in _told(parts)
    ]
    return ["\n".join(f"- {one}" for one in said) if len(said) > 3 or named else " ".join(said)]


def _told(parts: Sequence[Part]) -> frozenset[str]:
    """Results that belong into the direct answer: not what only served to work out another, but what a chart shows."""
    read = {
        name
        for part in parts
        if not any(isinstance(held, Chart) for held in part.product.exhibits)
        for name in _READS.findall(part.given.instruction)
        if name != part.task
    }
    asked = [part for part in parts if part.task not in read or not part.given.instruction.startswith(_SERVES)]
    return frozenset(part.task for part in asked or parts)


def _opening(parts: Sequence[Part]) -> Part | None:
    """Prose that somebody wrote from the other results."""
    last = parts[-1]
    long = len(last.product.text) > 160 or _WRITTEN.match(last.given.instruction) is not None
    return last if long and not last.product.exhibits else None


def _lead(part: Part) -> str:
    """The first words of a result; of one without words, what its first exhibit comes to."""
    if said := " ".join(_telling(part)):
        return said if len(said) <= _LEAD else f"{said[:_LEAD].rsplit(' ', 1)[0]} \u2026"
    about = asked(part.given).rstrip("?. ")
    for held in part.product.exhibits:
        match held:
            case Figure():
                return f"{figure(structs.replace(held, expression=''))}."
            case Chart():
                return f"{exhibit(held)}."
            case Table() if len(held.rows) == 1 and len(held.rows[0]) == 1:
                return f"{about}: {held.rows[0][0]}."
            case Table():
                return f"{heading(part.given)}: {len(held.rows) + held.more} rows, below."
            case Passages():
                return f"{about}: {len(held.found)} passages, below."
    return f"{heading(part.given)}: see below."


def _telling(part: Part) -> list[str]:
    """The sentences that say what it comes to: those with what was worked out, a first quotation, else the first."""
    text = part.product.text.strip()
    if not text or text.startswith(("|", "- ", "```")):
        return []
    if any(isinstance(held, Passages) for held in part.product.exhibits):
        return _few(_SOURCE.sub("", text.partition("\n")[0]))
    said = [" ".join(found[0].split()) for found in _SENTENCE.finditer(text)]
    made = [held.value for held in part.product.exhibits if isinstance(held, Figure) and held.expression]
    known = {shape for value in made for shape in (value, amount(value), f"{amount(value)}0")}
    worked = [one for one in said if any(_holds_number(one, value) for value in known)]
    if worked and len(" ".join(worked)) <= _LEAD:
        return worked
    together = said[1:2] if said[1:2] and said[1].startswith("Together:") else []
    return [*said[:1], *together]


def _few(text: str) -> list[str]:
    """As many sentences from the beginning as fit."""
    found: list[str] = []
    for match in _SENTENCE.finditer(text):
        one = " ".join(match[0].split())
        if found and len(" ".join([*found, one])) > _LEAD:
            break
        found.append(one)
    return found


def _holds_number(text: str, value: str) -> bool:
    return re.search(rf"(?<![\d.,]){re.escape(value)}(?![\d]|[.,]\d)", text) is not None


def _details(parts: Sequence[Part]) -> list[str]:
    """What the short answer has not said: tables and quotations under headings, small things in a list."""
    found: list[str] = []
    notes: list[str] = []
    opening = _opening(parts)
    told = frozenset[str]() if opening else _told(parts)
    for part in parts:
        if part is opening or (part.task not in _told(parts) and _lone(part)):
            continue
        rest = _rest(part, told=part.task in told)
        if opening and all(line.strip() in opening.product.text for line in rest.splitlines()):
            rest = ""
        shown = [held for held in _exhibits(part) if f"{held}." != _lead(part)]
        if any("\n" in one for one in (rest, *shown)) or (shown and not rest and part.task not in told):
            name = voices(parts).get(part.task, "").rstrip(": ") or heading(part.given)
            found += [f"### {name} [{part.task}]", *([_body_text(rest)] if rest else []), *shown]
        elif rest or shown:
            notes.append(f"- {_cited(' '.join([rest, *shown]).strip(), part.task)}")
    return [*found, *(["### Notes", "\n".join(notes)] if notes else [])]


def _rest(part: Part, *, told: bool) -> str:
    """The words of a result without those that the short answer has."""
    text = part.product.text.strip()
    for one in _telling(part) if told else ():
        text = text.replace(one, "", 1) if one in text else text
    return re.sub(r"^\s*\([^()\s]+\)\s*", "", text.strip()).strip()


def _lone(part: Part) -> bool:
    """Whether a result is one number, which stands in the result that was worked out from it."""
    return all(isinstance(one, Table) and len(one.rows) == 1 for one in part.product.exhibits) and (
        "\n" not in part.product.text.strip()
    )


def _whole(part: Part) -> list[str]:
    return [_cited(_body_text(part.product.text), part.task) if part.product.text else "", *_exhibits(part, part.task)]


def _exhibits(part: Part, cite: str = "") -> list[str]:
    """What is not in the words already: a table written out there is not shown twice."""
    shown = [_shown(held, part.product.text) for held in part.product.exhibits if not _said(held, part.product.text)]
    if shown and cite and not part.product.text:
        shown[-1] = f"{shown[-1]}\n\n[{cite}]" if "\n" in shown[-1] else f"{shown[-1]} [{cite}]"
    return shown


def _shown(held: Exhibit, text: str) -> str:
    """An exhibit; of a number that the words have, only how it was worked out."""
    if isinstance(held, Figure) and (_holds(text, held.value) or _holds(text, f"{held.value}0")):
        return f"Worked out as `{' '.join(held.expression.split())}`."
    return exhibit(held)


def _said(held: Exhibit, text: str) -> bool:
    """Whether the words of a result tell already what an exhibit shows."""
    match held:
        case Table():
            alone = str(held.rows[0][0]) if len(held.rows) == 1 and len(held.rows[0]) == 1 else ""
            return "| ---" in text or "|---" in text or bool(alone and _holds(text, alone))
        case Figure():
            return not held.expression and _holds(text, held.value)
        case Passages():
            return any(one.text.strip()[:40] in text for one in held.found)
        case Chart():
            return bool(held.title) and held.title in text


def _holds(text: str, value: str) -> bool:
    return any(one in text for one in (value, amount(value), amount(value.removesuffix(".0"))))


def _cited(text: str, task: str) -> str:
    """The text with its task named at the end, before the full stop."""
    plain = text.rstrip()
    if f"[{task}]" in plain:
        return plain
    if plain.endswith(("|", "```")) or plain.rpartition("\n")[2].startswith(("- ", "|")):
        return f"{plain}\n\n[{task}]"
    return f"{plain[:-1]} [{task}]{plain[-1]}" if plain.endswith((".", "!", "?")) else f"{plain} [{task}]"


def _body_text(text: str) -> str:
    """Headings in a result become bold lines: the answer has headings of its own. Code has comments, not headings."""
    pieces = _FENCED.split(text.strip())
    pieces[::2] = [re.sub(r"^#{1,6}\s+(.+?)\s*$", r"**\1**", one, flags=re.MULTILINE) for one in pieces[::2]]
    return "".join(pieces)
