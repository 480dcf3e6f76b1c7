"""What a text states (numbers, dates, addresses, quotations, names), traced to what it rests on. No model is asked.

What follows from the sources in other ways than those known here is reported; what a text leaves out is not.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations, islice, pairwise
from typing import ParamSpec, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from chargehand.agents.audit.sources import (
    EMAIL,
    Evidence,
    KnownNumbers,
    NamedRows,
    calendar_day,
    count_listed,
    find_urls,
    noun_behind,
    plain_words,
)
from chargehand.engine.facts import Conflict, Kind, Origin, Statement, Tracing
from chargehand.engine.value import decode_value, encode_value
from chargehand.models.artifacts import Product
from chargehand.models.request_facts import Given
from chargehand.text.dates import Date, find_dates
from chargehand.text.numbers import Quantity, find_counts, find_quantities
from chargehand.text.sentences import find_sentences
from chargehand.text.words import QUOTED

AT_ONCE = 4_000
"""Characters that are read on the event loop, for about 0.1 s at worst; more are read in a thread."""
_MAX_ANSWER = 100_000  # characters
_MAX_RESULTS = 4_000_000  # characters of all results
_MAX_STATEMENTS = 200
_MAX_UNTRACED = 20  # of a worker's result
_MAX_TEXT = 160  # characters of a statement that are kept
_MAX_SENTENCE = 300
_MIN_QUOTED_WORDS = 4
_HIDDEN = "\ue000"  # stands for each character of a quotation
CLAIMING = re.compile(
    r"[\d>\"'“”„«»\u2018\u2019@|]|://|www\."
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty)\b",
    re.IGNORECASE,
)
"""What a text has that states anything which could be looked up."""
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]{1,2000})`")
_PLAIN_FIGURES = re.compile(r"[\d.,\s%$€£]+")
_QUOTED_LINES = re.compile(r"(?:^[ \t]*>[^\n]*(?:\n|\Z))+", re.MULTILINE)
_OMISSION = re.compile(r"…|\.\.\.|\[[^\]\n]{0,80}\]")
_ROWS_NOT_SHOWN = re.compile(r"^… (?:and )?[\d,]+ more rows$", re.MULTILINE)
_LIST_NUMBER = re.compile(r"^[ \t>#*-]{0,12}\d{1,3}[.)]\s", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_LATE_CITATION = re.compile(r"[.!?][ \t]*(?:\[[^\]\n]{1,200}\][ \t]*)+(?=\s|$)", re.MULTILINE)
_BRACKETS = re.compile(r"[\[(]((?:[^\[\]()\n]|\[\d{1,4}\]){1,200})[\])]")
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
_TOTAL = re.compile(
    r"\b(?:total\w*|together|sum|altogether|overall|combined|in all|plus|averag\w*|mean|makes?|come to|zusammen"
    r"|insgesamt|summe|gesamt\w*|durchschnitt\w*|im mittel)\b",
    re.IGNORECASE,
)
_COMPARISON = re.compile(
    r"\b(?:more|less|fewer|differ\w*|gap|higher|lower|rose|rise|fell|fall|up|down|increase\w*|decrease\w*|left|remain\w*"
    r"|above|below|than|change\w*|grew|growth|drop\w*|ahead|behind|margin|share|times|half|save\w*|extra|short|per|ratio|warmer|colder|older|younger|longer|shorter|larger"
    r"|bigger|smaller|cheaper|dearer|mehr|weniger|höher|niedriger|pro|anteil|differenz|unterschied|übrig|rest)\b"
    r"|%",
    re.IGNORECASE,
)
_RESPECTIVELY = re.compile(r"\b(?:respectively|beziehungsweise|bzw|jeweils)\b", re.IGNORECASE)
_NAME_ADJACENT = re.compile(r"\s+(?:%\s+)?(?:(?:in|for|of|from|at|by|to|on|the)\s+){0,2}$", re.IGNORECASE)
_NAME_EQUATED = re.compile(
    r"[\s*_`]*(?:[:|(=\u2013\u2014-]|,?\s(?:is|was|has been|as|ist|war)(?:\s(?:the|our|a|an|der|die|das))?\s)[\s*_`]*",
    re.IGNORECASE,
)
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
    if characters <= AT_ONCE:
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
    return CLAIMING.search(_BRACKETS.sub("", answer[:_MAX_ANSWER])) is not None


def unsupported(
    answer: str, results: Sequence[Given], known: Sequence[str] = (), behind: Mapping[str, Sequence[str]] | None = None
) -> tuple[Statement, ...]:
    """What an answer states that stands in no result it cites, or, where it cites none, in no result."""
    return tuple(found for found in trace_answer(answer, results, known, behind) if not found.is_supported)


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
    if is_too_much(results):
        return ()
    tracings = tracings or {}
    sources = [_source_of_result(result, tracings.get(result.task)) for result in results if result.value is not None]
    if not sources or not all(source.evidence.is_whole for source in sources):
        return ()
    instructions = [result.instruction for result in results]
    sources.append(Source(Evidence(*known, *instructions), "input"))
    invented = [item.text for tracing in tracings.values() for item in tracing.untraced if not item.origin]
    tracer = _Tracer(_ROWS_NOT_SHOWN.sub("", answer), sources, behind or {}, today, _evidence_of(invented))
    return tracer.trace()


def _source_of_result(result: Given, tracing: Tracing | None) -> "Source":
    """A result as a source: what of it no tool returned is known from its tracing."""
    evidence = Evidence(result.value)
    if tracing is None:
        return Source(evidence, task=result.task)
    return Source(
        evidence,
        origin="tool" if tracing.tools or tracing.unread else "words",
        given=_evidence_of(tracing.given),
        words=_evidence_of([item.text for item in tracing.untraced]),
        task=result.task,
    )


def size_of(results: Sequence[Given]) -> int:
    """How many characters some results have, about."""
    return sum([len(msgspec.json.encode(result.value)) for result in results])


def is_too_much(results: Sequence[Given]) -> bool:
    """Whether some results are longer than what is read: then nothing is traced."""
    return size_of(results) > _MAX_RESULTS


# --- the result of a worker


class Material(Struct):
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


async def trace_result(value: object, material: Material, today: date) -> Tracing:
    """What the figures of a result rest on."""
    text = _text_of(value)
    return await read_off_loop(len(text) + material.size, _trace_result, text, material, today)


def _trace_result(text: str, material: Material, today: date) -> Tracing:
    sources = [Source(Evidence(*material.tools))]
    if material.given:
        untraced = [item.text for item in material.untraced]
        sources.append(Source(Evidence(*material.given), "input", words=_evidence_of(untraced)))
    if material.words:
        sources.append(Source(Evidence(*material.words), "words"))
    if not all(source.evidence.is_whole for source in sources):
        return Tracing(unread=True)
    statements = _Tracer(text, sources, {}, today).trace()
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
    untraced = [found for found in tracing.untraced if not found.origin]
    if not untraced:
        return ""
    lines = "\n".join(f"- {describe(found)}" for found in untraced[:8])
    cause = "stand in no result of your tools" if called else "rest on nothing: you have used none of your tools"
    return (
        f"These parts of your reply {cause}, nor in what you were given:\n{lines}\n"
        "Take them from what the tools returned, call a tool, or leave them out. Then send the whole reply again."
    )


_CONFLICTS = {
    "": "",
    "row": " (it stands in another row)",
    "unit": " (it stands there in another unit)",
    "label": " (it is said of something else there)",
}


def describe(statement: Statement) -> str:
    """A statement in a line: what is cited for it, and why it is doubted."""
    text = f"“{statement.text}”" if statement.kind == "quotation" else statement.text
    cited = f", cited from {_bracket(statement.cited)}" if statement.cited else ""
    elsewhere = f", but it stands in {_bracket(statement.elsewhere)}" if statement.elsewhere else ""
    return text + cited + elsewhere + _CONFLICTS[statement.conflict]


def _bracket(tasks: Sequence[str]) -> str:
    return ", ".join(f"[{task}]" for task in tasks)


def _text_of(value: object) -> str:
    """What a result says, line by line. Of data, every record is a line; grades that it gives are left out."""
    if isinstance(value, Product):
        return value.text
    if isinstance(value, str):
        return value
    return "\n".join(_lines_of(decode_value(encode_value(value))))


def _lines_of(value: object) -> Iterator[str]:
    stack: list[tuple[str, object]] = [("", value)]
    while stack:
        key, item = stack.pop()
        if isinstance(item, dict):
            cells: list[str] = []
            for name, cell in cast("dict[str, object]", item).items():
                if isinstance(cell, dict | list):
                    stack.append((name, cast("object", cell)))
                elif not _GRADES.fullmatch(name):
                    cells.append(_cell_text(name, cell))
            yield "; ".join(cells)
        elif isinstance(item, list):
            stack.extend((key, cell) for cell in reversed(cast("list[object]", item)))
        elif item is not None and not _GRADES.fullmatch(key):
            yield _cell_text(key, item)


def _cell_text(name: str, cell: object) -> str:
    text = str(cell).lower() if isinstance(cell, bool) or cell is None else str(cell)
    return f"{name.replace('_', ' ')}: {text}" if name else text


# --- tracing


class Source(Struct, frozen=True):
    """What statements may rest on."""

    evidence: Evidence
    origin: Origin = "tool"
    """What its figures rest on, except for those that were `given` or are a worker's `words`."""
    given: Evidence | None = None
    """What of it stood in what its worker was given."""
    words: Evidence | None = None
    """What of it only a worker says."""
    task: str = ""
    """The task whose result it is; empty: it may always be relied on."""

    def reliable_numbers(self) -> Iterator[Decimal]:
        """The numbers of a short source, without those that only a worker says."""
        worded = () if self.words is None else self.words.few
        return (value for value in self.evidence.few if value and value not in worded)


