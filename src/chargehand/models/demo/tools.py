"""Which tool of which worker serves a clause, and with which arguments: by schema, by type, and by its words.

A tool fits only if every word of the clause is accounted for.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from chargehand.models.demo.request import ORDERS, Account, Clause, RefusedError
from chargehand.models.demo.table_reader import read_query
from chargehand.models.demo.tables import Query, read_schema
from chargehand.models.demo.words import Token, content_stems, said_words, stem, stem_set, stems, word_set
from chargehand.models.request_facts import WorkerCard
from chargehand.text.numbers import has_negative_number, number_value
from chargehand.text.words import join_words

ToolKind: TypeAlias = Literal["table", "search", "archive", "compute", "chart", "memory", "call"]

_MEMORY = word_set(
    """archival_memory_insert conversation_search core_memory_append core_memory_replace memory_insert memory_replace
    memory_rethink memory_apply_patch memory_finish_edits give_up read_more run_python
    fetch send_message_to_agent_and_wait_for_reply send_message_to_agent_async send_message_to_agents_matching_tags"""
)
_OF_FILES = ("read_file", "list_files", "write_file")
"""Tools for memory, files and messages, which are used by rules of their own or not at all."""
_OPTIONS = re.compile(r":\s*([\w ]{1,80}(?:, [\w ]{1,80}){0,20} or [\w ]{1,80})")
"""Values that a description lists: "a city: Ghent or Malmo"."""
_OPTIONAL_SEARCH = word_set("most limit top_k k count path folder")


class _Option(Struct):
    """What a property of a JSON Schema may be."""

    type: str | list[str] = "string"
    description: str = ""
    format: str = ""
    enum: list[object] = []


class _Property(_Option):
    anyOf: list[_Option] = []  # noqa: N815 - as JSON Schema spells it


class _ArgumentSchema(Struct):
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


Arguments: TypeAlias = dict[str, object]
Calls: TypeAlias = tuple[Arguments, ...]
"""The arguments of one or more calls of a tool."""
Staff: TypeAlias = list[tuple[WorkerCard, list[ToolCard]]]
"""Workers, and the tools of each."""


def tools_of(worker: WorkerCard) -> list[ToolCard]:
    """The cards of all tools of a worker."""
    return [read_tool(skill.name, skill.data or skill.description, bytes(skill.parameters)) for skill in worker.skills]


def only_remembers(tools: list[ToolCard]) -> bool:
    """Whether there is nothing to work with but memory and the words of others."""
    return all(tool.kind in {"memory", "archive"} for tool in tools)


@lru_cache(maxsize=1_000)
def read_tool(name: str, description: str, schema: bytes) -> ToolCard:
    """The card of a tool; `schema` is the JSON Schema of its arguments."""
    try:
        read = msgspec.json.decode(schema, type=_ArgumentSchema)
    except msgspec.DecodeError:
        read = _ArgumentSchema()
    parameters = [_read_parameter(key, read.properties[key], read.required) for key in read.properties]
    texts = [parameter for parameter in parameters if parameter.type == "string" and parameter.is_required]
    options = _OPTIONS.search(description.partition("\n\n")[0])
    if options is not None and len(texts) == 1:
        choices = tuple(re.split(r", | or ", options[1]))
        chosen = structs.replace(texts[0], type="choice", choices=choices)
        parameters = [chosen if parameter is texts[0] else parameter for parameter in parameters]
    return ToolCard(name, description, _read_kind(name, description, parameters), tuple(parameters))


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


def _read_kind(name: str, description: str, parameters: list[Parameter]) -> ToolKind:
    names = {parameter.name for parameter in parameters}
    required = {parameter.name for parameter in parameters if parameter.is_required}
    kinds: dict[ToolKind, bool] = {
        "archive": name == "archival_memory_search",
        "memory": name in _MEMORY or name.endswith(_OF_FILES),
        "table": "sql" in names and read_schema(description) is not None,
        "chart": {"labels", "values"} <= names,
        "compute": required == {"expression"},
        "search": required == {"query"} and names - required <= _OPTIONAL_SEARCH,
        "call": True,
    }
    return next(kind for kind, is_it in kinds.items() if is_it)


def tool_words(tool: ToolCard) -> frozenset[str]:
    """Every word that a tool says of itself."""
    about = [f"{parameter.name} {parameter.description}" for parameter in tool.parameters]
    return said_words(" ".join((tool.name, tool.description[:2_000], *about)))


def card_words(worker: WorkerCard) -> frozenset[str]:
    """The words of a worker's card that carry meaning."""
    return content_stems(
        " ".join((worker.name, worker.description, *worker.tags, *worker.phrases, *worker.examples[:50]))
    )


