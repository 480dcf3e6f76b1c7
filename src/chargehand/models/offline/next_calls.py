"""Which calls a worker makes next: the tool that finds what is asked, then what has to be computed or drawn from it."""

import re
from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from chargehand.models.offline.arguments import MOST_CALLS, fill
from chargehand.models.offline.choosing import Choice, fit
from chargehand.models.offline.composing import writes
from chargehand.models.offline.computing import Sum, sums
from chargehand.models.offline.material import Material, Outcome, gather, series
from chargehand.models.offline.pointed import with_names
from chargehand.models.offline.references import object_of
from chargehand.models.offline.strings import TITLES
from chargehand.models.offline.task_text import asked, says, without_head, without_pointers
from chargehand.models.offline.text_to_sql import Refusal, to_sql
from chargehand.models.offline.words import numbers
from chargehand.models.subject import Working

_LEAST = 0.1
_CHARTS, _LEAST_DRAWN = 4, 2
_FOR_EACH = re.compile(r"\b(?:for (?:each|every)|per)\s+\w+", re.IGNORECASE)
_DRAWS = ("chart", "draw", "plot", "graph", "diagram", "picture", "visualise", "visualize", "histogram", "illustrate")


class Desk(Struct, frozen=True):
    """All there is for one step: the task, the tools by what they are good at, what was given and what came back."""

    text: str
    tools: list[Choice]
    given: Material
    past: list[Outcome]
    found: Material
    subject: Working

    def of(self, *roles: str) -> list[Choice]:
        return [one for one in self.tools if one.role in roles]

    def called(self, name: str) -> bool:
        return any(one.call.name == name for one in self.past)

    def all(self) -> Material:
        return gather([*(one.value for one in self.subject.inputs), *(one.value for one in self.past if not one.error)])


def next_calls(desk: Desk) -> list[tuple[str, dict[str, object]]] | str:
    """The calls of the next step; nothing when all is there; a reason where there is no way on."""
    if not desk.tools:
        return []
    looked_up = _look_up(desk)
    if looked_up and not isinstance(looked_up, str):
        return looked_up
    further = _compute(desk) or _draw(desk)
    if further:
        return further
    return looked_up if isinstance(looked_up, str) and not desk.past and not _enough(desk) else []


def _enough(desk: Desk) -> bool:
    """Whether the task can be done with what was given alone."""
    return bool(desk.subject.inputs) and writes(desk.text) and not says(desk.text, *_DRAWS)


def _look_up(desk: Desk) -> list[tuple[str, dict[str, object]]] | str:
    """The best tool that fetches something, with its arguments; why none can be used where that is so."""
    rest = desk.of("query", "search", "other", "code")
    made = [_score(one, desk) for one in rest if desk.called(one.name)]
    rest = [
        one for one in rest if not made or _score(one, desk) > max(made)
    ]  # a better one may not have been allowed yet
    if not rest:
        return ""
    reasons: list[str] = []
    usable: list[tuple[float, Choice, list[dict[str, object]]]] = []
    for choice in sorted(rest, key=lambda one: -_score(one, desk)):
        filled = arguments_for(choice, desk)
        if isinstance(filled, str):
            reasons.append(filled)
        elif _score(choice, desk) >= _LEAST or len(desk.tools) == 1 or choice.role in {"query", "search"}:
            usable.append((_score(choice, desk) - _misfit(filled, desk.text), choice, filled))
    if not usable:
        return "; ".join(reasons[:2])
    _, choice, calls = max(usable, key=lambda one: one[0])
    return [(choice.name, arguments) for arguments in calls]


def _misfit(calls: Sequence[dict[str, object]], text: str) -> float:
    """Less where one value has to serve for two arguments, or a number of the task for none."""
    values = [str(value).removesuffix(".0") for call in calls for value in call.values()]
    twice = len(calls[0]) - len({str(value) for value in calls[0].values()}) if calls else 0
    unused = [one for one in numbers(text) if not any(one in value for value in values)]
    return 0.3 * (twice + len(unused))


def _score(choice: Choice, desk: Desk) -> float:
    """How well a tool fits: by words, and a question for numbers goes to tables before texts."""
    score = fit(choice, desk.text)
    if choice.role == "query":
        return score + 0.3
    return score - 1.0 if choice.role == "code" else score


