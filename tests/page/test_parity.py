"""The page folds entries in TypeScript, the server in Python: both must make the same of every history."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec import Struct

from chargehand import (
    MemoryJournal,
    Plan,
    Policy,
    Reply,
    Request,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
    tool,
)
from chargehand.engine.events import CallVerdict, Entry, InputAnswered
from chargehand.engine.plan import TaskId
from chargehand.runtime import trace
from chargehand.runtime.trace import Tracer
from tests.histories.kept import entries_of, names, read_lines
from tests.page.web_tools import run_script
from tests.sim.run import play
from tests.sim.scenario import scenario

SEEDS = 60
_LEFT_OUT = {"damage", "runs", "gaps"}
"""What a journal that cannot be read or other runs tell; and gaps, which the page shows when the run has ended."""


def plain(value: object) -> object:
    """A trace as plain data with every default written out; what is from an event, as the event has it."""
    if isinstance(value, Struct) and type(value).__module__ != trace.__name__:
        return msgspec.json.decode(msgspec.json.encode(value))
    if isinstance(value, Struct):
        fields = [name for name in value.__struct_fields__ if name not in _LEFT_OUT]
        return {name: plain(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in cast("list[object]", value)]
    return value


def traces_of(run: str, entries: list[Entry]) -> dict[str, Any]:
    tracer = Tracer(run, entries[0])
    traces: dict[str, Any] = {}
    for entry in entries:
        if entry.seq > 1:
            tracer.record(entry)
        if entry.seq % 10 == 0 or entry is entries[-1]:
            snapshot = tracer.snapshot()
            gaps = {"gaps": snapshot.gaps} if snapshot.ending else {}
            traces[str(entry.seq)] = cast("dict[str, object]", plain(snapshot)) | gaps
    return traces


def without_empty(value: Any) -> Any:
    """Data without what is nothing anyway: nulls, empty texts, empty lists, zeros, `false`."""
    if isinstance(value, dict):
        fields = {name: without_empty(part) for name, part in cast("dict[str, Any]", value).items()}
        return {name: part for name, part in fields.items() if part not in (None, "", [], {}, 0, False)}
    if isinstance(value, list):
        return [without_empty(part) for part in cast("list[Any]", value)]
    return value


def check_parity(histories: dict[str, list[Entry]], folder: Path) -> None:
    sent = {
        name: [{"run": name, "seq": entry.seq, "at": entry.at, "event": entry.event} for entry in entries]
        for name, entries in histories.items()
    }
    printed = msgspec.json.decode(run_script("print_traces.ts", msgspec.json.encode(sent), folder))
    for name, entries in histories.items():
        expected = msgspec.json.decode(msgspec.json.encode(traces_of(name, entries)))
        for seq, expected_trace in expected.items():
            assert without_empty(printed[name][seq]) == without_empty(expected_trace), (name, seq)


def test_both_folds_make_the_same_of_every_history(tmp_path: Path) -> None:
    histories = {name: entries_of(read_lines(name), name) for name in names()}
    assert len(histories) >= 30
    check_parity(histories, tmp_path)


def test_both_folds_make_the_same_of_simulated_runs_with_crashes_and_people(tmp_path: Path) -> None:
    check_parity({f"seed {seed}": play(scenario(seed)) for seed in range(SEEDS)}, tmp_path)


DONE, AGAIN, FAIL, PARTLY = (
    InputAnswered(1, "done", result="sent", also=(CallVerdict(2, "again"),)),
    InputAnswered(1, "again", also=(CallVerdict(2, "done", result="sent"),)),
    InputAnswered(1, "done", result="sent", also=(CallVerdict(2, "fail"),)),
    InputAnswered(1, "again"),
)


@pytest.mark.parametrize("answers", [(DONE, "fail"), (AGAIN, "again"), (FAIL,), (PARTLY, "fail")])
async def test_both_folds_make_the_same_of_answered_effects_in_doubt(
    tmp_path: Path, answers: tuple[InputAnswered | str, ...]
) -> None:
    begun: list[str] = []
    both = asyncio.Event()

    @tool(effect="effect")
    async def mail(to: str) -> str:
        """Mail somebody; the line breaks when two mails are under way."""
        begun.append(to)
        if len(begun) > 1:
            both.set()
        await both.wait()
        raise ConnectionResetError("the line broke")

    calls = (ToolCall("Ott", "mail", '{"to": "Ott"}'),)

    def work(request: Request) -> Reply | str:
        return "Sent." if request.messages[-1].role == "tool" else Reply(calls=calls, finish="tools")

    model = ScriptedModel(work)
    plan = Plan(tuple(Task(TaskId(name), f"Mail {name}.", "ute") for name in ("t1", "t2")), "forward")
    team = Team(
        [Worker("ute", tools=[mail], model=model)],
        supervisor=Supervisor(plan=plan, model=model),
        policy=Policy(uncertain="ask"),
        journal=MemoryJournal(),
    )
    result = await team.run("Mail them.", run="r")
    for answer in answers:
        assert result.question is not None
        result = await team.resume("r", answer)
    check_parity({"r": list(result.entries)}, tmp_path)