def card_score(clause: Clause, worker: WorkerCard) -> float:
    """How many words of a clause are on a worker's card."""
    return float(len(card_words(worker) & clause.stems))


def rate_tool(tools: list[ToolCard]) -> ToolCard | None:
    """A tool that knows what currencies are worth: one of its arguments is the code of a currency."""
    for tool in tools:
        codes = {choice for parameter in tool.parameters for choice in parameter.choices}
        if "USD" in codes and stem("rate") in said_words(tool.name):
            return tool
    return None


# --- arguments

_AMOUNTS = word_set("many much long far often")
"""Words after "how" that ask for an amount."""
_LISTED = re.compile(
    r"\s*(?:,|&|,?\s(?:and|or|with|versus|vs\.?))(?:\s(?:and|or|of|in|on|for|at|the))*\s", re.IGNORECASE
)
_IN_NAMES = word_set("of the")


class _Filling:
    """The arguments of a tool while they are filled: values by parameter. The words they use go into the account."""

    def __init__(self, tool: ToolCard, account: Account) -> None:
        self.tool = tool
        self.account = account
        self.clause = account.clause
        self.tokens = account.clause.tokens
        self.values: dict[str, list[object]] = {}

    def fill(self) -> Calls:
        """Arguments from the words of a clause. Several values for one choice are several calls."""
        self._fill_choices()
        self._fill_periods()
        self._fill_numbers()
        self._fill_text()
        parameters = self.tool.parameters
        missing = [parameter for parameter in parameters if parameter.is_required and parameter.name not in self.values]
        if missing:
            names = ", ".join(parameter.name for parameter in missing).replace("_", " ")
            raise RefusedError(f"{self.tool.name} needs {names}, which is not said")
        several = [name for name in self.values if len(self.values[name]) > 1]
        if len(several) > 1:
            raise RefusedError("which names belong together is not clear")
        filled = [parameter.name for parameter in parameters if parameter.name in self.values]
        first = {name: self.values[name][0] for name in filled}
        calls = tuple({**first, name: value} for name in several for value in self.values[name])
        return calls or (first,)

    def _open(self, *types: str) -> list[Parameter]:
        parameters = self.tool.parameters
        return [parameter for parameter in parameters if parameter.type in types and parameter.name not in self.values]

    def _fill_choices(self) -> None:
        """All values that are listed ("Ghent and Bruges"); none where two arguments take the same values."""
        wanted = self._open("choice")
        for parameter in wanted:
            chosen = _find_choices(self.tokens, parameter.choices, self.account.used)
            is_list = all(self._is_listed(first, second) for first, second in pairwise(chosen.values()))
            if chosen and is_list and [other.choices for other in wanted].count(parameter.choices) == 1:
                self.values[parameter.name] = [*chosen]
                self.account.used.update(place for places in chosen.values() for place in places)

    def _is_listed(self, first: range, second: range) -> bool:
        between = self.clause.text[self.tokens[first[-1]].end : self.tokens[second[0]].start]
        return _LISTED.fullmatch(between) is not None

    def _fill_periods(self) -> None:
        """Days in their order, and months for arguments whose choices are months; "from" one day on is no day."""
        for period in self.clause.periods:
            month = period.text.split()[0]
            months = [parameter for parameter in self._open("choice") if month in parameter.choices]
            days = self._open("day")
            before = [token.low for token in self.tokens if token.end <= period.start]
            is_of_range = len(self.clause.periods) == 1 and before[-1:] in (["from"], ["to"], ["by"])
            if days and period.day and period.year and not is_of_range:
                self.values[days[0].name] = [period.first_day.isoformat()]
                self.account.used_periods.add(period)
            elif months and not period.day:
                self.values[months[0].name] = [month]
                self.account.used_periods.add(period)

    def _fill_numbers(self) -> None:
        """Each number for the argument whose words stand beside it."""
        for place, token in self.account.open_words.items():
            value = number_value(token.text)
            if value is None:
                continue
            wanted = self._open("integer", "number")
            scores = {parameter: self._nearness(parameter, place) for parameter in wanted}
            best = max(scores.values(), default=0.0)
            fitting = [parameter for parameter in wanted if scores[parameter] == best]
            is_percent = token.text.endswith("%")
            if best and len(fitting) == 1 and _takes_number(fitting[0], value, is_percent=is_percent):
                self.values[fitting[0].name] = [int(value) if value.is_integer() else value]
                self.account.used.add(place)

    def _nearness(self, parameter: Parameter, place: int) -> float:
        """How many words of an argument's name stand beside a number: "10 years", "a rate of 5"."""
        own = stems(parameter.name)
        beside = {token.stem for token in self.tokens[max(0, place - 2) : place + 4]}
        is_described = not beside.isdisjoint(content_stems(parameter.description))
        return sum(word in beside for word in own) / len(own) + 0.1 * is_described

    def _fill_text(self) -> None:
        """The one required text is a name: words with capitals, such as "Rivers of Clay"."""
        wanted = [parameter for parameter in self._open("string") if parameter.is_required]
        own = tool_words(self.tool)
        open_words = self.account.open_words
        rest = [at for at in open_words if at and open_words[at].text[0].isupper() and open_words[at].stem not in own]
        if len(wanted) != 1 or not rest:
            return
        words = self.tokens[rest[0] : rest[-1] + 1]
        text = self.clause.text[words[0].start : words[-1].end]
        is_name = all(token.text[0].isupper() or token.text[0].isdigit() or token.low in _IN_NAMES for token in words)
        if not is_name or "," in text:
            raise RefusedError(f"{self.tool.name} takes one {wanted[0].name.replace('_', ' ')}, not {text!r}")
        self.values[wanted[0].name] = [text]
        self.account.use_span(words[0].start, words[-1].end)


