"""Results that say different things of the same: another number, day or name for it, yes and no to one question.

Pure, and rather blind than wrong: what might be about something else is not compared. Who is right is not known here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from chargehand.agents.known_values import is_same_number
from chargehand.models.exhibits import Figure, Product, Table
from chargehand.models.subject import Given
from chargehand.text.dates import MONTH, find_dates
from chargehand.text.numbers import Quantity, find_quantities
from chargehand.text.sentences import split_sentences
from chargehand.text.words import FUNCTION_WORDS, WORD, singular

MOST = 5
_LONGEST = 50_000  # characters of a result that are read
_TOGETHER = 400_000  # of all results: others wait meanwhile
_ROWS = 200
_KEY = 10
_STOP = FUNCTION_WORDS | frozenset(
    {
        "now",
        "currently",
        "exactly",
        "total",
        "number",
        "count",
        "amount",
        "value",
        "result",
        "answer",
    }
)
_MEASURES = frozenset(
    {
        "%",
        "eur",
        "usd",
        "gbp",
        "jpy",
        "chf",
        "kg",
        "g",
        "mg",
        "t",
        "ton",
        "tonne",
        "km",
        "m",
        "cm",
        "mm",
        "mile",
        "l",
        "ml",
        "h",
        "hour",
        "minute",
        "min",
        "second",
        "day",
        "week",
        "month",
        "year",
        "point",
        "degree",
        "kwh",
        "mb",
        "gb",
        "tb",
    }
)
_TIMES = frozenset(
    {
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "this",
        "last",
        "next",
        "previous",
        "current",
        "today",
        "yesterday",
        "before",
        "after",
        "first",
        "second",
        "third",
        "fourth",
        "old",
        "new",
        "min",
        "max",
        "minimum",
        "maximum",
        "average",
        "mean",
        "median",
        "gross",
        "net",
    }
)
_SAYS = re.compile(
    r"(?:\b(?:is|was|are|were|equals?|total(?:s|led)?|amounts? to|came? to|comes to|stands at)|[=:])\s+"
    r"(?:exactly\s+|now\s+|currently\s+)?(?:\*\*)?[$€£¥]?(?:(?:EUR|USD|GBP|CHF)\s)?$",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:not?|never|without|least|most|more|less|fewer|up|over|under|between|if|would|could|may be|might|each|per"
    r"|about|around|roughly|approximately|nearly|almost|instead|rather|should|than)\b",
    re.IGNORECASE,
)
_DAY = (
    rf"(?:\d{{4}}-\d\d-\d\d|\d{{1,2}}\.? {MONTH}(?:,? \d{{4}})?|{MONTH} \d{{1,2}}(?:, \d{{4}})?"
    rf"|(?:{MONTH} )?(?:1[5-9]|20)\d\d)"
)
_NAME = r"[A-Z][\w'\u2019-]+(?: (?:de|van|von|der|den|di|da|la|le|bin|al))?(?: (?:[A-Z]\.|[A-Z][\w'\u2019-]+)){0,3}"
_WHEN = re.compile(rf"\b(?i:in|on|since|until|by|from|am|im|seit)\s(?:the\s)?(?P<day>(?i:{_DAY}))(?!\w)")
_BY = re.compile(rf"\b(?:by|von|durch)\s(?P<name>{_NAME})(?=\s|[.,;:!?)]|$)")
_IS = re.compile(rf"\b(?:is|was|ist|war)\s(?P<name>{_NAME})(?=\s*(?:\[[^\]]*\]\s*)?[.!;]?$)")
_NAMING = re.compile(r"\b(?:by|von|durch|is|was|ist|war) [A-Z]")
_LISTS = re.compile(
    r"\b(?:are|were|sind|waren|among|including|also|one of|such as|e\.g|unter anderem|auch)\b", re.IGNORECASE
)
_DIGIT = re.compile(r"\d")
_YES = re.compile(r"\W*(yes|no|true|false)\b(?=\s*(?:[,.;:!\u2013\u2014-]|$))", re.IGNORECASE)


class Contradiction(Struct, frozen=True):
    """What each of some results says of one thing, in the order of the results."""

    about: str
    values: tuple[tuple[str, str], ...]


class _Fact(Struct, frozen=True):
    """What a result says of what its `key` words name: a number, or a day or a name as `text`."""

    given: Given
    key: frozenset[str]
    unit: str
    about: str
    number: Quantity | None = None
    text: str = ""
    strict: bool = False

    @property
    def value(self) -> str:
        return f"{self.number.text} {self.unit}".strip() if self.number is not None else self.text

    def agrees(self, other: "_Fact") -> bool:
        """Whether two facts about the same say the same."""
        if self.number is not None and other.number is not None:
            return is_same_number(self.number, other.number)
        first = self.text.casefold()
        second = other.text.casefold()
        return first in second or second in first  # a year and a day of it, a name and its first part


def find(
    results: Sequence[Given], behind: Mapping[str, Sequence[str]] | None = None, most: int = MOST
) -> tuple[Contradiction, ...]:
    """Where results contradict each other. One that was made from another may differ: it knew better."""
    links = behind or {}
    room = min(_LONGEST, _TOGETHER // max(1, len(results)))
    groups: dict[tuple[frozenset[str], str], list[_Fact]] = {}
    for given in results:
        for fact in _facts(given, room):
            groups.setdefault((fact.key, fact.unit), []).append(fact)
    found = [*_answers(results, links), *(one for facts in groups.values() if (one := _against(facts, links)))]
    return tuple(dict.fromkeys(found))[:most]


def verdict(value: object) -> str:
    """`yes` or `no`, where that is what a result says first."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    match = _YES.match(_text(value))
    return {"true": "yes", "false": "no"}.get(said := match[1].casefold(), said) if match else ""


