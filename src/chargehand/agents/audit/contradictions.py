"""Results that contradict each other: another number or date for the same thing, or yes and no to one question.

What might be about something else is not compared, and which result is right is not known here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, structs

from chargehand.agents.audit.evidence import KnownNumbers
from chargehand.agents.inputs import output_of
from chargehand.engine.facts import Contradiction
from chargehand.models.artifacts import Figure, Table, WorkerOutput
from chargehand.models.request_facts import Given
from chargehand.text.citations import strip_citations
from chargehand.text.dates import MONTH, Date, find_dates
from chargehand.text.numbers import Number, find_quantities
from chargehand.text.words import FUNCTION_WORDS, WORD, singular, split_sentences

_MAX_CONTRADICTIONS = 5
_MAX_RESULT = 50_000  # characters
_MAX_TOGETHER = 400_000
_MAX_SENTENCE = 240
_MAX_ROWS = 200
_MAX_SUBJECT = 10  # words
_MAX_UNIT = 4  # characters
_STOP_WORDS = FUNCTION_WORDS | frozenset(
    ("now", "currently", "exactly", "total", "number", "count", "amount", "value", "result", "answer")
)
_DISTINCTION = re.compile(
    rf"{MONTH}|(?:mon|tues|wednes|thurs|fri|satur|sun)day|this|last|next|previous|current|today|yesterday|before|after"
    r"|first|second|third|fourth|old|new|min|max|minimum|maximum|average|mean|median|gross|net",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"(?:\b(?:is|was|are|were|equals?|total(?:s|led)?|amounts? to|came? to|comes to|stands at)|[=:])\s+"
    r"(?:exactly\s+|now\s+|currently\s+)?(?:\*\*)?[-+\u2212]?[$€£¥]?(?:(?:EUR|USD|GBP|CHF)\s)?[-+\u2212]?$",
    re.IGNORECASE,
)
_MINUS = re.compile(r"(?<![\w)])[-\u2212](?:[$€£¥]|(?:EUR|USD|GBP|CHF|JPY)\s)?$")
_SCALE = re.compile(r"\s?(thousand|mn|mio|million|bn|billion)\b|(k|m)\b", re.IGNORECASE)
_POWERS = {"k": 3, "thousand": 3, "m": 6, "mn": 6, "mio": 6, "million": 6, "bn": 9, "billion": 9}
_CURRENCIES = frozenset(("usd", "eur", "gbp", "chf", "jpy"))
_DATED = re.compile(r"\b(?:in|on|since|until|by|from|am|im|seit)\s(?:the\s)?$", re.IGNORECASE)
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d")
_UNSURE = re.compile(
    r"\b(?:not?|never|without|least|most|more|less|fewer|up|over|under|between|if|would|could|may be|might|each|per"
    r"|about|around|roughly|approximately|nearly|almost|instead|rather|should|than)\b",
    re.IGNORECASE,
)
_VERDICT = re.compile(r"\W*(yes|no|true|false)\b(?=\s*(?:[,.;:!\u2013\u2014-]|$))", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_NO_MEASURE = re.compile(r"(?:^|[_\s])(?:id|year|month|day|date|week|code|no|rank|quarter)s?$", re.IGNORECASE)


class _StatedFact(Struct, frozen=True):
    """What a result says of a subject."""

    result: Given
    about: str
    """The subject as it is written."""
    subject: frozenset[str]
    """Its words."""
    value: Number | Date | str
    unit: str = ""
    currency: str = ""
    is_negative: bool = False
    scale: str = ""
    """The word for thousands or millions behind a number, as it is written; its readings are scaled."""

    @property
    def text(self) -> str:
        if isinstance(self.value, str):
            return self.value
        sign = "-" if self.is_negative else ""
        gap = " " if len(self.scale) > 1 else ""
        return f"{sign}{self.value.text}{gap}{self.scale} {self.unit or self.currency}".strip()

    def agrees(self, other: "_StatedFact") -> bool:
        """Whether two facts about the same say the same, one of them less exactly."""
        first = self.value
        second = other.value
        if isinstance(first, Number) and isinstance(second, Number):
            if self.currency != other.currency:  # a price may be told in two, but no number is the same in both
                return not self.currency or not other.currency or set(first.values) != set(second.values)
            if self.is_negative != other.is_negative and any(first.values):
                return False
            return bool(KnownNumbers(first.values).near(second) or KnownNumbers(second.values).near(first))
        if isinstance(first, Date) and isinstance(second, Date):
            parts = zip(first.readings[0], second.readings[0], strict=True)
            return all(part == other_part or not part or not other_part for part, other_part in parts)
        return first == second


def find_contradictions(
    results: Sequence[Given], behind: Mapping[str, Sequence[str]] | None = None
) -> tuple[Contradiction, ...]:
    """Where results contradict each other. One that was made from another (`behind`) may differ from it."""
    room = min(_MAX_RESULT, _MAX_TOGETHER // max(1, len(results)))
    groups: dict[tuple[frozenset[str], str, type], list[_StatedFact]] = {}
    for result in results:
        for fact in _read_facts(result, room):
            groups.setdefault((fact.subject, fact.unit, type(fact.value)), []).append(fact)
    compared = [_compare(facts, behind or {}) for facts in groups.values()]
    return tuple(dict.fromkeys(contradiction for contradiction in compared if contradiction))[:_MAX_CONTRADICTIONS]


def read_yes_or_no(value: object) -> str:
    """`yes` or `no`, where that is what a result says first."""
    product = output_of(value)
    text = str(value).lower() if isinstance(value, bool) else ("" if product is None else product.text)
    match = _VERDICT.match(text)
    if match is None:
        return ""
    return "yes" if match[1].casefold() in ("yes", "true") else "no"


def _compare(facts: Sequence[_StatedFact], behind: Mapping[str, Sequence[str]]) -> Contradiction | None:
    """The first of the facts about one thing against those that say otherwise; a result must agree with itself."""
    by_task: dict[str, list[_StatedFact]] = {}
    for fact in facts:
        by_task.setdefault(fact.result.task, []).append(fact)
    consistent = [own[0] for own in by_task.values() if all(own[0].agrees(fact) for fact in own)]
    if not consistent:
        return None
    first, *rest = consistent
    others: list[_StatedFact] = []
    for other in rest:
        tasks = (first.result.task, other.result.task)
        is_derived = tasks[1] in behind.get(tasks[0], ()) or tasks[0] in behind.get(tasks[1], ())
        if not is_derived and _is_comparable(first, other):
            others.append(other)
    if all(first.agrees(other) for other in others):
        return None
    return Contradiction(first.about, tuple((fact.result.task, fact.text) for fact in (first, *others)))


def _is_comparable(first: _StatedFact, second: _StatedFact) -> bool:
    """Whether two facts with the same words are about the same: their tasks must not tell them apart."""
    if _content_words(first.result.instruction) == _content_words(second.result.instruction):
        return True
    return len(first.subject) > 2 and _distinctions(first) == _distinctions(second)


def _distinctions(fact: _StatedFact) -> frozenset[str]:
    """The words of a task that tell one thing from another of its kind (names, numbers, times), besides the subject."""
    words = WORD.findall(fact.result.instruction)
    names = {word for word in words[1:] if word[:1].isupper()}
    marks = [word for word in words if word in names or _DISTINCTION.fullmatch(word) or not word.isalpha()]
    return frozenset(singular(word.casefold()) for word in marks) - fact.subject


def _read_facts(result: Given, room: int) -> Iterator[_StatedFact]:
    product = output_of(result.value) or WorkerOutput("")
    if verdict := read_yes_or_no(result.value):
        subject = _content_words(result.instruction)
        yield _StatedFact(result=result, about=result.instruction, subject=subject, value=verdict)
    for artifact in product.artifacts:
        if isinstance(artifact, Figure) and artifact.label:
            yield from _read_figure(result, artifact.label, f"{artifact.value} {artifact.unit}")
        elif isinstance(artifact, Table):
            yield from _read_table(result, artifact)
    text = product.text[:room]
    if not _DIGIT.search(text):  # it states no number and no date, as most do
        return
    for sentence in split_sentences(text, ".!?;"):
        is_plain = len(sentence) <= _MAX_SENTENCE and not sentence.startswith(("|", ">"))
        if is_plain and _DIGIT.search(sentence) and not _UNSURE.search(sentence):
            yield from _read_sentence(result, " ".join(sentence.split()))


def _read_sentence(result: Given, sentence: str) -> Iterator[_StatedFact]:
    """The one number or date that a sentence states: the rest says what it is about."""
    values = [*find_quantities(sentence), *find_dates(sentence)]
    if len(values) != 1:
        return
    value = values[0]
    before = sentence[: value.start]
    is_date = isinstance(value, Date) or _YEAR.fullmatch(value.text) is not None
    if _STATED.search(before) or (is_date and _DATED.search(before)):
        yield from _make_fact(result, _STATED.sub(" ", before), value, sentence)


def _read_table(result: Given, table: Table) -> Iterator[_StatedFact]:
    for row in table.rows[:_MAX_ROWS]:
        cells = list(zip(table.columns, row, strict=False))
        names = [str(cell) for column, cell in cells if cell is not None and not _is_measured(column, cell)]
        for column, cell in cells:
            if _is_measured(column, cell):
                yield from _read_figure(result, " ".join([*names, column.replace("_", " ")]), str(cell))


def _is_measured(column: str, cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool) and not _NO_MEASURE.search(column)


def _read_figure(result: Given, about: str, value: str) -> Iterator[_StatedFact]:
    quantities = list(find_quantities(value))
    if len(quantities) == 1:
        yield from _make_fact(result, about, quantities[0], value, reads_on=False)


def _make_fact(
    result: Given, about: str, value: Number | Date, text: str, *, reads_on: bool = True
) -> Iterator[_StatedFact]:
    """A fact, if there are words that say what it is about. If it `reads_on`, so do the words behind it in the text."""
    unit = value.unit if isinstance(value, Number) else ""
    currency = unit if unit in _CURRENCIES else ""
    scale = ""
    behind = text[value.end :]
    if isinstance(value, Number) and (match := _SCALE.match(behind)) and (match[1] or currency):  # 5 m are metres
        scale = match[0].strip()
        behind = behind[match.end() :]
        power = _POWERS[scale.casefold()]
        # every other reading is scaled already
        readings = tuple((number.scaleb(power), step.scaleb(power)) for number, step in value.readings[::2])
        unit = "" if unit == scale.casefold() else unit
        value = structs.replace(value, readings=readings)
    if len(unit) > _MAX_UNIT:  # kg is a unit, apples are the subject
        unit = ""
    is_negative = _MINUS.search(text[: value.start]) is not None
    plain = strip_citations(f"{about} {behind}" if reads_on else about)
    subject = _content_words(plain) - {unit}
    if 1 <= len(subject) <= _MAX_SUBJECT:
        written = " ".join(WORD.findall(plain)).removeprefix("There ")
        yield _StatedFact(
            result=result,
            about=written,
            subject=subject,
            value=value,
            unit="" if currency else unit,
            currency=currency,
            is_negative=is_negative,
            scale=scale,
        )


def _content_words(text: str) -> frozenset[str]:
    return frozenset(singular(word.casefold()) for word in WORD.findall(text) if word.casefold() not in _STOP_WORDS)