def _find_choices(tokens: Sequence[Token], choices: tuple[str, ...], used: AbstractSet[int]) -> dict[str, range]:
    """The choices that occur and their places, in order; the longest where two begin alike."""
    words = [token.stem for token in tokens]
    chosen: dict[str, range] = {}
    taken = set(used)
    for choice in sorted(choices, key=len, reverse=True):
        wanted = stems(choice)
        for start in range(len(words)):
            places = range(start, start + len(wanted))
            if wanted and words[start : places.stop] == wanted and taken.isdisjoint(places):
                chosen[choice] = places
                taken.update(places)
                break
    return dict(sorted(chosen.items(), key=lambda item: item[1].start))


def _takes_number(parameter: Parameter, value: float, *, is_percent: bool) -> bool:
    if is_percent and stem("percent") not in stems(f"{parameter.name} {parameter.description}"):
        return False
    is_allowed = not parameter.choices or f"{value:g}" in parameter.choices
    return is_allowed and (value.is_integer() or parameter.type == "number")


# --- the choice of a tool

_REPORTING = word_set("find show list tell give say report compare name get")
_COMPUTE = stem_set("calculate compute work result")
_OPERAND = r"\(?\d[\d,]*(?:\.\d+)?\)?"
_EXPRESSION = re.compile(
    rf"(?<![\w.])(?:\d+(?:\.\d+)?% of {_OPERAND}|{_OPERAND}(?:\s*(?:\*\*|[-+*/])\s*{_OPERAND})+)(?![\w-])"
)
_IN_ARCHIVE = re.compile(r"\balready (?:know|have|found|kept)\b|\bin (?:the|our) archive\b", re.IGNORECASE)
_FITS = 2
"""The least that the words of a clause have to say for a tool."""
_CERTAIN = 4