def _evidence_of(texts: Sequence[str]) -> Evidence | None:
    return Evidence(*texts) if texts else None


_DERIVATIONS: Sequence[tuple[Origin, Sequence[Origin]]] = (
    ("tool", ("tool",)),
    ("input", ("input",)),
    ("tool", ("tool", "input")),
    ("words", ("tool", "input", "words")),
)
"""What a figure rests on that follows from sources of these origins; the first that it follows from counts."""


_WORST_FIRST: Sequence[Origin] = ("", "words", "input", "tool")


class _Found(Struct):
    """Something that a sentence states, where in the sentence, and what is known of it."""

    kind: Kind
    text: str
    value: Quantity | Date | None
    start: int
    end: int
    is_rough: bool = False
    is_count: bool = False
    """It says which or how many of what is listed."""
    origin: Origin = ""
    conflict: Conflict = ""
    is_invented: bool = False
    """A worker that has tools made it up, so it rests on nothing, whoever repeats it."""

    @property
    def is_settled(self) -> bool:
        return self.is_invented or (self.origin != "" and not self.conflict and not self.is_count)

    def is_in(self, evidence: Evidence) -> bool:
        if isinstance(self.value, Quantity):
            return evidence.holds(self.value, is_rough=self.is_rough)
        if isinstance(self.value, Date):
            return evidence.dates.hold(self.value)
        if self.kind in ("url", "email"):
            return evidence.names(self.text)
        pieces = [plain_words(piece) for piece in _OMISSION.split(self.text)]
        return all(evidence.says(piece) for piece in pieces if piece.strip())

    def trace(self, sources: Sequence[Source], invented: Evidence | None) -> None:
        """Set the origin to the best that a source has for it: a tool, what was given, a worker's words."""
        for source in sources:
            origin = self._origin_in(source)
            if _WORST_FIRST.index(origin) > _WORST_FIRST.index(self.origin):
                self.origin = origin
            if self.origin == "tool":
                return
        if self.origin == "words" and invented is not None and self.is_in(invented):
            self.origin = ""
            self.is_invented = True

    def _origin_in(self, source: Source) -> Origin:
        if not self.is_in(source.evidence):
            return ""
        if source.words is not None and self.is_in(source.words):
            return "words"
        if source.given is not None and self.is_in(source.given):
            return "input"
        return source.origin

    def rows_in(self, evidence: Evidence) -> set[int]:
        """The rows in which it stands; none where it stands outside of rows, too."""
        if isinstance(self.value, Quantity):
            rows = {figure.row for figure in evidence.figures(self.value)}
            return set() if -1 in rows else rows
        return evidence.dates.rows_of(self.value) if isinstance(self.value, Date) else set()


