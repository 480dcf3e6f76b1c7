"""Which tool of which worker serves a clause, and with which arguments: by schema, by type, and by its words.

A tool fits only if every word of the clause is accounted for.
"""

import re
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from chargehand.models.demo.request import (
    ORDERS,
    Clause,
    RefusedError,
    Token,
    content_stems,
    has_negative_number,
    join_words,
    number_value,
    stem,
    stem_set,
    stems,
    tokenize,
    word_set,
)
from chargehand.models.demo.table_reader import read_query
from chargehand.models.demo.tables import Query, read_schema
from chargehand.models.request_facts import Skill, WorkerCard

ToolKind: TypeAlias = Literal["table", "search", "archive", "compute", "chart", "memory", "call"]

NEGATIVE = "negative numbers are not read"
_MEMORY = word_set(
    """archival_memory_insert conversation_search core_memory_append core_memory_replace memory_insert memory_replace
    memory_rethink memory_apply_patch memory_finish_edits give_up read_more run_python read_file list_files write_file
    fetch send_message_to_agent_and_wait_for_reply send_message_to_agent_async send_message_to_agents_matching_tags"""
)
"""Tools for memory, files and messages, which are used by rules of their own or not at all."""
_OPTIONAL_SEARCH = word_set("most limit top_k k count path folder")
_WRITING = stem_set("write draft memo letter summaries")


class _Option(Struct):
    """What a property of a JSON Schema may be."""

    type: str | list[str] = "string"
    description: str = ""
    format: str = ""
    enum: list[object] = []


class _Property(_Option):
    anyOf: list[_Option] = []  # noqa: N815 - as JSON Schema spells it


class _Schema(Struct):
    properties: dict[str, _Property] = {}
    required: list[str] = []


class Parameter(Struct, frozen=True):
    """An argument of a tool; `type` is that of its JSON Schema, with `day` for days and `choice` for enums."""

    name: str
    type: str
    description: str
    choices: tuple[str, ...]
    is_required: bool


class ToolCard(Struct, frozen=True):
    """A tool as the demo model sees it."""

    name: str
    description: str
    kind: ToolKind
    parameters: tuple[Parameter, ...] = ()

    @property
    def headline(self) -> str:
        """What it is for: the first paragraph of its description."""
        return self.description.partition("\n\n")[0]


Staff: TypeAlias = list[tuple[WorkerCard, list[ToolCard]]]
"""Workers, and the tools of each."""


def tools_of(worker: WorkerCard) -> list[ToolCard]:
    """The cards of all tools of a worker."""
    return [read_skill(skill) for skill in worker.skills]


def only_remembers(tools: list[ToolCard]) -> bool:
    """Whether there is nothing to work with but memory and the words of others."""
    return all(tool.kind in {"memory", "archive"} for tool in tools)


def read_skill(skill: Skill) -> ToolCard:
    return read_tool(skill.name, skill.description, skill.parameters)


def read_tool(name: str, description: str, parameters: Raw) -> ToolCard:
    """The card of a tool."""
    return _read_tool(name, description, bytes(parameters))


@lru_cache(maxsize=1_000)
def _read_tool(name: str, description: str, schema: bytes) -> ToolCard:
    try:
        read = msgspec.json.decode(schema, type=_Schema)
    except msgspec.DecodeError:
        read = _Schema()
    parameters = tuple(_read_parameter(key, read.properties[key], read.required) for key in read.properties)
    return ToolCard(name, description, _read_kind(name, description, parameters), parameters)


def _read_parameter(name: str, schema: _Property, required: list[str]) -> Parameter:
    about = next((option for option in schema.anyOf if option.type != "null"), schema)
    description = schema.description or about.description
    choices = tuple(str(choice) for choice in about.enum if choice is not None)
    kind = about.type if isinstance(about.type, str) else about.type[0]
    if choices:
        kind = "integer" if all(choice.isdigit() for choice in choices) else "choice"
    elif about.format == "date" or "YYYY-MM-DD" in description or (kind == "string" and name in {"day", "date"}):
        kind = "day"
    return Parameter(name=name, type=kind, description=description, choices=choices, is_required=name in required)


