"""What results leave out, of teams and of workers, and how a run ends if that counts: read off its state.

A run inside another has a journal of its own; what it left out travels with its result.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.engine import events as ev
from chargehand.engine.failure import Gap
from chargehand.engine.plan import NO_TASK, Task, TaskId, needs
from chargehand.engine.roster import Agent
from chargehand.engine.state import RunState, Status
from chargehand.engine.value import decode_value
from chargehand.models.exhibits import Exhibit, Product
from chargehand.models.left_out import NOTHING, left
from chargehand.models.messages import Message
from chargehand.text.words import FUNCTION_WORDS, singular, split_words

INWARDS = " > "
MARK = b'"kind":"partly"'
MAIL = "send_message_to_agent"
"""How the names of all tools begin that wait for another worker's words."""
_MOST = 20  # parts that one worker can leave, and that are looked for in what others were asked


class Partly(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="partly"):
    """A product that leaves something out, as the text says too. `gaps` are a team's: a worker has none of its own."""

    text: str
    missing: tuple[str, ...]
    exhibits: tuple[Exhibit, ...] = ()
    sources: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()


def part(product: Product, messages: Sequence[Message]) -> Product | Partly:
    """What a worker delivers, with what its words say it left out.

    What it quotes from a tool is not its own; what another worker wrote to it, it may well say again.
    """
    mail = {call.id for one in messages for call in one.calls if call.name.startswith(MAIL)}
    seen = [message.text for message in messages if message.role == "tool" and message.call not in mail]
    missing = left(product.text, seen)[1][:_MOST]
    return Partly(product.text, missing, product.exhibits, product.sources) if missing else product


def partly(value: object) -> Partly | None:
    """A result that says what it leaves out; None for any other."""
    if not isinstance(value, dict) or cast("Mapping[str, object]", value).get("kind") != "partly":
        return None
    try:
        return msgspec.convert(value, Partly)
    except msgspec.ValidationError:
        return None


def is_team(agent: Agent) -> bool:
    """Whether an agent is a team: nobody else works without a model and is known by what is inside."""
    return not agent.model and bool(agent.spec) and not agent.tools


def inner_gaps(state: RunState) -> tuple[Gap, ...]:
    """What was left out of results that were delivered, unless another task was done in the place of theirs."""
    done = [progress for progress in state.tasks.values() if progress.status is Status.DONE]
    replaced = {progress.task.replaces for progress in done if progress.task.replaces}
    kept = [(one, said) for one in done if one.task.id not in replaced and (said := _partial(one.result)) is not None]
    if not kept:
        return ()
    teams = {agent.name for agent in state.requested.roster.agents if is_team(agent)}
    below: list[Gap] = []
    for progress, said in kept:
        if progress.worker in teams or not progress.worker:
            below += [structs.replace(gap, task=progress.task.id) for gap in said.gaps]
    answers = [Answer(one.task, one.result, one.mother is not None) for one in done]
    own = [(progress.task, said) for progress, said in kept if in_words(said)]
    only = left_out(_chosen(state, own), ())
    return (*below, *only, *(gap for gap in left_out(own, answers) if gap not in only))


def _chosen(state: RunState, own: Sequence[tuple[Task, Partly]]) -> list[tuple[Task, Partly]]:
    """Of results one of which is the answer, that one: what the others have besides, nobody gets to read."""
    written = state.answer_written
    return [(task, said) for task, said in own if written is not None and written.chosen == task.id]


def in_words(said: Partly) -> bool:
    """Whether a worker, not a team, says so, in its words. A result of a shape of its own may look like it."""
    return not said.gaps and bool(said.missing) and set(said.missing) <= set(left(said.text)[1])


def _partial(result: Raw | None) -> Partly | None:
    """A result that says what it leaves out; most are none, and are not read for this."""
    return None if result is None or MARK not in bytes(result) else partly(decode_value(result))


class Answer(Struct, frozen=True):
    """What came of a task. `item`: it is one of many that were put in the same words about different things."""

    task: Task
    result: Raw | None
    item: bool = False


def left_out(said: Sequence[tuple[Task, Partly]], answers: Sequence[Answer]) -> tuple[Gap, ...]:
    """The parts of the request that workers left and nobody else, who was asked as much, has done."""
    lines = dict.fromkeys((line, task.id) for task, one in said for line in one.missing)
    lacks: dict[TaskId, list[set[str]]] = {}
    for line, name in list(lines)[: _MOST * _MOST]:
        lacks.setdefault(name, []).append(_words(line))
    asked = {answer.task.id: _words(answer.task.instruction) for answer in answers if not answer.item}
    above = {answer.task.id: [name for name, need in needs(answer.task) if need != "optional"] for answer in answers}
    spoke = {answer.task.id for answer in answers if _spoke(answer)}
    items = {answer.task.id for answer in answers if answer.item}
    found: dict[str, None] = {}
    for at, (line, name) in enumerate(lines):
        words = _words(line)
        others = {one for one, known in asked.items() if one != name and words <= known} & spoke
        others = {one for one in others if not any(words <= less or less <= words for less in lacks.get(one, ()))}
        if at >= _MOST or name in items or all(_rests(one, name, above) for one in others):
            found[line] = None
    return tuple(Gap(NO_TASK, "unserved", "unserved", line) for line in found)


def _words(text: str) -> set[str]:
    """What a text speaks of: who repeats a part need not use its small words."""
    words = set(split_words(text))
    return {singular(word) for word in words - FUNCTION_WORDS} or words or {text}


def _rests(task: TaskId, on: TaskId, above: Mapping[TaskId, Sequence[TaskId]]) -> bool:
    """Whether a task was done from what came of another, however far off."""
    line = [task]
    seen = set[TaskId]()
    while line:
        one = line.pop()
        if one == on:
            return True
        if one not in seen:
            seen.add(one)
            line += above.get(one, ())
    return False


def _spoke(one: Answer) -> bool:
    return one.result is None or NOTHING.encode() not in bytes(one.result)[:200]


def of_worker(result: Raw) -> bool:
    """Whether a worker, not a team, says in a result that it left a part of its task."""
    said = _partial(result)
    return said is not None and in_words(said)


def with_inner_gaps(state: RunState, ended: ev.RunEnded) -> ev.RunEnded:
    """The end of a run, all levels counted: with a gap below it is partial, however well its own tasks went."""
    below = inner_gaps(state)
    if not below or ended.ending not in ("complete", "partial"):
        return ended
    reasons = {gap.reason for gap in below}
    reason = ended.reason
    if reason in ("done", "gaps", "overspent"):  # what ended a run below ends those above for the same reason
        reason = "deadline" if "deadline" in reasons else "budget" if "budget" in reasons else "gaps"
    more = tuple(gap for gap in below if gap not in ended.gaps)
    return ev.RunEnded("partial", reason, (*ended.gaps, *more))
