"""What the tests of agents share: a plan as a model would write it, calls, and a team around a scripted model."""

import json
from collections.abc import Callable, Sequence

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Answering, Judging, Making, Planning, Refining, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.options import make_team

FREE = ModelCard("scripted", micros_in=0.0, micros_out=0.0)
Part = Callable[[Request], Line]


def plan(*tasks: tuple[str, str, Sequence[str]], combine: str = "merge", unserved: Sequence[str] = ()) -> str:
    """A plan as JSON text: instruction, worker, after."""
    listed = [
        {"id": f"t{number}", "instruction": instruction, "worker": worker, "after": list(after)}
        for number, (instruction, worker, after) in enumerate(tasks, 1)
    ]
    return json.dumps({"goal": "g", "tasks": listed, "combine": combine, "unserved": list(unserved)})


def call(name: str, nth: int = 1, /, **arguments: object) -> ToolCall:
    return ToolCall(f"c{nth}", name, json.dumps(arguments))


def calls(*made: ToolCall) -> Reply:
    return Reply(calls=made, finish="tools")


def model(
    *,
    plans: Sequence[Line] = (),
    work: Part | Sequence[Line] = ("It is done.",),
    refine: Part | str = "Do it, but better than before.",
    answer: Part | str = "The answer [t1].",
    make: str = '{"persona": "a counter", "tools": ["add"]}',
    card: ModelCard = FREE,
) -> ScriptedModel:
    """A model that plays every part; lists are used up in turn, the last line repeats."""
    turn = {"plan": 0, "work": 0}

    def of(lines: Sequence[Line], key: str) -> Line:
        at = turn[key]
        turn[key] += 1
        return lines[min(at, len(lines) - 1)]

    def script(request: Request) -> Line:
        match request.subject:
            case Planning():
                return of(plans or [plan(("Count the apples in the cellar.", "ann", []), combine="forward")], "plan")
            case Working():
                return work(request) if callable(work) else of(work, "work")
            case Refining():
                return refine(request) if callable(refine) else refine
            case Answering():
                return answer(request) if callable(answer) else answer
            case Making():
                return make
            case Judging():
                return '{"winner": "t1", "ruling": "the first", "why": "it names its source"}'
            case _:
                return "short"

    return ScriptedModel(script, usage=Usage(10, 5), micros=7, card=card)


def team(script: ScriptedModel, *workers: Worker, journal: Journal | None = None, **more: object) -> Team:
    return make_team(
        workers or (Worker("ann", "counts things"),), model=script, journal=journal or MemoryJournal(), **more
    )


def refused_calls(result: Result) -> list[tuple[str, dict[str, object]]]:
    """Return tool and arguments of the calls that a result says a person did not allow."""
    return [(gap.tool, gap.arguments) for gap in result.gaps if gap.status == "refused"]


def of_kind(entries: Sequence[ev.Entry], kind: type) -> list[ev.Event]:
    return [entry.event for entry in entries if isinstance(entry.event, kind)]