def _read_kind(name: str, description: str, parameters: tuple[Parameter, ...]) -> ToolKind:
    names = {parameter.name for parameter in parameters}
    required = {parameter.name for parameter in parameters if parameter.is_required}
    kinds: dict[ToolKind, bool] = {
        "archive": name == "archival_memory_search",
        "memory": name in _MEMORY,
        "table": "sql" in names and read_schema(description) is not None,
        "chart": {"labels", "values"} <= names,
        "compute": required == {"expression"},
        "search": required == {"query"} and names - required <= _OPTIONAL_SEARCH,
        "call": True,
    }
    return next(kind for kind, is_it in kinds.items() if is_it)


def tool_words(tool: ToolCard) -> frozenset[str]:
    """The stems of everything a tool says of itself."""
    about = [f"{parameter.name} {parameter.description}" for parameter in tool.parameters]
    return frozenset(stems(" ".join((tool.name, tool.description[:2_000], *about))))


@lru_cache(maxsize=2_000)
def _read_words(text: str) -> frozenset[str]:
    """The words of a card or a tool that carry meaning."""
    return content_stems(text)


def card_words(worker: WorkerCard) -> frozenset[str]:
    """The stems of everything a worker's card says."""
    words = (worker.name, worker.description, *worker.tags, *worker.phrases, *worker.examples[:50])
    return _read_words(" ".join(words))


def card_score(clause: Clause, worker: WorkerCard) -> float:
    """How many words of a clause are on a worker's card."""
    return float(len(card_words(worker) & clause.stems))


def serves_kind(worker: WorkerCard, tools: list[ToolCard], kind: str) -> bool:
    """Whether a worker draws, converts or writes."""
    if kind == "draw":
        return any(tool.kind == "chart" for tool in tools)
    if kind == "convert":
        return rate_tool(tools) is not None
    is_writer = bool(_WRITING & card_words(worker))
    return is_writer and not any(tool.kind in {"table", "search", "chart"} for tool in tools)


def rate_tool(tools: list[ToolCard]) -> ToolCard | None:
    """A tool that knows what currencies are worth."""
    for tool in tools:
        choices = [choice for parameter in tool.parameters for choice in parameter.choices]
        has_codes = any(len(choice) == 3 and choice.isupper() for choice in choices)
        if tool.kind == "call" and has_codes and stem("rate") in stems(f"{tool.name} {tool.headline}"):
            return tool
    return None


# --- arguments

_AMOUNTS = word_set("many much long far often")
"""Words after "how" that ask for an amount."""
_COUNTS = stem_set("count number quantity amount pieces units n")
"""Names of arguments that say how many of anything there are."""
_OPTIONS = re.compile(r":\s*([\w ]{1,80}(?:, [\w ]{1,80}){0,20} or [\w ]{1,80})")
_NO_NAME = re.compile(r", | and | or |\bthan\b", re.IGNORECASE)
"""What a text has that is several names, or a comparison."""
_NAME = r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)*"
_ROUTE = re.compile(rf"\bfrom (?P<start>{_NAME}) to (?P<end>{_NAME})")
_START = stem_set("from origin start source departure leave leaves")
_END = stem_set("to destination end target arrival goes")


class Filled(Struct, frozen=True):
    """Arguments for one or more calls of a tool, and the places of the words they use."""

    calls: tuple[dict[str, object], ...]
    used: set[int]
    has_free_text: bool


def fill_arguments(tool: ToolCard, clause: Clause) -> Filled:
    """Arguments from the words of a clause. Several values for one choice are several calls."""
    filling = _Filling(tool, clause)
    filling.fill_choices()
    filling.fill_periods()
    filling.fill_numbers()
    filling.fill_route()
    has_free_text = filling.fill_text()
    values = filling.values
    missing = [
        parameter.name for parameter in tool.parameters if parameter.is_required and parameter.name not in values
    ]
    if missing:
        raise RefusedError(f"{tool.name} needs {', '.join(missing).replace('_', ' ')}, which is not said")
    several = [name for name in values if len(values[name]) > 1]
    if len(several) > 1:
        raise RefusedError("which names belong together is not clear")
    first = {parameter.name: values[parameter.name][0] for parameter in tool.parameters if parameter.name in values}
    calls = tuple({**first, name: value} for name in several for value in values[name])
    return Filled(calls or (first,), filling.used, has_free_text)


