"""`python -m bench.local_quality --model qwen-coder-0.5b`: what a small local model gets done on real teams.

Thirty requests on four bundled teams (`local_requests`) go through the whole product. Counted are plans that hold and
are sensible, right answers, and answers that were called complete with a number in them that no tool returned.
"""

import argparse
import asyncio
import os
import re
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from bench.local_requests import FOLDERS, Asked, requests
from chargehand.agents.draft import draft
from chargehand.agents.result import Result, read_result
from chargehand.config.load import load_team
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.plan import Plan
from chargehand.engine.value import decode_value
from chargehand.errors import PlanInvalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.local import pull
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Runner
from chargehand.team import Team

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")
_CITED = re.compile(r"\[[^\]]*\]|^\s*\d+[.)]\s", re.MULTILINE)
_EXTRA_TASKS = 2  # so many more than workers that are needed is still sensible


class Outcome(Struct, frozen=True):
    """What came of one request. `invented`: numbers of a complete answer that no tool returned and nobody asked for."""

    model: str
    team: str
    request: str
    ending: str
    valid: bool
    sensible: bool
    right: bool
    invented: tuple[str, ...]
    calls: int
    repeated: int
    tokens: int
    seconds: float
    plan: tuple[str, ...]
    answer: str
    wanted: tuple[str, ...]


def holds(answer: str, fact: str) -> bool:
    """Whether an answer says a fact: a number however it is written or rounded, a day in either form, or words."""
    try:
        day = date.fromisoformat(fact)
    except ValueError:
        pass
    else:
        return fact in answer or f"{day.day} {day:%B %Y}".lower() in answer.lower()
    try:
        wanted = float(fact)
    except ValueError:
        return fact.lower() in answer.lower()
    return any(same_number(wanted, text) for text in _NUMBER.findall(_CITED.sub(" ", answer)))


def same_number(wanted: float, text: str) -> bool:
    """Whether a number as it is written is another one, perhaps rounded (not beyond three digits)."""
    plain = text.replace(",", "")
    places = len(plain.partition(".")[2])
    coarse = places == 0 and abs(wanted) < 100 and wanted != int(wanted)
    return not coarse and abs(abs(float(plain)) - abs(wanted)) <= 0.5 * 10**-places + 1e-9


def is_sensible(asked: Asked, plan: Plan) -> bool:
    """Whether all who are needed have a task about it, nobody else has one, and there are not many more."""
    by_worker: dict[str, str] = {}
    for task in plan.tasks:
        by_worker[task.worker] = f"{by_worker.get(task.worker, '')} {task.instruction.lower()}"
    if not set(by_worker) <= {*asked.needed, *asked.also, "writer"}:
        return False
    named = all(any(word in by_worker.get(who, "") for word in words) for who, words in asked.needed.items())
    return named and len(plan.tasks) <= len(asked.needed) + _EXTRA_TASKS


def tool_texts(result: Result) -> list[str]:
    """What tools returned in a run."""
    tools: set[tuple[object, ...]] = set()
    texts: list[str] = []
    for entry in result.entries:
        event = entry.event
        if isinstance(event, ev.StepStarted) and event.kind == "tool":
            tools.add((event.task, event.attempt, event.step))
        elif isinstance(event, ev.StepFinished) and (event.task, event.attempt, event.step) in tools:
            texts.append(bytes(event.result).decode())
    return texts


def repeated_calls(result: Result) -> int:
    """Calls of tools that repeat an earlier one of the same attempt word for word."""
    seen: set[tuple[object, ...]] = set()
    count = 0
    for entry in result.entries:
        event = entry.event
        if isinstance(event, ev.StepStarted) and event.kind == "tool":
            call = (event.task, event.attempt, event.name, event.request)
            count += call in seen
            seen.add(call)
    return count


def written_text(result: Result) -> str:
    """What the model wrote, without the sections below it."""
    written = [entry.event.answer for entry in result.entries if isinstance(entry.event, ev.AnswerWritten)]
    return str(decode_value(written[-1])) if written else str(result.answer)


def invented_numbers(asked: Asked, result: Result) -> tuple[str, ...]:
    known = [float(one.replace(",", "")) for text in (asked.text, *tool_texts(result)) for one in _NUMBER.findall(text)]
    said = _NUMBER.findall(_CITED.sub(" ", written_text(result)))
    return tuple(one for one in said if not any(same_number(number, one) for number in known))


def model_calls(result: Result) -> int:
    kinds = (ev.SupervisionStarted, ev.StepStarted)
    events = [entry.event for entry in result.entries if isinstance(entry.event, kinds)]
    return sum(not isinstance(event, ev.StepStarted) or event.kind == "model" for event in events)


def slow_team(name: str, model: str, seconds: float) -> Team:
    """A team with time enough for a small machine: what is measured is the model, not how busy the machine is."""
    team = load_team(FOLDERS[name], model=model)
    policy = structs.replace(team.policy, supervision=seconds)
    team = team.bounded(budget=Budget(), timeout=seconds, policy=policy)
    agents = tuple(structs.replace(agent, timeout=seconds) for agent in team.roster.agents)
    team.roster = structs.replace(team.roster, agents=agents)
    return team