def arguments_for(choice: Choice, desk: Desk) -> list[dict[str, object]] | str:
    if choice.role == "query":
        answer = to_sql(queried(desk), choice.tables)
        if isinstance(answer, Refusal) and (plainer := without_head(desk.subject.instruction)):
            plain = to_sql(plainer, choice.tables)
            answer = plain if not isinstance(plain, Refusal) and plain.about else answer
        if isinstance(answer, Refusal):
            return f"{choice.name} cannot answer this: {answer.reason}"
        return [{_text_parameter(choice): answer.sql}]
    if choice.role == "code":
        return f"{choice.name} wants a program, and the offline model writes none"
    filled = fill(choice, searched(desk) if choice.role == "search" else desk.text, desk.all())
    if filled.missing:
        return f"{choice.name} needs {' and '.join(filled.missing)}, and neither the task nor its inputs say it"
    if filled.wanted > MOST_CALLS:
        return f"{choice.name} would have to be called {filled.wanted} times, and {MOST_CALLS} is the most for one task"
    return list(filled.calls)


def searched(desk: Desk) -> str:
    """What a search is for: where a table was given its names stand for the phrase that points to it."""
    return without_pointers(desk.subject.instruction) if desk.given.tables else desk.text


def queried(desk: Desk) -> str:
    """What a database is asked: for what is to be drawn, and for whom an earlier result named."""
    text = asked(with_names(desk.subject.instruction, desk.subject.inputs))
    return object_of(text) if desk.of("draw") and says(text, *_DRAWS) else text


def _text_parameter(choice: Choice) -> str:
    texts = [one.name for one in choice.parameters if one.type in {"string", ""}]
    return next((one for one in texts if one in {"sql", "query", "statement"}), texts[0])


def _compute(desk: Desk) -> list[tuple[str, dict[str, object]]]:
    tool = next(iter(desk.of("compute")), None)
    if tool is None or desk.called(tool.name):
        return []
    return [(tool.name, {_text_parameter(tool): one.expression}) for one in sums_of(desk, tool)]


def sums_of(desk: Desk, tool: Choice) -> list[Sum]:
    """What to compute from: what was looked up for this task, with what was given where that alone is not enough."""
    rounds = "round" in tool.description.lower()
    queried = any(one.call.name == choice.name for one in desk.past for choice in desk.of("query"))
    without = [one for one in desk.past if one.call.name != tool.name and not one.error]
    own = gather(one.value for one in without)
    if queried:
        return sums(desk.text, own, rounds=rounds, queried=True)
    return sums(
        desk.text, gather([*(one.value for one in without), *(one.value for one in desk.subject.inputs)]), rounds=rounds
    )


def _draw(desk: Desk) -> list[tuple[str, dict[str, object]]] | str:
    tool = next(iter(desk.of("draw")), None)
    if tool is None or desk.called(tool.name):
        return []
    if not says(desk.text, *_DRAWS) and len(desk.tools) > 1:
        return []
    filled = fill(tool, desk.text, desk.all())
    if filled.missing:
        missing = " and ".join(filled.missing)
        return f"{tool.name} needs {missing}, and neither the task nor its inputs hold numbers with names"
    lengths = [len(cast("list[object]", one)) for one in filled.calls[0].values() if isinstance(one, list)]
    if _FOR_EACH.search(desk.text) and lengths and max(lengths) < _LEAST_DRAWN:
        return f"{tool.name} would show a single value, and the task wants one {_FOR_EACH.findall(desk.text)[0]}"
    return [(tool.name, one) for one in _each_table(tool, desk)] or [(tool.name, filled.calls[0])]


def _each_table(tool: Choice, desk: Desk) -> list[dict[str, object]]:
    """A chart for each table of one result: of two tests in one answer, one chart would show only the last."""
    tables = [one for one in desk.given.tables if series(one, desk.text) is not None]
    if len(desk.subject.inputs) != 1 or not 1 < len(tables) <= _CHARTS or len(desk.given.tables) != len(tables):
        return []
    calls: list[dict[str, object]] = []
    for table in tables:
        found, data = fill(tool, desk.text, Material([table])), series(table, desk.text)
        if found.missing or data is None:
            return []
        named = {key: f"{value}: {data.value}" for key, value in found.calls[0].items() if key in TITLES}
        calls.append({**found.calls[0], **named})
    return calls