class _Tracer:
    """Traces what a text states. Positions are those of the text: what is not to be read is replaced by blanks."""

    def __init__(
        self,
        text: str,
        sources: Sequence[Source],
        behind: Mapping[str, Sequence[str]],
        today: date | None,
        invented: Evidence | None = None,
    ) -> None:
        self._text = text[:_MAX_ANSWER]
        self._sources = sources
        self._by_task = {source.task: source for source in sources if source.task}
        self._behind = behind
        self._today = today
        self._invented = invented
        self._quotations: list[tuple[int, str]] = []
        self._counts = {len(self._by_task)}  # how many there are of what is listed
        for paragraph in self._text.split("\n\n"):
            listed = count_listed(paragraph)
            self._counts |= {listed, listed - 1}  # a table has one line more than rows

    def trace(self) -> tuple[Statement, ...]:
        return tuple(islice(self._trace_text(), _MAX_STATEMENTS))

    def _trace_text(self) -> Iterator[Statement]:
        masked = self._mask()
        traced: list[_Found] = []
        previous_end = 0
        for start, end in find_sentences(masked):
            if _BLANK_LINE.search(masked, previous_end, start):
                traced.clear()
            previous_end = end
            yield from self._trace_sentence(masked, start, end, traced)

    def _mask(self) -> str:
        """The text without code, list numbers and quotations; citations behind a full stop stand before it."""
        masked = _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), self._text)
        masked = _CODE.sub(
            lambda match: f" {match[1]} " if _PLAIN_FIGURES.fullmatch(match[1]) else _blank(match), masked
        )
        masked = _QUOTED_LINES.sub(self._take_quoted_lines, masked)
        masked = QUOTED.sub(self._take_quotation, masked)
        masked = _LIST_NUMBER.sub(_blank, masked)
        return _LATE_CITATION.sub(lambda match: match[0][1:] + match[0][0], masked)

    def _take_quoted_lines(self, match: re.Match[str]) -> str:
        lines = [line.lstrip(" \t>").strip() for line in self._text[match.start() : match.end()].splitlines()]
        said = " ".join(line for line in lines if line and not line.startswith(("\u2014", "\u2013", "- ", "(")))
        if not self._take(match.start(), said):
            return match[0]
        cited = " ".join(brackets[0] for brackets in _BRACKETS.finditer(match[0]) if self._cited(brackets[0]))
        return f"{_HIDDEN}{cited}".ljust(len(match[0]) - 1, _HIDDEN) + "\n"

    def _take_quotation(self, match: re.Match[str]) -> str:
        start, end = match.span(match.lastgroup or 0)
        quotation = self._text[start:end]
        return _HIDDEN * len(match[0]) if self._take(match.start(), quotation) else match[0]

    def _take(self, start: int, quotation: str) -> bool:
        """Keep a quotation to look it up, if it is long enough."""
        words = plain_words(_OMISSION.sub(" ", quotation)).split()
        if len(words) < _MIN_QUOTED_WORDS or len(self._quotations) >= _MAX_STATEMENTS:
            return False
        self._quotations.append((start, quotation))
        return True

    def _cited(self, sentence: str) -> tuple[str, ...]:
        """The tasks that are named in brackets, of those there are."""
        cited: dict[str, None] = {}
        for match in _BRACKETS.finditer(sentence) if self._by_task else ():
            names = [name for name in re.split(r"[,;&\s]+(?:and\s+)?|\btasks?\b", match[1]) if name]
            tasks = [re.sub(r"\[\d+\]$", "", name) for name in names]
            if all(task in self._by_task for task in tasks):
                cited |= dict.fromkeys(tasks)
        return tuple(cited)

    def _sources_of(self, cited: Sequence[str]) -> Sequence[Source]:
        """What a sentence may rest on: the tasks it cites, and those they were made from."""
        if not cited:
            return self._sources
        names = dict.fromkeys(cited)
        for task in cited:
            names |= dict.fromkeys(self._behind.get(task, ()))
        tasks = [self._by_task[name] for name in names if name in self._by_task]
        return [*tasks, *(source for source in self._sources if not source.task)]

    def _trace_sentence(self, masked: str, start: int, end: int, traced: list[_Found]) -> Iterator[Statement]:
        sentence = masked[start:end]
        cited = self._cited(sentence)
        sources = self._sources_of(cited)
        found: list[_Found] = []
        for at, quotation in self._quotations:
            if start <= at < end:
                found.append(_Found("quotation", quotation, None, at - start, at - start))
        plain = _BRACKETS.sub(lambda match: _blank(match) if self._cited(match[0]) else match[0], sentence)
        for find in (_find_urls, _find_emails, _find_dates):
            statements = list(islice(find(plain), _MAX_STATEMENTS))
            found += statements
            for statement in statements:
                blank = " " * (statement.end - statement.start)
                plain = plain[: statement.start] + blank + plain[statement.end :]
        for statement in found:
            statement.trace(sources, self._invented)
            if isinstance(statement.value, Date) and not statement.origin and not statement.is_invented:
                statement.origin = self._origin_of_date(statement.value, sources)
        found += self._trace_numbers(plain, sources, traced)
        if not _RESPECTIVELY.search(sentence):
            _doubt_rows(sentence, sources, found)
        for names in _find_misplaced_names(sentence, sources):
            found.append(_Found("name", names, None, 0, 0, conflict="row"))
        original = " ".join(self._text[start:end].split())[:_MAX_SENTENCE]
        for statement in found:
            yield self._state(statement, original, cited)

    def _state(self, found: _Found, sentence: str, cited: tuple[str, ...]) -> Statement:
        elsewhere: list[str] = []
        if cited and not (found.origin or found.conflict or found.is_invented):
            elsewhere = [task for task, source in self._by_task.items() if found.is_in(source.evidence)]
        return Statement(
            kind=found.kind,
            text=found.text[:_MAX_TEXT],
            origin=found.origin,
            conflict=found.conflict,
            sentence=sentence,
            cited=cited,
            elsewhere=tuple(elsewhere),
        )

    def _origin_of_date(self, wanted: Date, sources: Sequence[Source]) -> Origin:
        """Today's date is given; a date may lie so many days from another one as a source says."""
        if self._today is not None and _is_about(wanted, self._today):
            return "input"
        for origin, admitted in _DERIVATIONS:
            evidences = [source.evidence for source in sources if source.origin in admitted]
            terms = {int(number) for evidence in evidences for number in evidence.few if number == int(number)}
            if any(evidence.dates.reach(wanted, terms) for evidence in evidences):
                return origin
        return ""

    # --- numbers

    def _trace_numbers(self, plain: str, sources: Sequence[Source], traced: list[_Found]) -> Iterator[_Found]:
        """The numbers of a sentence; those that are `traced`, before it or in it, may bear out others."""
        quantities = islice(find_quantities(plain), _MAX_STATEMENTS)
        found = [self._trace_number(quantity, plain, sources) for quantity in quantities]
        settled = [number for number in found if number.is_settled and not number.is_invented]
        traced += [number for number in settled if number.origin != "words"]
        operands = traced[-12:] + [number for number in settled if number.origin == "words"]
        arithmetic = _Arithmetic.of_sentence(plain)
        for number in found:
            if number.is_settled or number.is_count:
                continue
            origin = arithmetic.derived_origin(number, sources, operands)
            if number.conflict and origin == "words":
                origin = ""
            if origin:
                number.conflict = ""
            number.origin = origin
        yield from (number for number in found if not (number.is_count and number.origin == "tool"))
        yield from self._find_wrong_counts(plain, sources)

    def _trace_number(self, quantity: Quantity, plain: str, sources: Sequence[Source]) -> _Found:
        start = quantity.start
        number = _Found("number", quantity.text, quantity, start, quantity.end)
        number.is_rough = _ROUGHLY_BEFORE.search(plain[max(0, start - 16) : start]) is not None
        number.trace(sources, self._invented)
        if number.origin:
            number.conflict = _find_conflict(quantity, plain, sources)
        if not number.is_settled and self._is_count(quantity, plain, sources):
            number.is_count = True
            number.origin = number.origin or "tool"
            number.conflict = ""
        return number

    def _find_wrong_counts(self, plain: str, sources: Sequence[Source]) -> Iterator[_Found]:
        """Numbers in words, where the sources say another number of the same: five hours for three."""
        for quantity in islice(find_counts(plain), _MAX_STATEMENTS):
            noun = noun_behind(plain, quantity.end)
            if not noun or not any(source.evidence.counts_noun(noun) for source in sources):
                continue
            is_held = any(source.evidence.holds(quantity) for source in sources)
            if not is_held and not self._is_count(quantity, plain, sources):
                yield _Found("number", quantity.text, quantity, quantity.start, quantity.end)

    def _is_count(self, quantity: Quantity, plain: str, sources: Sequence[Source]) -> bool:
        """Whether a number says which or how many of what is listed."""
        if _ORDINAL_BEFORE.search(plain[max(0, quantity.start - 12) : quantity.start]):
            return True
        if quantity.unit == "%":
            return quantity.text == "100"
        if quantity.unit in ("eur", "usd", "gbp", "jpy") or not quantity.text.isalnum():
            return False
        count = int(quantity.readings[0][0])
        if self._today is not None and count == self._today.year:
            return True
        return count in self._counts or any(count in source.evidence.counts for source in sources)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _is_about(wanted: Date, today: date) -> bool:
    """Whether a date is today, or, elsewhere on earth and a little later, the day before or after."""
    day = calendar_day((wanted.year or today.year, wanted.month, wanted.day))
    return day is not None and abs((day - today).days) <= 1