async def measure_plan(asked: Asked, team: Team, executor: Executor, model: str) -> Outcome:
    """Only the plan: one call of the model, or a few."""
    began = time.perf_counter()
    try:
        drafted = await draft(executor, team.request(asked.text, time.time()))
    except PlanInvalid as error:
        plan = Plan(())
        said = str(error)
    else:
        plan = drafted.plan
        said = "; ".join(drafted.unserved)
    return Outcome(
        model=model,
        team=asked.team,
        request=asked.text,
        ending="planned",
        valid=bool(plan.tasks),
        sensible=is_sensible(asked, plan),
        right=False,
        invented=(),
        calls=1,
        repeated=0,
        tokens=0,
        seconds=time.perf_counter() - began,
        plan=tuple(f"{task.worker}: {task.instruction}" for task in plan.tasks),
        answer=said,
        wanted=(),
    )


async def measure(asked: Asked, team: Team, executor: Executor, model: str) -> Outcome:
    began = time.perf_counter()
    journal = MemoryJournal()
    ended = await Runner(journal, executor).start("r", team.request(asked.text, time.time()))
    result = read_result(ended, await journal.read("r"))
    answer = result.answer if isinstance(result.answer, str) else msgspec.json.encode(result.answer).decode()
    wanted = asked.facts()
    return Outcome(
        model=model,
        team=asked.team,
        request=asked.text,
        ending=result.ending,
        valid=bool(result.plan.tasks),
        sensible=is_sensible(asked, result.plan),
        right=result.ending != "failed" and all(holds(answer, fact) for fact in wanted),
        invented=invented_numbers(asked, result) if result.ending == "complete" else (),
        calls=model_calls(result),
        repeated=repeated_calls(result),
        tokens=result.spent.tokens,
        seconds=time.perf_counter() - began,
        plan=tuple(f"{task.worker}: {task.instruction}" for task in result.plan.tasks),
        answer=answer,
        wanted=tuple(wanted),
    )


def show(outcome: Outcome) -> None:
    marks = [name for name in ("valid", "sensible", "right") if getattr(outcome, name)]
    print(f"  {'+' if outcome.right else '-'} {outcome.team}: {outcome.request}")
    invented = f", invented {', '.join(outcome.invented)}" if outcome.invented else ""
    print(
        f"      {outcome.ending}; {', '.join(marks) or 'nothing right'}{invented}; wanted {', '.join(outcome.wanted)}"
    )
    spent = f"{outcome.calls} calls, {outcome.repeated} tool calls repeated, {outcome.tokens} tokens"
    print(f"      {spent}, {outcome.seconds:.0f} s; {' '.join(outcome.answer.split())[:160]}", flush=True)


def summary(name: str, outcomes: Sequence[Outcome]) -> str:
    count = len(outcomes)
    complete = sum(one.ending == "complete" for one in outcomes)
    lines = [
        f"{name}: {count} requests, {complete} complete",
        f"  valid plans       {sum(one.valid for one in outcomes):>3} of {count}",
        f"  sensible plans    {sum(one.sensible for one in outcomes):>3} of {count}",
        f"  right answers     {sum(one.right for one in outcomes):>3} of {count}",
        f"  complete, with a number no tool returned  {sum(bool(one.invented) for one in outcomes)}",
        f"  model calls       {sum(one.calls for one in outcomes):>6}",
        f"  repeated calls    {sum(one.repeated for one in outcomes):>6}",
        f"  tokens            {sum(one.tokens for one in outcomes):>6}",
    ]
    return "\n".join(lines)


async def measure_all(name: str, asked: Sequence[Asked], options: argparse.Namespace) -> list[Outcome]:
    outcomes: list[Outcome] = []
    until = time.monotonic() + 60 * options.minutes
    for team_name in FOLDERS:  # one team after the other: what all its prompts begin with is read once
        team = slow_team(team_name, f"local:{name}", options.seconds)
        async with team.executor() as executor:
            for one in asked:
                if one.team != team_name:
                    continue
                if time.monotonic() > until:
                    print(f"{name}: the time is up after {len(outcomes)} of {len(asked)} requests")
                    return outcomes
                trial = measure_plan if options.plans else measure
                outcome = await trial(one, team, executor, name)
                outcomes.append(outcome)
                show(outcome)
                if options.out is not None:
                    with options.out.open("ab") as lines:
                        lines.write(msgspec.json.encode(outcome) + b"\n")
    return outcomes


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.local_quality", description=__doc__)
    parser.add_argument("--model", action="append", help="a model of the catalog; may be given again")
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("CHARGEHAND_MODELS") or ".venv/models"))
    parser.add_argument("--first", type=int, default=len(requests()), help="only so many requests; 12 are 3 a team")
    parser.add_argument("--plans", action="store_true", help="only plan: one call of the model for each request")
    parser.add_argument("--seconds", type=float, default=900.0, help="the time each request has")
    parser.add_argument(
        "--minutes", type=float, default=600.0, help="no request is begun after so many, for each model"
    )
    parser.add_argument("--out", type=Path, help="a file for every outcome, one JSON line each")
    options = parser.parse_args(arguments)
    os.environ["CHARGEHAND_MODELS"] = str(options.folder)
    summaries: list[str] = []
    for name in options.model or ["qwen-coder-0.5b"]:
        pull(name, options.folder)
        print(f"{name}:")
        summaries.append(summary(name, asyncio.run(measure_all(name, requests()[: options.first], options))))
    print()
    print("\n".join(summaries))


if __name__ == "__main__":
    main()
