"""What a text states (numbers, dates, addresses, quotations), traced to what it rests on. No model is asked.

What follows from the sources in other ways than those known here is reported; what a text leaves out is not.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations, islice
from typing import ParamSpec, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from chargehand.agents.audit.evidence import (
    EMAIL,
    KnownNumbers,
    KnownValues,
    NamedRows,
    Row,
    calendar_day,
    count_listed,
    find_urls,
    plain_words,
)
from chargehand.engine.facts import Conflict, Kind, Origin, Statement, Tracing
from chargehand.engine.value import decode_value, encode_value
from chargehand.models.artifacts import WorkerOutput
from chargehand.models.request_facts import Given
from chargehand.text.citations import blank_citations, cite, cite_before_full_stop, cited_tasks, strip_citations
from chargehand.text.dates import Date, find_dates
from chargehand.text.numbers import Number, blank_spans, find_quantities
from chargehand.text.words import QUOTED, find_sentences

MAX_MATERIAL = 4_000_000
"""Characters of results that are read; below more of them, nothing is traced."""
_AT_ONCE = 4_000  # characters that are read on the event loop; more are read in a thread
_MAX_ANSWER = 100_000  # characters
_MAX_STATEMENTS = 200
_MAX_UNTRACED = 20  # of a worker's result
_MAX_TEXT = 160  # characters of a statement that are kept
_MAX_SENTENCE = 300
_MAX_OPERANDS = 12
_MIN_QUOTED_WORDS = 4
_HIDDEN = "\ue000"  # stands for each character of a quotation
CLAIMING = re.compile(r"[\d\"'“”„«»\u2018\u2019@|]|://|www\.")
"""What a text has that states anything which could be looked up."""
_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`(?![\d.,\s%$€£]{1,2000}`)[^`\n]{1,2000}`", re.DOTALL | re.MULTILINE)
"""Code; but figures in backticks are figures."""
_OMISSION = re.compile(r"…|\.\.\.|\[[^\]\n]{0,80}\]")
_ROWS_NOT_SHOWN = re.compile(r"^… (?:and )?[\d,]+ more rows$", re.MULTILINE)
_LIST_NUMBER = re.compile(r"^[ \t>#*-]{0,12}\d{1,3}[.)]\s", re.MULTILINE)
_ORDINAL_BEFORE = re.compile(
    r"(?:\b(?:step|part|section|option|figure|fig|table|item|point|phase|task|chapter|page|no|top|level|tier)s?\.?"
    r"|§|#|\[)\s?$",
    re.IGNORECASE,
)
_ROUGHLY_BEFORE = re.compile(
    r"(?:\b(?:about|around|roughly|approximately|approx\.?|some|nearly|almost|over|under|above|below|circa|ca\.?"
    r"|more than|less than|at least|at most|up to|close to|just)|[~≈<>])\s?[$€£¥]?$",
    re.IGNORECASE,
)
_CALCULATED = re.compile(
    r"\b(?:total\w*|together|sum|altogether|overall|combined|in all|plus|averag\w*|mean|makes?|come to|more|less|fewer"
    r"|differ\w*|gap|rose|rise|fell|fall|up|down|increase\w*|decrease\w*|left|remain\w*|above|below|than|change\w*"
    r"|grew|growth|drop\w*|ahead|behind|margin|share|times|half|save\w*|extra|short|per|ratio|zusammen|insgesamt"
    r"|summe|gesamt\w*|durchschnitt\w*|im mittel|mehr|weniger|pro|anteil|differenz|unterschied|übrig|rest)\b|%|^\s*\|",
    re.IGNORECASE,
)
"""Words of a sentence whose numbers may be calculated; so may those in the row of a table."""
_CONVERSIONS: Mapping[str, Sequence[str]] = {
    "feet": ("3.28084",),
    "ft": ("3.28084",),
    "m": ("0.3048", "1000"),
    "km": ("1.609344", "0.001"),
    "mile": ("0.621371",),
    "km/h": ("3.6", "1.609344"),
    "mph": ("0.621371", "2.236936"),
    "kg": ("0.45359237", "0.001"),
    "pound": ("2.2046226",),
    "minute": ("60", "0.0166666667"),
    "hour": ("24", "0.0166666667", "0.0002777778"),
    "day": ("7", "0.0416666667"),
    "week": ("0.1428571429",),
}
"""By the unit of a number, what a number in another unit is multiplied with to get there."""
_GRADES = re.compile(
    r"scores?|rating|confidence|priority|rank|index|order|probability|grade|severity|level|weight|likelihood|position|step"
)
"""Keys of data whose numbers are a worker's own judgement."""
_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


