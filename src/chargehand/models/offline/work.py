"""A worker's next step without a language model: look something up, compute, draw, or say what was found.

Called again after every step with what its calls returned. It keeps nothing in between and takes few steps: each kind
of step is made at most once.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Raw, structs

from chargehand.models.messages import Message, Reply, ToolCall, ToolSpec
from chargehand.models.offline.accounted import unaccounted
from chargehand.models.offline.choosing import OURS, Choice, choices
from chargehand.models.offline.composing import compose
from chargehand.models.offline.computing import part_of
from chargehand.models.offline.currencies import currencies
from chargehand.models.offline.evidence import unfound, unsaid
from chargehand.models.offline.forms import ABLE, unknown_form
from chargehand.models.offline.material import Outcome, gather, outcomes
from chargehand.models.offline.mistyped import tasked
from chargehand.models.offline.next_calls import Desk, arguments_for, next_calls, queried, searched, sums_of
from chargehand.models.offline.parts_given import biggest_part
from chargehand.models.offline.phrasing import Named, findings, nothing
from chargehand.models.offline.remembering.steps import work_with_memory
from chargehand.models.offline.searching import query, shorter
from chargehand.models.offline.shaping import shaped
from chargehand.models.offline.shares import share
from chargehand.models.offline.task_text import asked, counted, says, to_say
from chargehand.models.offline.text_to_sql import Asked, to_sql
from chargehand.models.offline.words import names, stem, tokens
from chargehand.models.subject import Working

_STEPS = 6
_LONGEST = 3_000  # characters of a task that are read; nobody says more in one
_PLACE = re.compile(r"\b(?:at|on|in) the (?P<what>\w+(?: \w+)?)\.?$")
_RESULTS = re.compile(r"([^()]*)\(the results? of t\d")  # what stands before was found out already
_NOTHING_FOUND = re.compile(
    r"\b(?:nothing|no (?:match|result|passage|document)\w*) (?:was )?found\b|\bno (?:matches|results)\b", re.IGNORECASE
)


def work(subject: Working, messages: Sequence[Message], tools: tuple[ToolSpec, ...], schema: Raw | None) -> Reply:
    """The next step of a task: calls to make, the result in words, or a call of `give_up` that says why not."""
    subject = tasked(structs.replace(subject, instruction=subject.instruction[:_LONGEST]))

    def ordinary(subject: Working, schema: Raw | None) -> Reply:
        if schema is not None:  # half of it would not have that shape
            return _work(subject, messages, tools, schema)
        return share(subject, messages, lambda part, told: _work(part, told, tools, None))

    return work_with_memory(subject, messages, tools, schema, ordinary)


def _work(subject: Working, messages: Sequence[Message], tools: tuple[ToolSpec, ...], schema: Raw | None) -> Reply:
    past = [one for one in outcomes(messages) if one.call.name not in OURS]
    given = gather(one.value for one in subject.inputs)
    desk = Desk(
        asked(subject.instruction),
        choices(tools),
        given,
        past,
        gather(_labelled(subject.instruction, past, tools)),
        subject,
    )
    try:
        if sent_back := _sent_back(messages):
            return _obeyed(desk, sent_back)
        return _next(desk, schema)
    except (ArithmeticError, LookupError, ValueError, RecursionError) as error:
        # a worker that stumbles over odd data says so; the supervisor can then ask for it in another way
        return _give_up(f"the task could not be worked out ({type(error).__name__}: {error})", 0)


def _labelled(instruction: str, past: Sequence[Outcome], tools: Sequence[ToolSpec]) -> list[object]:
    """What came back; a bare number with the name of what it is a number of."""
    bare = [one for one in past if isinstance(one.value, int | float) and not isinstance(one.value, bool)]
    found: list[object] = []
    for one in past:
        if one in bare:
            label = _counted(instruction, one.call, tools) if len(bare) == 1 else _handed(one.call)
            found.append({"kind": "figure", "value": str(one.value), "label": label})
        elif isinstance(one.value, bool):
            found.append("Yes." if one.value else "No.")
        elif not one.error:
            found.append(one.value)
    return found


def _counted(instruction: str, call: ToolCall, tools: Sequence[ToolSpec]) -> str:
    """What a number is of, and where, if only the tool says that: "Ropes in stock at the harbour"."""
    label = counted(instruction)
    says = next((one.description for one in tools if one.name == call.name), "").partition("\n")[0]
    place = _PLACE.search(says)
    if place is None or any(stem(word) in map(stem, tokens(label)) for word in tokens(place["what"])):
        return label
    return f"{label} {place[0].rstrip('. ')}"


def _handed(call: ToolCall) -> str:
    values = msgspec.json.decode(call.arguments, type=dict[str, object]).values()
    said = ", ".join(str(one) for one in values)
    return said[:1].upper() + said[1:80]


def _first(text: str) -> str:
    """The sentence that asks; what follows it says how."""
    return re.split(r"(?<=[.?!])\s+(?=[A-Z])", text)[0]


def _sent_back(messages: Sequence[Message]) -> str:
    """What was said to the last reply, where that was not accepted as a result."""
    answered = any(one.role == "assistant" for one in messages)
    return messages[-1].text if answered and messages[-1].role == "user" else ""


def _obeyed(desk: Desk, said: str) -> Reply:
    """A call that has to be made before the end is made; the same result again would be sent back again."""
    steps = max((one.step for one in desk.past), default=0)
    left = [one for one in desk.tools if not desk.called(one.name)]
    wanted = [one for one in left if re.search(rf"\b{re.escape(one.name)}\b", said)] or left
    for choice in wanted if "call" in said else ():
        filled = arguments_for(choice, desk)
        if not isinstance(filled, str) and filled:
            return _call([(choice.name, one) for one in filled], steps)
    return _give_up(f"the result was not accepted: {said}", steps)


def _next(desk: Desk, schema: Raw | None) -> Reply:
    steps = max((one.step for one in desk.past), default=0)
    last = [one for one in desk.past if one.step == steps]
    if failed := [one for one in last if one.error]:
        return _mended(desk, failed, steps)
    if not steps and schema is None and (part := biggest_part(desk.subject.instruction, desk.given)):
        return Reply(part)
    if steps < _STEPS and (calls := next_calls(desk)):
        if isinstance(calls, str):
            return _give_up(calls, steps)
        return _call(calls, steps)
    return _finish(desk, schema, steps)


def _call(calls: Sequence[tuple[str, dict[str, object]]], steps: int) -> Reply:
    made = [
        ToolCall(f"call_{steps + 1}_{at}", name, msgspec.json.encode(arguments).decode())
        for at, (name, arguments) in enumerate(calls, 1)
    ]
    return Reply(calls=tuple(made), finish="tools")


def _give_up(reason: str, steps: int, *, final: bool = False) -> Reply:
    return _call([("give_up", {"reason": reason, **({"final": True} if final else {})})], steps)


def _mended(desk: Desk, failed: list[Outcome], steps: int) -> Reply:
    """A search that found nothing is broadened once. All else is told: a worker does not change what was asked."""
    one = failed[0]
    tool = next((choice for choice in desk.tools if choice.name == one.call.name), None)
    before = sum(other.call.name == one.call.name for other in desk.past)
    if tool is not None and tool.role == "search" and before == 1 and _NOTHING_FOUND.search(one.error):
        broader = shorter(query(searched(desk)))
        return _call([(tool.name, {_asked_for(tool): broader})], steps)
    if tool is not None and tool.role == "search" and _NOTHING_FOUND.search(one.error):
        return _give_up(unfound(searched(desk)), steps, final=True)
    reasons = "; ".join(dict.fromkeys(f"{each.call.name} failed: {each.error}" for each in failed))
    return _give_up(reasons, steps)


def _asked_for(tool: Choice) -> str:
    return next(one.name for one in tool.parameters if one.required)


def _finish(desk: Desk, schema: Raw | None, steps: int) -> Reply:
    question = _question(desk)
    if question is not None and (missing := _unknown(desk, question)):
        return _give_up(f"the database holds nothing about {missing}", steps)
    if reason := _off_record(desk, question) or _beside_the_point(desk):
        return _give_up(reason, steps, final=True)
    if reason := _undone(desk):
        return _give_up(reason, steps)
    others = [one for one in desk.of("other") if desk.called(one.name)]
    if others and (reason := unaccounted(_first(desk.text), others, desk.past, desk.subject.inputs)):
        return _give_up(reason, steps)
    text = findings(desk.found, desk.text, question, _named(desk)) if not desk.found.empty else ""
    if not text and not desk.past and (form := unknown_form(desk.subject.instruction)):
        return _give_up(f"the offline model cannot write a {form}: {ABLE}", steps, final=True)
    if not text and not desk.past:
        text = compose(desk.subject.instruction, desk.subject.inputs, desk.subject.gaps)
    if not text:
        return _give_up(_without(desk), steps)
    text = "\n".join([text, *to_say(desk.subject.instruction)])
    if schema is None:
        return Reply(text)
    shape, missing = shaped(schema, desk.found if not desk.found.empty else desk.given, text, desk.text)
    if missing:
        return _give_up(f"what was found does not say {' and '.join(missing)}: {text[:300]}", steps)
    return Reply(shape)


def _question(desk: Desk) -> Asked | None:
    for choice in desk.of("query"):
        if desk.called(choice.name):
            answer = to_sql(queried(desk), choice.tables)
            return answer if isinstance(answer, Asked) else None
    return None


def _unknown(desk: Desk, question: Asked) -> str:
    """What of a question the database has no rows of: a name that was guessed at, or anything to add up."""
    cells = [cell for table in desk.found.tables for row in table.rows for cell in row]
    if question.gone:
        return ""  # it is the time that it has no rows of
    if question.guessed and all(cell in (None, 0) for cell in cells):
        return ", ".join(question.guessed)
    empty = question.measured and desk.found.tables and all(cell is None for cell in cells)
    return ", ".join(question.about) if empty else ""


def _off_record(desk: Desk, question: Asked | None) -> str:
    """That a database has no rows of the days a question is about, where it gave none: that is no zero."""
    return question.gone if question is not None and all(map(nothing, desk.found.tables)) else ""


def _beside_the_point(desk: Desk) -> str:
    """Why what a search found is no answer; a search by words always finds something."""
    if not any(desk.called(one.name) for one in desk.of("search")):
        return ""
    about = " ".join([desk.subject.worker.description, *(f"{one.name} {one.description}" for one in desk.of("search"))])
    shelf = " ".join(one.name for one in desk.of("search") if desk.called(one.name))
    shelf += "".join(f" {name}" for phrase in _RESULTS.findall(desk.subject.instruction) for name in names(phrase))
    return unsaid(searched(desk), desk.found.passages, about, shelf)


def _undone(desk: Desk) -> str:
    """What was to be worked out from what was found, and was not."""
    text = _first(desk.text)
    idle = desk.found.empty and not desk.of("compute")
    if idle or any(one.expression for one in desk.found.figures):
        return ""
    if part := part_of(text):
        return f"{part} of what was found has to be worked out, and no tool here did it"
    turned = says(text, "convert") and currencies(text)
    if turned and not any(desk.called(one.name) and _takes_amount(one) for one in desk.of("other")):
        return "what is to be converted is not there, or nothing here converts it"
    return ""


def _takes_amount(tool: Choice) -> bool:
    return any(one.type in {"number", "integer"} for one in tool.parameters)


def _named(desk: Desk) -> list[Named]:
    tool = next(iter(desk.of("compute")), None)
    if tool is None or not desk.called(tool.name):
        return []
    known = {" ".join(one.expression.split()): one for one in sums_of(desk, tool)}
    return [
        Named(figure, known[figure.expression].label, known[figure.expression].unit, known[figure.expression].of)
        for figure in desk.found.figures
        if figure.expression in known
    ]


def _without(desk: Desk) -> str:
    if desk.subject.gaps:
        return f"an input is missing: {'; '.join(one.message for one in desk.subject.gaps if one.message)}"
    if not desk.tools:
        return "there are no results to write from, and no tools to find any"
    names = ", ".join(one.name for one in desk.tools)
    return f"none of the tools ({names}) fits the task, or the numbers it needs are not there: {desk.text[:200]}"