def alike(instruction: str) -> frozenset[str]:
    """What two tasks have in common that ask for the same."""
    return frozenset(_content(instruction))


def _answers(results: Sequence[Given], links: Mapping[str, Sequence[str]]) -> Iterator[Contradiction]:
    asked: dict[frozenset[str], list[tuple[Given, str]]] = {}
    for given in results:
        if (said := verdict(given.value)) and (words := alike(given.instruction)):
            asked.setdefault(words, []).append((given, said))
    for held in asked.values():
        if len({said for _, said in held}) > 1 and not _linked([given for given, _ in held], links):
            yield Contradiction(held[0][0].instruction, tuple((given.task, said) for given, said in held))


def _against(facts: Sequence[_Fact], links: Mapping[str, Sequence[str]]) -> Contradiction | None:
    """The first of the facts about one thing against those that say otherwise."""
    by_task: dict[str, list[_Fact]] = {}
    for fact in facts:
        by_task.setdefault(fact.given.task, []).append(fact)
    sure = [held[0] for held in by_task.values() if all(held[0].agrees(one) for one in held)]
    if len(sure) < 2:
        return None
    first, *others = sure
    others = [one for one in others if _comparable(first, one) and not _linked([first.given, one.given], links)]
    if all(first.agrees(one) for one in others):
        return None
    values = ((one.given.task, one.value) for one in (first, *others))
    return Contradiction(first.about, tuple(values))


def _linked(given: Sequence[Given], links: Mapping[str, Sequence[str]]) -> bool:
    names = {one.task for one in given}
    return any(other in names for name in names for other in links.get(name, ()))


def _comparable(one: _Fact, other: _Fact) -> bool:
    """Whether two facts with the same words are about the same: their tasks must not tell them apart."""
    first = alike(one.given.instruction)
    second = alike(other.given.instruction)
    if first == second:
        return True
    if _marks(one.given.instruction) - one.key != _marks(other.given.instruction) - other.key:
        return False
    within = first <= second or second <= first
    return (within and len(one.key) > 1) or (len(one.key) > 2 and not one.strict)


def _marks(instruction: str) -> frozenset[str]:
    """Words that tell one thing from another of its kind: names, numbers, times."""
    words = WORD.findall(instruction)
    names = {word for word in words[1:] if word[:1].isupper()}
    marks = [word for word in words if word in names or word.casefold() in _TIMES or not word.isalpha()]
    return frozenset(singular(word.casefold()) for word in marks)


