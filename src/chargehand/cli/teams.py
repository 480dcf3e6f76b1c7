"""The team of a command: loaded, priced, kept within its budget, and its background work after a run."""

import asyncio
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from msgspec import Struct

from chargehand.agents.cost_forecast import CostForecast, PlanForecast
from chargehand.agents.crew import Crew
from chargehand.cli import USUAL_MEMORY
from chargehand.cli.advice import program
from chargehand.cli.console import Console, clean, short
from chargehand.cli.exit_codes import Terminated
from chargehand.cli.format import counted, dollars
from chargehand.cli.signals import StopSignals
from chargehand.config.load import load_team
from chargehand.core.state import RunState
from chargehand.errors import ChargehandError, Invalid, Refused
from chargehand.models.prices import flat
from chargehand.runtime.background import Rested, rest
from chargehand.runtime.draft import foreseen
from chargehand.stores.database import Durability
from chargehand.stores.sqlite import SqliteJournal
from chargehand.team import Supervisor
from chargehand.terms.events import RunRequested

_ANSWERED = (0, 3, 5)  # exit codes of runs that may have an answer


def finish_background(team: Supervisor, options: Namespace, code: int) -> None:
    """After a run that came to an answer: what background workers have to do is done now."""
    if team.aside and not options.no_background and code in _ANSWERED:
        run_background_work(team, Path(options.journal), options.durability, quiet=options.quiet)


# --- what other verbs need of a team as well


def team_arguments(options: Namespace) -> tuple[str, ...]:
    """The words that name the same team again."""
    team = ("--team", str(options.team)) if options.team else ()
    memory = ("--memory", str(options.memory)) if options.memory else ()
    price = ("--price", options.price.text) if options.price else ()
    return (*team, *(("--model", options.model) if options.model else ()), *price, *memory)


def example_request(team: Supervisor, number: int) -> str:
    """One of the team's own examples, counted from 1."""
    known = team.examples
    if not 1 <= number <= len(known):
        have = f"it has {len(known)}" if known else "it has none: list some under `examples` in its file"
        raise Invalid(f"team {team.name} has no example {number}; {have}")
    return known[number - 1]


def describe_missing_request(team: Supervisor, verb: str = "run") -> str:
    """How to ask."""
    said = f'nothing was asked; say what is to be done: {program()} {verb} "REQUEST"'
    known = team.examples
    if not known:
        return said
    shown = ", ".join(f"{number}: {short(one, 80)}" for number, one in enumerate(known[:5], 1))
    return f"{said}, or try an example of team {team.name} with --example N ({shown})"


def load_team_of(options: Namespace) -> Supervisor:
    """The team that the options name."""
    team = load_team(
        options.team,
        model=options.model or "",
        memory=USUAL_MEMORY,
        elsewhere=options.memory,
    )
    return team.priced(flat(options.price.read, options.price.written)) if options.price else team


class RunExecutor(Struct, frozen=True):
    """`words` name the crew on a command line, `again` begins a command that does it once more.

    `notice` is what people must know about its models; `leave` is told with which code it ended.
    """

    crew: Callable[[], AbstractAsyncContextManager[Crew]]
    words: tuple[str, ...]
    again: tuple[str, ...]
    team: str = ""
    notice: str = ""
    leave: Callable[[int], None] = lambda _: None


def find_executor(options: Namespace, run: str, state: Callable[[], RunState]) -> RunExecutor:
    """The crew that the options name; Refused where the run counts on somebody it does not have."""
    if options.script:
        from chargehand.cli.play import scripted  # noqa: PLC0415 - a team needs none of it
        from chargehand.cli.script import read_story  # noqa: PLC0415 - as above

        file: str = options.script
        return RunExecutor(scripted(read_story(file)), ("--script", file), ("play", file))

    team = keep_budget(load_team_of(options))
    words = team_arguments(options)
    team.check_recorded(state().requested.budget)
    known = {*team.roster.names(), *(agent.name for agent, _ in team.aside)}
    strangers = [agent.name for agent in state().requested.roster.agents if agent.name not in known]
    if strangers:
        said = f"run {run!r} counts on {', '.join(strangers[:5])}, and team {team.name} has nobody of that name"
        raise Refused(f"{said}; name the team it began with (--team), or its script (--script)")
    return RunExecutor(
        crew=team.crew,
        words=words,
        again=("run", *words),
        team=team.name,
        notice=team.notice,
        leave=partial(finish_background, team, options),
    )