def _find_urls(plain: str) -> Iterator[_Found]:
    return (_Found("url", url, None, start, end) for url, start, end in find_urls(plain))


def _find_emails(plain: str) -> Iterator[_Found]:
    return (_Found("email", match[0], None, match.start(), match.end()) for match in EMAIL.finditer(plain))


def _find_dates(plain: str) -> Iterator[_Found]:
    return (_Found("date", day.text, day, day.start, day.end) for day in find_dates(plain))


def _first_reading(number: _Found) -> Decimal:
    return cast("Quantity", number.value).readings[0][0]


def _find_conflict(quantity: Quantity, plain: str, sources: Sequence[Source]) -> Conflict:
    """Why a number that stands in the sources is not the one that is meant: another unit, or of another thing."""
    figures = [figure for source in sources for figure in source.evidence.figures(quantity)]
    if not figures:
        return ""
    if quantity.measure:
        return "unit" if all(figure.unit and figure.unit != quantity.measure for figure in figures) else ""
    noun = noun_behind(plain, quantity.end)
    if not noun or any(noun in figure.about or not figure.about for figure in figures):
        return ""
    return "label" if any(source.evidence.counts_noun(noun) for source in sources) else ""


class _Arithmetic(Struct, frozen=True):
    """What a sentence may work out from other numbers, as far as its words say so."""

    is_total: bool
    is_comparison: bool
    is_row: bool
    """It is a row of a table."""

    @classmethod
    def of_sentence(cls, plain: str) -> "_Arithmetic":
        return cls(
            is_total=_TOTAL.search(plain) is not None,
            is_comparison=_COMPARISON.search(plain) is not None,
            is_row=plain.lstrip().startswith("|"),
        )

    def derived_origin(self, number: _Found, sources: Sequence[Source], operands: Sequence[_Found]) -> Origin:
        """What a number rests on that follows from the sources or from the `operands`; empty: from none of them."""
        for origin, admitted in _DERIVATIONS:
            own_sources = [source for source in sources if source.origin in admitted]
            values = [_first_reading(operand) for operand in operands if operand.origin in admitted]
            if self._derives(number, own_sources, values):
                return origin
        return ""

    def _derives(self, number: _Found, sources: Sequence[Source], numbers: Sequence[Decimal]) -> bool:
        """Whether a number is a sum, mean, difference, share or product of `numbers` or of those of the sources."""
        quantity = cast("Quantity", number.value)
        digits = sum(character.isdigit() for character in quantity.text)
        for source in sources:
            evidence = source.evidence
            if (self.is_total or digits > 2) and evidence.sums.hold(quantity):
                return True
            if (self.is_comparison or self.is_row) and evidence.differences.hold(quantity):
                return True
            if evidence.converts_to(quantity):
                return True
        few = [value for source in sources for value in source.reliable_numbers()][:12]
        is_exact = quantity.unit == "%" or "." in quantity.text
        values = _combine(numbers, sums=self.is_total, ratios=self.is_comparison)
        values += _combine(few, ratios=self.is_comparison and is_exact, products=digits > 1)
        return KnownNumbers(values).hold(quantity)


