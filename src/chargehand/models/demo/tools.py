"""What a tool is for, by its schema, and its arguments by type, with the words of a clause that they use up."""

import re
from functools import lru_cache
from itertools import permutations
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.models.demo.request import Clause
from chargehand.models.demo.table_schema import read_schema
from chargehand.models.demo.words import Token, number_value, stem, stems, word_set
from chargehand.models.subject import Skill, WorkerCard
from chargehand.text.words import quoted_phrases

ToolKind: TypeAlias = Literal["table", "search", "compute", "chart", "memory", "message", "control", "call"]

MEMORY = word_set(
    """archival_memory_insert archival_memory_search conversation_search core_memory_append core_memory_replace
    memory_insert memory_replace memory_rethink memory_apply_patch memory_finish_edits"""
)
_CONTROL = frozenset({"give_up", "read_more", "run_python", "read_file", "list_files", "write_file", "fetch"})
_OPTIONAL_SEARCH = frozenset({"most", "limit", "top_k", "k", "count", "path", "folder"})
_DAYS = frozenset({"day", "date"})
AMOUNTS = frozenset({"many", "much", "long", "far", "often"})
_MOST_NUMBERS = 4
_OPTIONS = re.compile(r":\s*([\w ]{1,80}(?:, [\w ]{1,80}){0,20} or [\w ]{1,80})")
_SEPARATOR = re.compile(r", | or ")
_UNITS = {
    "kg": "kilogram",
    "km": "kilometre",
    "cm": "centimetre",
    "gb": "gigabyte",
    "mb": "megabyte",
    "tb": "terabyte",
    "eur": "euro",
    "%": "percent",
}


class Parameter(Struct, frozen=True):
    """An argument of a tool; `type` is that of its JSON Schema, with `day` for days and `choice` for enums."""

    name: str
    type: str
    description: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = True

    @property
    def words(self) -> frozenset[str]:
        return frozenset(stems(f"{self.name} {self.description}"))


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


class Filled(Struct, frozen=True):
    """Arguments for one or more calls of a tool, and the places of the words they use."""

    calls: tuple[dict[str, object], ...]
    used: frozenset[int]
    has_free_text: bool = False


class Unfilled(Struct, frozen=True):
    """Which argument nobody says."""

    reason: str


def read_tool(name: str, description: str, parameters: Raw) -> ToolCard:
    """The card of a tool."""
    return _read_tool(name, description, bytes(parameters))


def tools_of(worker: WorkerCard) -> list[ToolCard]:
    """The cards of all tools of a worker."""
    return [read_skill(skill) for skill in worker.skills]


def only_remembers(tools: list[ToolCard]) -> bool:
    """Whether there is nothing to work with but memory and the words of others."""
    return all(tool.kind in {"memory", "message", "control"} for tool in tools)


def read_skill(skill: Skill) -> ToolCard:
    return read_tool(skill.name, skill.description, skill.parameters)


@lru_cache(maxsize=1_000)
def _read_tool(name: str, description: str, parameters: bytes) -> ToolCard:
    try:
        schema = cast("dict[str, object]", msgspec.json.decode(parameters))
    except msgspec.DecodeError:
        schema = {}
    properties = cast("dict[str, dict[str, object]]", schema.get("properties") or {})
    required = set(cast("list[str]", schema.get("required") or []))
    held = tuple(_parameter(key, about, required) for key, about in properties.items())
    return ToolCard(name, description, _kind(name, description, held), held)


def _parameter(name: str, about: dict[str, object], required: set[str]) -> Parameter:
    options = cast("list[dict[str, object]]", about.get("anyOf") or [])
    for option in options:
        if option.get("type") != "null":
            about = {**about, **option}
    choices = tuple(str(choice) for choice in cast("list[object]", about.get("enum") or []) if choice is not None)
    description = str(about.get("description", ""))
    kind = str(about.get("type", "string"))
    if choices:
        kind = "choice"
    elif about.get("format") == "date" or "YYYY-MM-DD" in description or (kind == "string" and name in _DAYS):
        kind = "day"
    return Parameter(name=name, type=kind, description=description, choices=choices, is_required=name in required)