class _Filling:
    """The arguments of a tool while they are filled: values by parameter, and the places of the words they used."""

    def __init__(self, tool: ToolCard, clause: Clause) -> None:
        self.tool = tool
        self.clause = clause
        self.tokens = clause.tokens
        self.values: dict[str, list[object]] = {}
        self.used: set[int] = set()

    def _open(self, *types: str) -> list[Parameter]:
        parameters = self.tool.parameters
        return [parameter for parameter in parameters if parameter.type in types and parameter.name not in self.values]

    def fill_choices(self) -> None:
        """As many values as there are arguments with the same choices are one for each; else all are for the one."""
        for parameter in self._open("choice"):
            alike = [other.name for other in self._open("choice") if other.choices == parameter.choices]
            chosen = self._find_choices(parameter.choices)
            if len(alike) == len(chosen):
                self.values.update({name: [value] for name, value in zip(alike, chosen, strict=True)})
            elif len(alike) == 1 and chosen:
                self.values[parameter.name] = [*chosen]
            else:
                continue
            self.used.update(place for places in chosen.values() for place in places)

    def _find_choices(self, choices: tuple[str, ...]) -> dict[str, range]:
        """The choices that occur and their places, in order; the longest where two begin alike."""
        words = [token.stem for token in self.tokens]
        chosen: dict[str, range] = {}
        taken = set(self.used)
        for choice in sorted(choices, key=len, reverse=True):
            wanted = stems(choice)
            for start in range(len(words)):
                places = range(start, start + len(wanted))
                if wanted and words[start : places.stop] == wanted and taken.isdisjoint(places):
                    chosen[choice] = places
                    taken.update(places)
                    break
        return dict(sorted(chosen.items(), key=lambda item: item[1].start))

    def fill_periods(self) -> None:
        """Days in their order, and months for arguments whose choices are months."""
        days = self._open("day")
        for period in self.clause.periods:
            word = period.words.split()[0]
            months = [parameter for parameter in self._open("choice") if word in parameter.choices]
            if period.is_day and period.year and days:
                self.values[days.pop(0).name] = [period.first.isoformat()]
            elif months and not period.is_day:
                self.values[months[0].name] = [word]
            else:
                raise RefusedError("a time is named that no argument takes")

    def fill_numbers(self) -> None:
        """Each number for the argument whose words stand beside it, or one for the only argument that needs one."""
        wanted = self._open("integer", "number")
        for place, token in enumerate(self.tokens):
            value = None if place in self.used else number_value(token.text)
            if value is None:
                continue
            scores = {parameter: self._nearness(parameter, place) for parameter in wanted}
            best = max(scores.values(), default=0.0)
            nearest = [parameter for parameter in wanted if scores[parameter] == best]
            if not best:
                nearest = [parameter for parameter in wanted if self._takes_any_number(parameter, place)]
            if len(nearest) == 1 and _takes_number(nearest[0], value):
                self.values[nearest[0].name] = [int(value) if value.is_integer() else value]
                self.used.add(place)
                wanted.remove(nearest[0])

    def _nearness(self, parameter: Parameter, place: int) -> float:
        """How many words of an argument's name stand beside a number: "10 years", "a rate of 5"."""
        own = stems(parameter.name)
        beside = {
            token.stem for token in (*self.tokens[max(0, place - 2) : place], *self.tokens[place + 1 : place + 4])
        }
        is_described = not beside.isdisjoint(content_stems(parameter.description))
        return sum(word in beside for word in own) / len(own) + 0.1 * is_described

    def _takes_any_number(self, parameter: Parameter, place: int) -> bool:
        """Whether an argument takes a number that none of its words stands beside.

        "order 12" is a name, and the 3 of "3 bikes" is no number of days: only a count is of anything.
        """
        is_name = place > 0 and not self.tokens[place - 1].is_free
        is_of_something = place + 1 < len(self.tokens) and not self.tokens[place + 1].is_free
        is_count = not _COUNTS.isdisjoint(stems(parameter.name))
        return parameter.is_required and not is_name and (is_count or not is_of_something)

    def fill_route(self) -> None:
        """Two required texts that speak of a start and an end are the names in "from A to B"."""
        route = _ROUTE.search(self.clause.text)
        wanted = {
            parameter.name: stem_set(f"{parameter.name} {parameter.description}".replace("_", " "))
            for parameter in self._open("string")
            if parameter.is_required
        }
        starts = [name for name in wanted if _START & wanted[name]]
        ends = [name for name in wanted if _END & wanted[name]]
        if route is None or (len(wanted), len(starts), len(ends)) != (2, 1, 1) or starts == ends:
            return
        self.values[starts[0]] = [route["start"]]
        self.values[ends[0]] = [route["end"]]
        self.used.update(place for place, token in enumerate(self.tokens) if route.start() <= token.start < route.end())

    def fill_text(self) -> bool:
        """One required text is what the clause says beyond the tool's own words."""
        wanted = [parameter for parameter in self._open("string") if parameter.is_required]
        if len(wanted) != 1:
            return False
        offered = stems(" ".join(_OPTIONS.findall(self.tool.headline)))
        own = tool_words(self.tool).difference(offered)
        rest = [
            place
            for place, token in enumerate(self.tokens)
            if place not in self.used
            and not (token.is_free or token.is_negation)
            and token.stem not in own
            and token.text.lower() not in _AMOUNTS
        ]
        if not rest:
            return False
        text = self.clause.text[self.tokens[rest[0]].start : self.tokens[rest[-1]].end]
        if _NO_NAME.search(text):
            raise RefusedError(f"{self.tool.name} takes one {wanted[0].name.replace('_', ' ')}, not {text!r}")
        self.values[wanted[0].name] = [text]
        self.used.update(rest)
        return True