def _facts(given: Given, room: int) -> Iterator[_Fact]:
    product = _product(given.value) if _exhibits(given.value) else None
    for exhibit in () if product is None else product.exhibits:
        if isinstance(exhibit, Figure) and exhibit.label:
            yield from _fact(given, exhibit.label, f"{exhibit.value} {exhibit.unit}".strip(), strict=True)
        elif isinstance(exhibit, Table):
            yield from _in_table(given, exhibit)
    text = _text(given.value)[:room]
    for sentence in split_sentences(text, ".!?;") if _DIGIT.search(text) or _NAMING.search(text) else ():
        if len(sentence) <= 240 and not sentence.lstrip().startswith(("|", ">")):
            plain = " ".join(sentence.split())
            yield from _in_sentence(given, plain)
            yield from _framed(given, plain)


def _in_sentence(given: Given, sentence: str) -> Iterator[_Fact]:
    found = list(find_quantities(sentence))
    if len(found) != 1 or _UNSURE.search(sentence):
        return
    before = sentence[: found[0].start]
    after = sentence[found[0].end :]
    if _SAYS.search(before):
        yield from _made(given, f"{_SAYS.sub(' ', before)} {after}", found[0])


def _framed(given: Given, sentence: str) -> Iterator[_Fact]:
    """When something happened and who did it: what is left of the sentence says what it is about."""
    if _UNSURE.search(sentence) or _LISTS.search(sentence):
        return
    when = [match for match in _WHEN.finditer(sentence) if match["day"]]
    who = [*_BY.finditer(sentence), *_IS.finditer(sentence)]
    frame = sentence
    for match in sorted((*when, *who), key=lambda one: one.start(), reverse=True):
        frame = f"{frame[: match.start()]} {frame[match.end() :]}"
    if len(when) == 1:
        yield from _told(given, frame, "day", _spelled_day(when[0]["day"]))
    if len(who) == 1:
        yield from _told(given, frame, "name", who[0]["name"])


def _spelled_day(text: str) -> str:
    day = next(find_dates(text), None)
    if day is None:
        return text
    return "-".join(str(part) for part in (day.year, day.month, day.day) if part)


def _told(given: Given, frame: str, unit: str, text: str) -> Iterator[_Fact]:
    plain = re.sub(r"\[[^\]]*\]", " ", frame)
    key = frozenset(word for word in _content(plain) if len(word) > 1)
    if 1 < len(key) <= _KEY:
        yield _Fact(given, key, unit, " ".join(WORD.findall(plain)), text=text, strict=True)


def _in_table(given: Given, table: Table) -> Iterator[_Fact]:
    for row in table.rows[:_ROWS]:
        cells = list(zip(table.columns, row, strict=False))
        names = [str(cell) for name, cell in cells if not _measured(name, cell) and cell is not None]
        for name, cell in cells:
            if _measured(name, cell):
                yield from _fact(given, " ".join([*names, name.replace("_", " ")]), str(cell), strict=True)


def _measured(column: str, cell: object) -> bool:
    kept = re.search(r"(?:^|[_\s])(?:id|year|month|day|date|week|code|no|rank|quarter)s?$", column, re.IGNORECASE)
    return isinstance(cell, int | float) and not isinstance(cell, bool) and kept is None


def _fact(given: Given, about: str, value: str, *, strict: bool) -> Iterator[_Fact]:
    if len(found := list(find_quantities(value))) == 1:
        yield from _made(given, about, found[0], strict=strict)


def _made(given: Given, about: str, number: Quantity, *, strict: bool = False) -> Iterator[_Fact]:
    unit = number.unit if number.unit in _MEASURES else ""
    plain = re.sub(r"\[[^\]]*\]", " ", about)
    key = frozenset(one for one in _content(plain) if one != unit)
    if 0 < len(key) <= _KEY:
        shown = " ".join(WORD.findall(plain)).removeprefix("There ")
        yield _Fact(given=given, key=key, unit=unit, about=shown, number=number, strict=strict)


def _content(text: str) -> Iterator[str]:
    return (singular(one.casefold()) for one in WORD.findall(text) if one.casefold() not in _STOP)


def _exhibits(value: object) -> bool:
    return isinstance(value, Product) or (isinstance(value, dict) and "exhibits" in value)


def _product(value: object) -> Product | None:
    try:
        return value if isinstance(value, Product) else msgspec.convert(value, Product)
    except msgspec.ValidationError:
        return None


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Product):
        return value.text
    text = cast("dict[str, object]", value).get("text") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