def _kind(name: str, description: str, parameters: tuple[Parameter, ...]) -> ToolKind:
    names = {parameter.name for parameter in parameters}
    required = {parameter.name for parameter in parameters if parameter.is_required}
    if name in MEMORY:
        return "memory"
    if name in _CONTROL:
        return "control"
    if name.startswith("send_message_to_agent"):
        return "message"
    if read_schema(description) is not None and "sql" in names:
        return "table"
    if {"labels", "values"} <= names:
        return "chart"
    if required == {"expression"}:
        return "compute"
    if required == {"query"} and names - required <= _OPTIONAL_SEARCH:
        return "search"
    return "call"


def fill_arguments(tool: ToolCard, clause: Clause) -> Filled | Unfilled:
    """Arguments from the words of a clause. Several values for one choice are several calls."""
    tokens = clause.tokens
    used: set[int] = set()
    arguments: dict[str, object] = {}
    several: dict[str, list[str]] = {}
    _fill_choices(tool, tokens, arguments, several, used)
    if reason := _fill_days(tool, clause, arguments):
        return Unfilled(reason)
    _fill_numbers(tool, tokens, arguments, used)
    texts = _fill_texts(tool, clause, arguments, used)
    missing = [held.name for held in tool.parameters if held.is_required and held.name not in {*arguments, *several}]
    if missing:
        return Unfilled(f"{tool.name} needs {', '.join(name.replace('_', ' ') for name in missing)}, which is not said")
    if len(several) > 1:
        return Unfilled("which names belong together is not clear")
    arguments = {held.name: arguments[held.name] for held in tool.parameters if held.name in arguments}
    calls = [arguments]
    for name, values in several.items():
        calls = [{**arguments, name: value} for value in values]
    return Filled(tuple(calls), frozenset(used), has_free_text=texts)


def _fill_choices(
    tool: ToolCard,
    tokens: tuple[Token, ...],
    arguments: dict[str, object],
    several: dict[str, list[str]],
    used: set[int],
) -> None:
    choosing = [parameter for parameter in tool.parameters if parameter.type == "choice"]
    for parameter in choosing:
        if parameter.name in arguments:
            continue
        found = _choices_said(parameter, tokens, used)
        alike = [other for other in choosing if other.choices == parameter.choices]
        if len(alike) > 1 and len(found) == len(alike):
            for other, (value, places) in zip(alike, found, strict=True):
                arguments[other.name] = value
                used |= places
        elif len(alike) == 1 and len(found) == 1:
            arguments[parameter.name] = found[0][0]
            used |= found[0][1]
        elif len(alike) == 1 and found:
            several[parameter.name] = [value for value, _ in found]
            used |= {place for _, places in found for place in places}


def _choices_said(parameter: Parameter, tokens: tuple[Token, ...], used: set[int]) -> list[tuple[str, set[int]]]:
    """The choices that occur, in their order; the longest where two begin alike."""
    words = [token.stem for token in tokens]
    found: list[tuple[int, str, set[int]]] = []
    taken: set[int] = set()
    for choice in sorted(parameter.choices, key=len, reverse=True):
        wanted = stems(choice)
        for at in range(len(words) - len(wanted) + 1):
            places = set(range(at, at + len(wanted)))
            if wanted and words[at : at + len(wanted)] == wanted and not places & (taken | used):
                found.append((at, choice, places))
                taken |= places
                break
    return [(choice, places) for _, choice, places in sorted(found, key=lambda held: held[0])]


def _fill_days(tool: ToolCard, clause: Clause, arguments: dict[str, object]) -> str:
    days = [period for period in clause.periods if period.is_day and period.year]
    wanted = [parameter for parameter in tool.parameters if parameter.type == "day"]
    months = [parameter for parameter in tool.parameters if parameter.type == "choice" and "May" in parameter.choices]
    if len(days) != len(clause.periods) and not months:
        return "a time is named that no argument takes"
    if len(days) > len(wanted):
        return "more days are named than there are arguments for"
    for parameter, day in zip(wanted, days, strict=False):
        arguments[parameter.name] = day.first.isoformat()
    for parameter in months:
        said = [
            period for period in clause.periods if not period.is_day and period.words.split()[0] in parameter.choices
        ]
        if len(said) == 1:
            arguments[parameter.name] = said[0].words.split()[0]
    return ""