def _takes_number(parameter: Parameter, value: float) -> bool:
    is_allowed = not parameter.choices or f"{value:g}" in parameter.choices
    return is_allowed and (value.is_integer() or parameter.type == "number")


# --- the choice of a tool

_REPORTING = word_set("find show list tell give say report compare name get")
_COMPUTE = word_set("calculate compute work result")
_OPERAND = r"\(?\d[\d,]*(?:\.\d+)?\)?"
_EXPRESSION = re.compile(
    rf"(?<![\w.])(?:\d+(?:\.\d+)?% of {_OPERAND}|{_OPERAND}(?:\s*(?:\*\*|[-+*/])\s*{_OPERAND})+)(?![\w-])"
)
_IN_ARCHIVE = re.compile(r"\balready (?:know|have|found|kept)\b|\bin (?:the|our) archive\b", re.IGNORECASE)
_IN_NAME = 3.0
_IN_HEADLINE = 2.0
_IN_DETAILS = 1.0
_ON_CARD = 0.5
_FITS = 2.0
"""The least that the words of a clause have to say for a tool."""
_CERTAIN = 4.0


class Fit(Struct, frozen=True):
    """A tool that can serve a clause. `is_certain` is false where only what it returns will tell."""

    worker: WorkerCard
    tool: ToolCard
    score: float
    reading: Query | str | Filled | None = None
    """What the tool is to be asked, for arithmetic an expression; nothing for a search."""
    is_certain: bool = True