def _combine(
    numbers: Sequence[Decimal], *, sums: bool = False, ratios: bool = False, products: bool = False
) -> list[Decimal]:
    """What can be worked out from some numbers, of every two of them and of all."""
    values: list[Decimal] = []
    if numbers and sums:
        total = sum(numbers, Decimal(0))
        values += [total, total / len(numbers)]
    for first, second in combinations(numbers, 2):
        if sums:
            values.append(first + second)
        if products:
            values.append(first * second)
        if ratios:
            values += [abs(first - second), first * second / 100]
            for part, whole in ((first, second), (second, first)):
                values += [part / whole, part / whole * 100, abs(part - whole) / whole * 100] if whole else []
    return values


# --- rows of tables. What can be read in more than one way is doubted only if no way agrees with the tables.


def _doubt_rows(sentence: str, sources: Sequence[Source], found: Sequence[_Found]) -> None:
    """Mark numbers and dates that stand in other rows than the ones that the sentence names for them."""
    for source in sources:
        evidence = source.evidence
        names = evidence.rows.find_named(sentence)
        if not names:
            continue
        others = [other.evidence for other in sources if other is not source]
        spans = [(name.start, name.end) for name in names] + evidence.rows.quoted_spans(sentence)
        placed: list[tuple[_Found, set[int]]] = []
        for statement in found:
            is_named = any(start <= statement.start < end for start, end in spans)
            if is_named or statement.is_count or any(statement.is_in(other) for other in others):
                continue
            if rows := statement.rows_in(evidence):
                placed.append((statement, rows))
        misplaced = [
            statement for statement, rows in placed if not _is_beside_its_name(sentence, names, statement, rows)
        ]
        if misplaced and not _is_in_order(names, placed):
            for statement in misplaced:
                statement.origin = ""
                statement.conflict = "row"
            return