def _fill_numbers(tool: ToolCard, tokens: tuple[Token, ...], arguments: dict[str, object], used: set[int]) -> None:
    """Each number for the argument whose words stand beside it; nothing where two ways fit as well."""
    wanted = [held for held in tool.parameters if held.type in {"integer", "number"} and held.name not in arguments]
    numbers = [at for at, token in enumerate(tokens) if at not in used and number_value(token.text) is not None]
    if not wanted or not numbers or len(numbers) > len(wanted) or len(numbers) > _MOST_NUMBERS:
        return
    required = [parameter for parameter in wanted if parameter.is_required]
    if len(numbers) == 1 and len(required) == 1:
        wanted = required
    ways = sorted(
        (
            (sum(map(_nearness, order, numbers, [tokens] * len(numbers))), at, order)
            for at, order in enumerate(permutations(wanted, len(numbers)))
        ),
        key=lambda way: -way[0],
    )
    if len(ways) > 1 and ways[0][0] == ways[1][0]:
        return
    for parameter, at in zip(ways[0][2], numbers, strict=True):
        _take_number(parameter, tokens, at, arguments, used)


def _nearness(parameter: Parameter, at: int, tokens: tuple[Token, ...]) -> float:
    """How many words beside a number are the argument's own: "10 years", "a rate of 5", "5000 rows per second"."""
    own = set(stems(parameter.name))
    score = 0.0
    if at + 1 < len(tokens) and tokens[at + 1].stem in own:
        score += 3.0
    before = tokens[at - 2] if at >= 2 and tokens[at - 1].text.lower() in {"of", "is", "at", "to"} else tokens[at - 1]
    if at >= 1 and before.stem in own:
        score += 3.0
    for token in tokens[at + 1 : at + 4]:
        if token.is_number:
            break
        score += 0.5 * (token.stem in parameter.words and not token.is_free)
    return score


def _take_number(
    parameter: Parameter, tokens: tuple[Token, ...], at: int, arguments: dict[str, object], used: set[int]
) -> None:
    value = number_value(tokens[at].text) or 0.0
    if parameter.type == "integer" and value != int(value):
        return
    arguments[parameter.name] = int(value) if value == int(value) else value
    used.add(at)


def _fill_texts(tool: ToolCard, clause: Clause, arguments: dict[str, object], used: set[int]) -> bool:
    """One required text is what the clause says beyond the tool's own words."""
    wanted = [
        held for held in tool.parameters if held.is_required and held.type == "string" and held.name not in arguments
    ]
    if len(wanted) != 1:
        return False
    if quoted := quoted_phrases(clause.text):
        arguments[wanted[0].name] = quoted[0]
        used |= {at for at, token in enumerate(clause.tokens) if token.text in quoted[0]}
        return True
    offered = [stems(option) for match in _OPTIONS.finditer(tool.headline) for option in _SEPARATOR.split(match[1])]
    known = tool_words(tool) - {word for option in offered for word in option}
    rest = [
        at
        for at, token in enumerate(clause.tokens)
        if at not in used
        and not (token.is_free or token.is_negation)
        and token.stem not in known
        and token.text.lower() not in AMOUNTS
    ]
    if rest:
        first = clause.tokens[rest[0]]
        last = clause.tokens[rest[-1]]
        arguments[wanted[0].name] = clause.text[first.start : last.end]
        used |= set(rest)
    return bool(rest)


def tool_words(tool: ToolCard) -> frozenset[str]:
    """The stems of everything a tool says of itself."""
    return _tool_words(
        tool.name, tool.description, tuple(f"{held.name} {held.description}" for held in tool.parameters)
    )


@lru_cache(maxsize=1_000)
def _tool_words(name: str, description: str, parameters: tuple[str, ...]) -> frozenset[str]:
    text = " ".join((name, description[:2_000], *parameters))
    return frozenset((*stems(text), *(stem(unit) for unit, full in _UNITS.items() if stem(full) in stems(text))))