def choose_fit(clause: Clause, staff: Staff) -> Fit:
    """The best tool of all workers for a clause that asks for something; none where two fit as well."""
    if has_negative_number(clause.text):
        raise RefusedError(NEGATIVE, is_known=True)
    fits: list[Fit] = []
    failures: list[RefusedError] = []
    for worker, tools in staff:
        for tool in tools:
            try:
                fits += filter(None, [_fit_tool(clause, worker, tool, has_others=not only_remembers(tools))])
            except RefusedError as failure:
                failures.append(failure)
    if clause.about is not None:
        fits = [fit for fit in fits if fit.tool.kind in {"search", "archive"}] or fits
    certain = [fit for fit in fits if fit.is_certain]
    failure = max(failures, key=lambda failure: (failure.is_known, failure.understood), default=None)
    if failure is not None and (not fits or (failure.is_known and not certain)):
        raise failure
    if not fits:
        raise RefusedError("none of the tools is for this")
    ranks = [(fit.score, card_score(clause, fit.worker)) for fit in certain or fits]
    equal = [fit for fit, rank in zip(certain or fits, ranks, strict=True) if rank == max(ranks)]
    names = dict.fromkeys(fit.tool.name for fit in equal)
    if len(names) > 1 and equal[0].tool.kind not in {"search", "archive"}:
        raise RefusedError(f"{join_words(list(names), 'or')} could be meant; say which", is_known=True)
    return equal[0]


def _fit_tool(clause: Clause, worker: WorkerCard, tool: ToolCard, *, has_others: bool) -> Fit | None:
    is_of_archive = _IN_ARCHIVE.search(clause.text) is not None
    if tool.kind == "archive" and (is_of_archive or not has_others):
        return _fit_search(clause, worker, tool)
    if is_of_archive:
        return None
    match tool.kind:
        case "table":
            return Fit(worker, tool, _CERTAIN, read_query(clause, tool.description))
        case "search":
            return _fit_search(clause, worker, tool)
        case "compute":
            expression = _read_expression(clause)
            return Fit(worker, tool, _CERTAIN, expression) if expression else None
        case "call":
            return _fit_call(clause, worker, tool)
        case _:
            return None


def _fit_search(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | None:
    """A search may answer anything that is not an order; how well it fits is told by the words it is known for."""
    if clause.opening in ORDERS or clause.points_back or not clause.content:
        return None
    score = sum(_word_weight(token, tool, worker) for token in clause.content) / 10
    is_certain = clause.about is not None
    return Fit(worker, tool, score + 3.0 * is_certain, is_certain=is_certain)


def _read_expression(clause: Clause) -> str:
    """The arithmetic that a clause spells out in signs and says nothing beside."""
    match = _EXPRESSION.search(clause.text)
    if match is None or clause.periods or clause.points_back:
        return ""
    beside = [token for token in clause.content if not match.start() <= token.start < match.end()]
    return match[0].replace(",", "") if all(token.text.lower() in _COMPUTE for token in beside) else ""


def _fit_call(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | None:
    """A tool with all its arguments, if the words that they leave are the tool's own."""
    own = _read_words(f"{tool.name} {tool.headline}")
    try:
        filled = fill_arguments(tool, clause)
    except RefusedError as refusal:
        overlap = len(own & clause.stems)
        if overlap < _FITS:
            return None
        raise RefusedError(refusal.reason, understood=overlap) from refusal
    open_names = " ".join(parameter.name for parameter in tool.parameters if parameter.name not in filled.calls[0])
    unfilled = set(stems(open_names)) - own
    matched = 0.0
    leftover: list[str] = []
    for at, token in enumerate(clause.tokens):
        if at in filled.used or token.is_free or token.text.lower() in _AMOUNTS:
            continue
        weight = 0.0 if token.stem in unfilled else _word_weight(token, tool, worker)
        matched += weight
        if not weight and not (at == 0 and clause.opening in _REPORTING):
            leftover.append(repr(token.text))
    if matched < _FITS:
        return None
    if leftover:
        raise RefusedError(f"{tool.name} takes nothing that says {join_words(leftover)}", understood=int(matched))
    score = matched + len(filled.calls[0])
    return Fit(worker, tool, score / 2 if filled.has_free_text else score, filled)


def _word_weight(token: Token, tool: ToolCard, worker: WorkerCard) -> float:
    """What it says for a tool that it, or its worker, uses a word of the clause."""
    if token.is_negation:
        return _ON_CARD if any(other.is_negation for other in tokenize(tool.headline)) else 0.0
    if token.stem in stems(tool.name):
        return _IN_NAME
    if token.stem in _read_words(tool.headline):
        return _IN_HEADLINE
    if token.stem in tool_words(tool):
        return _IN_DETAILS
    return _ON_CARD if token.stem in card_words(worker) else 0.0
