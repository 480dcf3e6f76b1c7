"""Results that say different things of the same: another number, date or name for it, yes and no to one question.

Pure. What might be about something else is not compared, and which result is right is not known here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from chargehand.agents.audit.evidence import KnownNumbers
from chargehand.engine.facts import Contradiction
from chargehand.models.artifacts import Figure, Product, Table
from chargehand.models.request_facts import Given
from chargehand.text.dates import MONTH, find_dates
from chargehand.text.numbers import Number, find_quantities
from chargehand.text.sentences import split_sentences
from chargehand.text.words import FUNCTION_WORDS, WORD, singular

_MAX_CONTRADICTIONS = 5
_MAX_RESULT = 50_000  # characters
_MAX_TOGETHER = 400_000
_MAX_SENTENCE = 240
_MAX_ROWS = 200
_MAX_KEY = 10  # words
_STOP_WORDS = FUNCTION_WORDS | frozenset(
    ("now", "currently", "exactly", "total", "number", "count", "amount", "value", "result", "answer")
)
_MEASURE = re.compile(
    r"%|eur|usd|gbp|jpy|chf|[km]?g|t|ton|tonne|[kcm]?m|mile|m?l|h|hour|minute|min|second|day|week|month|year|point|degree"
    r"|kwh|[mgt]b"
)
_TIME = re.compile(
    rf"{MONTH}|(?:mon|tues|wednes|thurs|fri|satur|sun)day|this|last|next|previous|current|today|yesterday|before|after"
    r"|first|second|third|fourth|old|new|min|max|minimum|maximum|average|mean|median|gross|net",
    re.IGNORECASE,
)
_STATES = re.compile(
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
_WHEN = re.compile(rf"\b(?i:in|on|since|until|by|from|am|im|seit)\s(?:the\s)?(?P<value>(?i:{_DAY}))(?!\w)")
_WHO = re.compile(
    rf"\b(?:by|von|durch)\s(?P<actor>{_NAME})(?=\s|[.,;:!?)]|$)"
    rf"|\b(?:is|was|ist|war)\s(?P<holder>{_NAME})(?=\s*(?:\[[^\]]*\]\s*)?[.!;]?$)"
)
_LISTS = re.compile(
    r"\b(?:are|were|sind|waren|among|including|also|one of|such as|e\.g|unter anderem|auch)\b", re.IGNORECASE
)
_STATING = re.compile(r"\d|\b(?:by|von|durch|is|was|ist|war) [A-Z]")
_VERDICT = re.compile(r"\W*(yes|no|true|false)\b(?=\s*(?:[,.;:!\u2013\u2014-]|$))", re.IGNORECASE)
_CITATION = re.compile(r"\[[^\]]*\]")
_NO_MEASURE = re.compile(r"(?:^|[_\s])(?:id|year|month|day|date|week|code|no|rank|quarter)s?$", re.IGNORECASE)


class _Fact(Struct, frozen=True):
    """What a result says of the thing that its key names."""

    result: Given
    key: frozenset[str]
    unit: str
    about: str
    value: Number | str
    is_narrow: bool
    """It is only about what the task asks for: a cell, a figure, a date or a name."""

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else f"{self.value.text} {self.unit}".strip()

    def agrees(self, other: "_Fact") -> bool:
        """Whether two facts about the same say the same, one of them less exactly."""
        if isinstance(self.value, Number) and isinstance(other.value, Number):
            return _rounds_to(self.value, other.value) or _rounds_to(other.value, self.value)
        first = self.text.casefold()
        second = other.text.casefold()
        return first in second or second in first


def _rounds_to(exact: Number, rounded: Number) -> bool:
    return KnownNumbers(exact.values).hold(rounded)


def find_contradictions(
    results: Sequence[Given], behind: Mapping[str, Sequence[str]] | None = None
) -> tuple[Contradiction, ...]:
    """Where results contradict each other. One that was made from another (`behind`) may differ from it."""
    room = min(_MAX_RESULT, _MAX_TOGETHER // max(1, len(results)))
    groups: dict[tuple[frozenset[str], str], list[_Fact]] = {}
    for result in results:
        for fact in _read_facts(result, room):
            groups.setdefault((fact.key, fact.unit), []).append(fact)
    found = [_compare(facts, behind or {}) for facts in groups.values()]
    return tuple(dict.fromkeys(contradiction for contradiction in found if contradiction))[:_MAX_CONTRADICTIONS]


def read_yes_or_no(value: object) -> str:
    """`yes` or `no`, where that is what a result says first."""
    text = str(value).lower() if isinstance(value, bool) else _as_product(value).text
    match = _VERDICT.match(text)
    if match is None:
        return ""
    return "yes" if match[1].casefold() in ("yes", "true") else "no"


def _compare(facts: Sequence[_Fact], behind: Mapping[str, Sequence[str]]) -> Contradiction | None:
    """The first of the facts about one thing against those that say otherwise; a result must agree with itself."""
    by_task: dict[str, list[_Fact]] = {}
    for fact in facts:
        by_task.setdefault(fact.result.task, []).append(fact)
    consistent = [held[0] for held in by_task.values() if all(held[0].agrees(fact) for fact in held)]
    if len(consistent) < 2:
        return None
    first, *others = consistent
    others = [other for other in others if _is_comparable(first, other) and not _is_derived(first, other, behind)]
    if all(first.agrees(other) for other in others):
        return None
    return Contradiction(first.about, tuple((fact.result.task, fact.text) for fact in (first, *others)))


def _is_derived(first: _Fact, second: _Fact, behind: Mapping[str, Sequence[str]]) -> bool:
    """Whether one of the results was made from the other."""
    tasks = (first.result.task, second.result.task)
    return tasks[0] in behind.get(tasks[1], ()) or tasks[1] in behind.get(tasks[0], ())


def _is_comparable(first: _Fact, second: _Fact) -> bool:
    """Whether two facts with the same words are about the same: their tasks must not tell them apart."""
    words = _content_words(first.result.instruction)
    other_words = _content_words(second.result.instruction)
    if words == other_words:
        return True
    if _distinctions(first) != _distinctions(second):
        return False
    is_within = words <= other_words or other_words <= words
    return (is_within and len(first.key) > 1) or (len(first.key) > 2 and not first.is_narrow)


def _distinctions(fact: _Fact) -> frozenset[str]:
    """The words of a task that tell one thing from another of its kind (names, numbers, times), besides the key."""
    words = WORD.findall(fact.result.instruction)
    names = {word for word in words[1:] if word[:1].isupper()}
    marks = [word for word in words if word in names or _TIME.fullmatch(word) or not word.isalpha()]
    return frozenset(singular(word.casefold()) for word in marks) - fact.key


def _read_facts(result: Given, room: int) -> Iterator[_Fact]:
    product = _as_product(result.value)
    if verdict := read_yes_or_no(result.value):
        yield from _make_fact(result, result.instruction, verdict, unit="verdict")
    for artifact in product.artifacts:
        if isinstance(artifact, Figure) and artifact.label:
            yield from _read_figure(result, artifact.label, f"{artifact.value} {artifact.unit}")
        elif isinstance(artifact, Table):
            yield from _read_table(result, artifact)
    text = product.text[:room]
    for sentence in split_sentences(text, ".!?;") if _STATING.search(text) else ():
        if len(sentence) <= _MAX_SENTENCE and not sentence.startswith(("|", ">")) and not _UNSURE.search(sentence):
            yield from _read_sentence(result, " ".join(sentence.split()))


def _read_sentence(result: Given, sentence: str) -> Iterator[_Fact]:
    """The one number of a sentence, or when something happened and who did it: the rest says what it is about."""
    quantities = list(find_quantities(sentence))
    if len(quantities) == 1:
        before = sentence[: quantities[0].start]
        if _STATES.search(before):
            about = f"{_STATES.sub(' ', before)} {sentence[quantities[0].end :]}"
            yield from _make_fact(result, about, quantities[0], is_narrow=False)
    if _LISTS.search(sentence):
        return
    dates = list(_WHEN.finditer(sentence))
    names = list(_WHO.finditer(sentence))
    about = _WHO.sub(" ", _WHEN.sub(" ", sentence))
    if len(dates) == 1:
        yield from _make_fact(result, about, _normalize_date(dates[0]["value"]), unit="date")
    if len(names) == 1:
        yield from _make_fact(result, about, names[0]["actor"] or names[0]["holder"], unit="name")


def _normalize_date(text: str) -> str:
    day = next(find_dates(text), None)
    if day is None:
        return text
    return "-".join(str(part) for part in (day.year, day.month, day.day) if part)


def _read_table(result: Given, table: Table) -> Iterator[_Fact]:
    for row in table.rows[:_MAX_ROWS]:
        cells = list(zip(table.columns, row, strict=False))
        names = [str(cell) for column, cell in cells if cell is not None and not _is_measured(column, cell)]
        for column, cell in cells:
            if _is_measured(column, cell):
                yield from _read_figure(result, " ".join([*names, column.replace("_", " ")]), str(cell))


def _is_measured(column: str, cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool) and not _NO_MEASURE.search(column)


def _read_figure(result: Given, about: str, value: str) -> Iterator[_Fact]:
    quantities = list(find_quantities(value))
    if len(quantities) == 1:
        yield from _make_fact(result, about, quantities[0])


def _make_fact(
    result: Given, about: str, value: Number | str, *, unit: str = "", is_narrow: bool = True
) -> Iterator[_Fact]:
    """A fact, if there are words that say what it is about: of a date or a name, two at least."""
    if isinstance(value, Number) and _MEASURE.fullmatch(value.unit):
        unit = value.unit
    plain = _CITATION.sub(" ", about)
    key = _content_words(plain) - {unit}
    least = 2 if unit in ("date", "name") else 1
    if least <= len(key) <= _MAX_KEY:
        shown = about if unit == "verdict" else " ".join(WORD.findall(plain)).removeprefix("There ")
        yield _Fact(result=result, key=key, unit=unit, about=shown, value=value, is_narrow=is_narrow)


def _content_words(text: str) -> frozenset[str]:
    return frozenset(singular(word.casefold()) for word in WORD.findall(text) if word.casefold() not in _STOP_WORDS)


def _as_product(value: object) -> Product:
    """A result as its text and artifacts; empty where it is other data."""
    if isinstance(value, Product):
        return value
    if isinstance(value, str):
        return Product(value)
    try:
        return msgspec.convert(value, Product)
    except msgspec.ValidationError:
        return Product("")