async def read_off_loop(
    characters: int, read: Callable[_Arguments, _Returned], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Returned:
    """What `read` returns for texts of so many characters together; long ones are read in a thread."""
    if characters <= _AT_ONCE:
        return read(*args, **kwargs)
    return await asyncio.to_thread(read, *args, **kwargs)


def day_of(instant: float) -> date:
    """The day of an instant, in UTC."""
    try:
        return datetime.fromtimestamp(instant, UTC).date()
    except (OverflowError, ValueError, OSError):
        return date.min


# --- an answer


def is_claiming(answer: str) -> bool:
    """Whether there is anything in an answer that could be looked up."""
    return CLAIMING.search(strip_citations(answer[:_MAX_ANSWER])) is not None


def unsupported(
    answer: str, results: Sequence[Given], known: Sequence[str] = (), behind: Mapping[str, Sequence[str]] | None = None
) -> tuple[Statement, ...]:
    """What an answer states that stands in no result it cites, or, where it cites none, in no result."""
    statements = trace_answer(answer, results, known, behind)
    return tuple(statement for statement in statements if not statement.is_supported)


def trace_answer(
    answer: str,
    results: Sequence[Given],
    known: Sequence[str] = (),
    behind: Mapping[str, Sequence[str]] | None = None,
    tracings: Mapping[str, Tracing] | None = None,
    today: date | None = None,
) -> tuple[Statement, ...]:
    """What an answer states, and what each statement rests on.

    `known` are other texts it may rest on, like the request; `behind` are the tasks that a result was made from;
    `tracings` say what the figures of a task's result rest on. A result without one was not written by a model.
    """
    tracings = tracings or {}
    results = [result for result in results if result.value is not None]
    if not results or size_of(results) > MAX_MATERIAL:
        return ()
    sources = [_source_of_result(result, tracings.get(result.task)) for result in results]
    sources.append(EvidenceSource(KnownValues(*known, *[result.instruction for result in results]), "input"))
    invented = [item.text for tracing in tracings.values() for item in tracing.untraced if not item.origin]
    tracer = _Tracer(
        _ROWS_NOT_SHOWN.sub("", answer), sources, behind=behind or {}, today=today, invented=KnownValues(*invented)
    )
    return tracer.trace()


def _source_of_result(result: Given, tracing: Tracing | None) -> "EvidenceSource":
    """A result as a source: what of it no tool returned is known from its tracing."""
    evidence = KnownValues(result.value)
    if tracing is None:
        return EvidenceSource(evidence, task=result.task)
    return EvidenceSource(
        evidence,
        origin="tool" if tracing.tools or tracing.unread else "words",
        given=KnownValues(*tracing.given),
        words=KnownValues(*[item.text for item in tracing.untraced]),
        task=result.task,
    )


def size_of(results: Sequence[Given]) -> int:
    """How many characters some results have, about."""
    return sum([len(msgspec.json.encode(result.value)) for result in results])


# --- the result of a worker


class WorkMaterial(Struct):
    """What a worker has to work from: results of `tools`, what was `given`, and what other workers alone say."""

    tools: list[object] = []
    given: list[object] = []
    words: list[object] = []
    untraced: list[Statement] = []
    """What could not be traced in the results of other tasks that it was given."""
    has_tools: bool = False

    @property
    def size(self) -> int:
        return sum(len(str(value)) for value in (*self.tools, *self.given, *self.words))


async def trace_result(value: object, material: WorkMaterial, today: date) -> Tracing:
    """What the figures of a result rest on."""
    text = _text_of(value)
    size = len(text) + material.size
    if size > MAX_MATERIAL:
        return Tracing(unread=True)
    return await read_off_loop(size, _trace_result, text, material, today)


def _trace_result(text: str, material: WorkMaterial, today: date) -> Tracing:
    sources = (
        EvidenceSource(KnownValues(*material.tools)),
        EvidenceSource(
            KnownValues(*material.given), "input", words=KnownValues(*[item.text for item in material.untraced])
        ),
        EvidenceSource(KnownValues(*material.words), "words"),
    )
    statements = _Tracer(text, sources, behind={}, today=today, invented=KnownValues()).trace()
    if not material.has_tools:
        statements = [
            statement if statement.origin or statement.conflict else structs.replace(statement, origin="words")
            for statement in statements
        ]
    return summarize(statements, limit=_MAX_UNTRACED)


def summarize(statements: Sequence[Statement], *, limit: int | None = None) -> Tracing:
    """How many statements tools returned, which were given, and those that could not be traced."""
    untraced = dict.fromkeys(statement for statement in statements if not statement.is_supported)
    return Tracing(
        tools=sum(statement.origin == "tool" for statement in statements),
        given=tuple([statement.text for statement in statements if statement.origin == "input"]),
        untraced=tuple(untraced)[:limit],
    )


def objection(tracing: Tracing, *, called: bool) -> str:
    """What a worker is told about figures that its tools did not return; empty where there are none."""
    untraced = [statement for statement in tracing.untraced if not statement.origin]
    if not untraced:
        return ""
    lines = "\n".join(f"- {describe(statement)}" for statement in untraced[:8])
    cause = "stand in no result of your tools" if called else "rest on nothing: you have used none of your tools"
    return (
        f"These parts of your reply {cause}, nor in what you were given:\n{lines}\n"
        "Take them from what the tools returned, call a tool, or leave them out. Then send the whole reply again."
    )


def describe(statement: Statement) -> str:
    """A statement in a line: what is cited for it, and why it is doubted."""
    text = f"“{statement.text}”" if statement.kind == "quotation" else statement.text
    if statement.cited:
        text += f", cited from {cite(*statement.cited)}"
    if statement.elsewhere:
        text += f", but it stands in {cite(*statement.elsewhere)}"
    if statement.conflict == "row":
        text += " (it stands in another row)"
    return text


def _text_of(value: object) -> str:
    """What a result says, line by line. Of data, every record is a line; grades that it gives are left out."""
    if isinstance(value, WorkerOutput):
        return value.text
    if isinstance(value, str):
        return value
    return "\n".join(_lines_of(decode_value(encode_value(value))))


def _lines_of(value: object) -> Iterator[str]:
    stack: list[object] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            cells: list[str] = []
            for name, cell in cast("dict[str, object]", item).items():
                if _GRADES.fullmatch(name):
                    continue
                if isinstance(cell, dict | list):
                    stack.append(cast("object", cell))
                else:
                    cells.append(f"{name.replace('_', ' ')}: {cell}")
            yield "; ".join(cells)
        elif isinstance(item, list):
            stack.extend(reversed(cast("list[object]", item)))
        elif item is not None:
            yield str(item)


# --- tracing


class EvidenceSource(Struct, frozen=True):
    """What statements may rest on."""

    evidence: KnownValues
    origin: Origin = "tool"
    """What its figures rest on, except for those that were `given` or are a worker's `words`."""
    given: KnownValues = KnownValues()
    """What of it stood in what its worker was given."""
    words: KnownValues = KnownValues()
    """What of it only a worker says."""
    task: str = ""
    """The task whose result it is; empty: it may always be relied on."""

    def few_numbers(self) -> list[Decimal]:
        """The numbers of a short source, without those that only a worker says."""
        return [value for value in self.evidence.few if value and value not in self.words.few]


_DERIVATIONS: Sequence[tuple[Origin, Sequence[Origin]]] = (
    ("tool", ("tool",)),
    ("input", ("input",)),
    ("tool", ("tool", "input")),
    ("words", ("tool", "input", "words")),
)
"""What a figure rests on that follows from sources of these origins; the first that it follows from counts."""
_BEST_FIRST: Sequence[Origin] = ("tool", "input", "words", "")


class _Claim(Struct):
    """Something that a sentence states, where in the sentence, and what is known of it."""

    kind: Kind
    text: str
    start: int
    end: int
    value: Number | Date | None = None
    is_rough: bool = False
    is_count: bool = False
    """It says which or how many of what is listed."""
    origin: Origin = ""
    conflict: Conflict = ""
    is_invented: bool = False
    """A worker that has tools made it up, so it rests on nothing, whatever repeats it."""

    def is_in(self, evidence: KnownValues) -> bool:
        if isinstance(self.value, Number):
            return evidence.holds(self.value, is_rough=self.is_rough)
        if isinstance(self.value, Date):
            return evidence.holds_date(self.value)
        if self.kind in ("url", "email"):
            return evidence.names(self.text)
        pieces = [plain_words(piece) for piece in _OMISSION.split(self.text)]
        return all(evidence.says(piece) for piece in pieces if piece.strip())

    def trace(self, sources: Sequence[EvidenceSource], invented: KnownValues) -> None:
        """Set the origin to the best that a source has for it: a tool, what was given, a worker's words."""
        origins = {self._origin_in(source) for source in sources}
        self.origin = next(origin for origin in _BEST_FIRST if origin in origins or not origin)
        if self.origin == "words" and self.is_in(invented):
            self.origin = ""
            self.is_invented = True

    def _origin_in(self, source: EvidenceSource) -> Origin:
        if not self.is_in(source.evidence):
            return ""
        if self.is_in(source.words):
            return "words"
        return "input" if self.is_in(source.given) else source.origin


class _Tracer:
    """Traces what a text states. Positions are those of the text: what is not to be read is replaced by blanks."""

    def __init__(
        self,
        text: str,
        sources: Sequence[EvidenceSource],
        *,
        behind: Mapping[str, Sequence[str]],
        today: date | None,
        invented: KnownValues,
    ) -> None:
        self._text = text[:_MAX_ANSWER]
        self._sources = sources
        self._by_task = {source.task: source for source in sources if source.task}
        self._behind = behind
        self._today = today
        self._invented = invented
        self._quotations: list[_Claim] = []
        self._counts = {len(self._by_task)}  # how many there are of what is listed
        for paragraph in self._text.split("\n\n"):
            listed = count_listed(paragraph)
            self._counts |= {listed, listed - 1}  # a table has one line more than rows

    def trace(self) -> tuple[Statement, ...]:
        return tuple(islice(self._trace_text(), _MAX_STATEMENTS))

    def _trace_text(self) -> Iterator[Statement]:
        masked = QUOTED.sub(self._take_quotation, _CODE.sub(_blank, self._text))
        masked = cite_before_full_stop(_LIST_NUMBER.sub(_blank, masked))
        operands: list[_Claim] = []
        previous_end = 0
        for start, end in find_sentences(masked):
            if masked.count("\n", previous_end, start) > 1:  # another paragraph
                operands.clear()
            previous_end = end
            yield from self._trace_sentence(masked, start, end, operands)

    def _take_quotation(self, match: re.Match[str]) -> str:
        """Keep a quotation to look it up, if it is long enough; it is hidden from what is looked for next."""
        quotation = self._text[slice(*match.span(match.lastgroup or 0))]
        words = plain_words(_OMISSION.sub(" ", quotation)).split()
        if len(words) < _MIN_QUOTED_WORDS or len(self._quotations) >= _MAX_STATEMENTS:
            return match[0]
        self._quotations.append(_Claim("quotation", quotation, match.start(), match.end()))
        return _HIDDEN * len(match[0])

    def _sources_of(self, cited: Sequence[str]) -> Sequence[EvidenceSource]:
        """What a sentence may rest on: the tasks it cites, and those they were made from."""
        if not cited:
            return self._sources
        names = {*cited, *(name for task in cited for name in self._behind.get(task, ()))}
        return [source for source in self._sources if not source.task or source.task in names]

    def _trace_sentence(self, masked: str, start: int, end: int, operands: list[_Claim]) -> Iterator[Statement]:
        sentence = masked[start:end]
        cited = cited_tasks(sentence, self._by_task)
        sources = self._sources_of(cited)
        claims = [claim for claim in self._quotations if start <= claim.start < end]
        claims += _find_claims(blank_citations(sentence, self._by_task))
        for claim in claims:
            if claim.value is not None:
                claim.is_rough = _ROUGHLY_BEFORE.search(sentence, max(0, claim.start - 16), claim.start) is not None
            claim.trace(sources, self._invented)
            claim.is_count = isinstance(claim.value, Number) and self._is_count(claim.value, sentence, sources)
        operands += [claim for claim in claims if isinstance(claim.value, Number) and claim.origin]
        del operands[:-_MAX_OPERANDS]
        is_calculated = _CALCULATED.search(sentence) is not None
        for claim in claims:
            if not (claim.origin or claim.is_count or claim.is_invented):
                claim.origin = self._derived_origin(claim, sources, operands, is_calculated=is_calculated)
        _doubt_rows(claims, sentence, sources)
        original = " ".join(self._text[start:end].split())[:_MAX_SENTENCE]
        for claim in claims:
            if claim.origin or not claim.is_count:
                yield self._state(claim, original, cited)

    def _state(self, claim: _Claim, sentence: str, cited: tuple[str, ...]) -> Statement:
        elsewhere: list[str] = []
        if cited and not (claim.origin or claim.conflict or claim.is_invented):
            elsewhere = [task for task, source in self._by_task.items() if claim.is_in(source.evidence)]
        return Statement(
            kind=claim.kind,
            text=claim.text[:_MAX_TEXT],
            origin=claim.origin,
            conflict=claim.conflict,
            sentence=sentence,
            cited=cited,
            elsewhere=tuple(elsewhere),
        )

    def _is_count(self, number: Number, sentence: str, sources: Sequence[EvidenceSource]) -> bool:
        """Whether a number says which or how many of what is listed."""
        if _ORDINAL_BEFORE.search(sentence, max(0, number.start - 12), number.start):
            return True
        if number.unit == "%":
            return number.text == "100"
        if not number.text.isdigit():
            return False
        count = int(number.text)
        is_this_year = self._today is not None and count == self._today.year
        return is_this_year or count in self._counts or any(count in source.evidence.counts for source in sources)

    # --- what follows from the sources

    def _derived_origin(
        self, claim: _Claim, sources: Sequence[EvidenceSource], operands: Sequence[_Claim], *, is_calculated: bool
    ) -> Origin:
        """The origin of a figure that follows from sources, or from numbers beside it and before (`operands`)."""
        for origin, admitted in _DERIVATIONS:
            usable = [source for source in sources if source.origin in admitted]
            values = [_value_of(operand) for operand in operands if operand.origin in admitted]
            if isinstance(claim.value, Date):
                follows = self._is_today(claim.value) if origin == "input" else False
                follows = follows or any(source.evidence.reaches_date(claim.value) for source in usable)
            elif isinstance(claim.value, Number):
                follows = _follows(claim.value, usable, values, is_calculated=is_calculated, is_rough=claim.is_rough)
            else:
                follows = False
            if follows:
                return origin
        return ""

    def _is_today(self, wanted: Date) -> bool:
        """Whether a date is today's, which is given; it may be another day elsewhere on earth."""
        if self._today is None:
            return False
        day = calendar_day((wanted.year or self._today.year, wanted.month, wanted.day))
        return day is not None and abs((day - self._today).days) <= 1


def _follows(
    number: Number,
    sources: Sequence[EvidenceSource],
    operands: Sequence[Decimal],
    *,
    is_calculated: bool,
    is_rough: bool,
) -> bool:
    """Whether a number is calculated from a table or a list, or from two operands or few numbers of the sources."""
    digits = sum(character.isdigit() for character in number.text)
    if (is_calculated or digits > 2) and any(source.evidence.calculated.near(number) for source in sources):
        return True
    few = [value for source in sources for value in source.few_numbers()][:_MAX_OPERANDS]
    values: list[Decimal] = []
    if digits > 1:
        values += [first * second for first, second in combinations(few, 2)]
    if is_calculated and operands:
        total = sum(operands, Decimal(0))
        values += [total, total / len(operands), *_calculate(operands)]
    if is_calculated and (number.unit == "%" or "." in number.text):
        values += _calculate(few)
    factors = map(Decimal, _CONVERSIONS.get(number.unit, ()))
    converted = [value * factor for factor in factors for value in (*operands, *few)]
    as_written = structs.replace(number, readings=number.readings[:1])
    return bool(KnownNumbers(values).near(number) or KnownNumbers(converted).near(as_written, is_rough=is_rough))


def _calculate(numbers: Sequence[Decimal]) -> Iterator[Decimal]:
    """What can be worked out from every two of some numbers: sums, differences, shares, ratios, percentages."""
    for first, second in combinations(numbers, 2):
        yield from (first + second, first - second, first * second / 100)
        for part, whole in ((first, second), (second, first)):
            if whole:
                yield from (part / whole, part / whole * 100, abs(part - whole) / whole * 100)


def _value_of(claim: _Claim) -> Decimal:
    return cast("Number", claim.value).readings[0][0]


# --- what stands in the sources, but in another row


def _doubt_rows(claims: Sequence[_Claim], sentence: str, sources: Sequence[EvidenceSource]) -> None:
    """Mark numbers and dates that stand only in other rows than those that their clause names."""
    for source in sources:
        names = source.evidence.find_named_rows(sentence)
        if not names:
            continue
        others = [other.evidence for other in sources if other is not source]
        placed: list[tuple[_Claim, set[Row]]] = []
        for claim in claims:
            is_in_name = any(name.start <= claim.start < name.end for name in names)
            if claim.value is None or claim.is_count or is_in_name or any(claim.is_in(other) for other in others):
                continue
            if rows := source.evidence.rows_of(claim.value):
                placed.append((claim, rows))
        doubted = [claim for claim, rows in placed if not _is_in_named_row(claim, rows, sentence, names)]
        if len(names) == len(placed) > 1:  # 52 kettles and 14 toasters, where it is the other way round
            pairs = zip(names, placed, strict=True)
            if not any(name.rows & rows for name, (_, rows) in pairs):
                doubted = [claim for claim, _ in placed]
        for claim in doubted:
            claim.origin = ""
            claim.conflict = "row"


def _is_in_named_row(claim: _Claim, rows: set[Row], sentence: str, names: Sequence[NamedRows]) -> bool:
    """Whether a clause, which a semicolon ends, names one of the rows; true where it names no row of their tables."""
    begin = sentence.rfind(";", 0, claim.start) + 1
    end = sentence.find(";", claim.end)
    own = [name for name in names if name.start >= begin and (end < 0 or name.end <= end)]
    named_rows = {row for name in own for row in name.rows}
    tables = {table for table, _ in named_rows}
    return bool(rows & named_rows) or any(table not in tables for table, _ in rows)


# --- what a sentence states


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _find_claims(sentence: str) -> list[_Claim]:
    """The addresses, dates and numbers of a sentence; what is part of one is not looked at again."""
    claims: list[_Claim] = []
    for find in (_find_addresses, _find_dates, _find_quantities):
        more = sorted(islice(find(sentence), _MAX_STATEMENTS), key=lambda claim: claim.start)
        sentence = blank_spans(sentence, [(claim.start, claim.end) for claim in more])
        claims += more
    return claims


def _find_addresses(text: str) -> Iterator[_Claim]:
    for url, start, end in find_urls(text):
        yield _Claim("url", url, start, end)
    for match in EMAIL.finditer(text):
        yield _Claim("email", match[0], match.start(), match.end())


def _find_dates(text: str) -> Iterator[_Claim]:
    for day in find_dates(text):
        yield _Claim("date", day.text, day.start, day.end, day)


def _find_quantities(text: str) -> Iterator[_Claim]:
    for number in find_quantities(text):
        yield _Claim("number", number.text, number.start, number.end, number)