def keep_budget(team: Supervisor) -> Supervisor:
    """The team with a budget that can be kept, with a warning where that is one on calls instead of dollars."""
    if team.budget.usd is None:
        return team
    kept = asyncio.run(team.keep_budget())
    if kept.call_cap is not None:
        Console(sys.stderr).prose(f"warning: {clean(kept.call_cap.warning)}", "warn")
    return kept


def warn_above_budget(team: Supervisor, request: RunRequested) -> None:
    """Say it where a plan is estimated to cost more than the run may."""
    if request.plan is None or request.budget.micros is None or team.cache is not None:
        return  # what a plan will be is not known, nothing is capped, or results may be had for nothing
    cost = asyncio.run(forecast_plan(team, request)).usd
    if cost is not None and cost.above_budget:
        Console(sys.stderr).prose(f"warning: {clean(above_budget(cost))}", "warn")


async def forecast_plan(team: Supervisor, request: RunRequested) -> PlanForecast:
    """What the plan of a request takes."""
    if request.plan is None:
        raise Invalid("there is no plan to reckon with; name one with --plan")
    async with team.crew() as crew:
        return foreseen(crew, request.plan, request)


def above_budget(cost: CostForecast) -> str:
    """That a plan costs more than there is, in words."""
    about = dollars(round(1_000_000 * (cost.about or 0)))
    budget = dollars(round(1_000_000 * (cost.budget or 0)))
    return (
        f"this plan is estimated at {about}, the budget is {budget}: the run stops where that is used up. Allow it "
        "more with --budget-usd, leave tasks out of the plan, or name a cheaper model with --model"
    )


def run_background_work(team: Supervisor, journal: Path, durability: Durability, *, quiet: bool) -> None:
    """Do what is due. Whatever comes of it, the turn is over: it is said, and changes nothing else."""
    console = Console(sys.stderr)
    said: set[str] = set()

    def begun(worker: str) -> None:
        if not quiet and worker not in said:
            console.line(f"{clean(worker)} is tidying memory; Ctrl-C leaves it for the next time", "dim")
        said.add(worker)

    async def main() -> list[Rested]:
        opened = await SqliteJournal.open(journal, durability=durability)
        try:
            return await rest(team, opened, begun)
        finally:
            await opened.close()

    try:
        with StopSignals() as signals:
            found = signals.run(main())
    except KeyboardInterrupt as stop:
        console.line("memory is left for the next time", "warn")
        if isinstance(stop, Terminated):
            raise
        return
    except ChargehandError as error:
        console.line(f"memory was not tidied: {clean(str(error))}", "bad")
        return
    except Exception as error:  # noqa: BLE001 - tools and models of others: the turn is over, and keeps its exit code
        console.line(f"memory was not tidied: {type(error).__name__}: {clean(str(error))}", "bad")
        return
    for one in found:
        _tell(console, one)


def _tell(console: Console, one: Rested) -> None:
    """What went wrong; what went well is in the journal."""
    came = one.outcome
    if came.ending in ("complete", "partial"):
        return
    why = came.gaps[0].message if came.gaps else came.reason
    then = "it is tried again the next time" if one.again else f"{counted(len(one.covered), 'turn')} will be left out"
    if came.question is not None:
        then = "a person must answer first"
    console.line(f"{clean(one.worker)} did not get through ({clean(why)}); {then}; see run {clean(came.run)}", "bad")