class Fit(Struct, frozen=True):
    """A tool that can serve a clause. `is_certain` is false where only what it returns will tell."""

    worker: WorkerCard
    tool: ToolCard
    score: float
    reading: Query | str | Calls | None = None
    """What the tool is to be asked, for arithmetic an expression; nothing for a search."""
    is_certain: bool = True


def choose_fit(clause: Clause, staff: Staff) -> Fit:
    """The best tool of all workers for a clause that asks for something; none where two fit as well.

    A tool that knows all words of the clause and refuses it has the last word: no search is tried after it.
    """
    if has_negative_number(clause.text):
        raise RefusedError("negative numbers are not read", understood=len(clause.content))
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
    failure = max(failures, key=lambda failure: failure.understood, default=None)
    if failure is not None and not certain and (not fits or failure.understood >= len(clause.content)):
        raise failure
    if not fits:
        raise RefusedError("none of the tools is for this")
    ranks = [(fit.score, card_score(clause, fit.worker)) for fit in certain or fits]
    equal = [fit for fit, rank in zip(certain or fits, ranks, strict=True) if rank == max(ranks)]
    names = dict.fromkeys(fit.tool.name for fit in equal)
    if len(names) > 1 and equal[0].tool.kind not in {"search", "archive"}:
        raise RefusedError(f"{join_words(list(names), 'or')} could be meant; say which")
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
    score = sum(_word_weight(token, tool) for token in clause.content) / 10
    is_certain = clause.about is not None
    return Fit(worker, tool, score + 3.0 * is_certain, is_certain=is_certain)


def _read_expression(clause: Clause) -> str:
    """The arithmetic that a clause spells out in signs; nothing where there is none."""
    match = _EXPRESSION.search(clause.text)
    if match is None or clause.points_back:
        return ""
    account = Account(clause)
    account.use_span(match.start(), match.end())
    account.use_words(_COMPUTE)
    account.settle("arithmetic says nothing of")
    return match[0].replace(",", "")


def _fit_call(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | None:
    """A tool with all its arguments, if the words that they leave are the tool's own."""
    own = content_stems(f"{tool.name} {tool.headline}")
    account = Account(clause)
    try:
        calls = _Filling(tool, account).fill()
    except RefusedError as refusal:
        account.use_words(tool_words(tool))
        overlap = len(own & clause.stems)
        if overlap < _FITS:
            return None
        raise RefusedError(refusal.reason, understood=account.understood) from refusal
    not_filled = [parameter for parameter in tool.parameters if parameter.name not in calls[0]]
    unfilled = said_words(" ".join(parameter.name for parameter in not_filled)) - own
    matched = 0
    for at, token in account.open_words.items():
        weight = 0 if token.stem in unfilled else _word_weight(token, tool)
        matched += weight
        if token.is_negation:
            continue
        if weight or token.low in _AMOUNTS or (at == 0 and token.low in _REPORTING):
            account.used.add(at)
    if matched < _FITS:
        return None
    account.settle(f"{tool.name} takes nothing that says")
    for parameter in not_filled:
        is_beside = any(_find_choices(other.tokens, parameter.choices, set()) for other in clause.beside)
        if is_beside or (parameter.type == "day" and clause.period_beside):
            reason = f"whether the {parameter.name} is that of another question is not said"
            raise RefusedError(reason, understood=account.understood)
    return Fit(worker, tool, matched + len(calls[0]), calls)


def _word_weight(token: Token, tool: ToolCard) -> int:
    """What it says for a tool that it uses a word of the clause: in its name, in its headline, anywhere."""
    if token.key in said_words(tool.name):
        return 3
    if token.key in content_stems(tool.headline):
        return 2
    return int(token.key in tool_words(tool))