def _is_beside_its_name(sentence: str, names: Sequence[NamedRows], statement: _Found, rows: set[int]) -> bool:
    """Whether something belongs to the name right behind it, or else to the one before it, or the last two of those.

    A semicolon ends what is said of a name, if there is a name on this side of it.
    """
    begin = sentence.rfind(";", 0, statement.start) + 1
    end = sentence.find(";", statement.end)
    own = [name for name in names if name.start >= begin and (end < 0 or name.end <= end)]
    names = own or names
    behind = next((name for name in names if name.start >= statement.end), None)
    before = [name for name in names if name.end <= statement.start][-2:]
    if behind is not None and _NAME_ADJACENT.fullmatch(sentence[statement.end : behind.start]):
        meant = behind
    elif before:
        meant = before[-1]
    else:
        return True
    if meant.rows & rows:
        return True
    return len(before) > 1 and bool(before[0].rows & rows) and bool(before[0].rows & before[1].rows)


def _is_in_order(names: Sequence[NamedRows], placed: Sequence[tuple[_Found, set[int]]]) -> bool:
    """Whether the first value belongs to the first name, the second to the second, and so on."""
    return len(names) == len(placed) and all(name.rows & rows for name, (_, rows) in zip(names, placed, strict=True))


def _find_misplaced_names(sentence: str, sources: Sequence[Source]) -> Iterator[str]:
    """Two texts of a table that the sentence says of each other, and that stand together in no row."""
    for source in sources:
        for first, second in pairwise(source.evidence.rows.find_named(sentence)):
            if first.is_column or second.is_column or first.rows & second.rows or first.columns & second.columns:
                continue
            tables = {table for table, _ in first.columns} & {table for table, _ in second.columns}
            if tables and _NAME_EQUATED.fullmatch(sentence[first.end : second.start]):
                yield sentence[first.start : second.end]
