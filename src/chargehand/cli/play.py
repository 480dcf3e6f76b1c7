"""`chargehand play`: a scripted run, without any model."""

import secrets
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from chargehand.cli.advice import Advice
from chargehand.cli.arguments import add_execution, add_shared
from chargehand.cli.plan_view import describe_finding
from chargehand.cli.run_session import RunSession
from chargehand.cli.script import Story, read_story, scripted
from chargehand.errors import Invalid, PlanInvalid
from chargehand.runtime.driver import Driver, Outcome, checked
from chargehand.stores.journal import check_name
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms import events as ev
from chargehand.terms.lint import lint


def add_play(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a script as JSON, for example examples/cascade.json")
    parser.add_argument(
        "--run", metavar="NAME", help="what to call the run (default: the file's name and a random part)"
    )
    add_shared(parser, "--reuse")
    add_execution(parser)
    add_shared(parser, "--json")


def play(options: Namespace) -> int:
    """A new run of a script. All of the input is checked before the journal is touched."""
    file: str = options.file
    story = read_story(file)
    run: str = options.run or f"{Path(file).stem.strip('-') or 'run'}-{secrets.token_hex(3)}"
    check_name(run)
    request = _checked(file, story)
    advice = Advice(run, options.journal, ("--script", file), ("play", file, "--reuse", run))
    session = RunSession(options, advice)
    if story.plan is not None:
        for warning in lint(story.plan.tasks, story.roster, story.policy.limits).warnings:
            session.output.console.line(describe_finding(warning), "warn")

    async def act(driver: Driver, _journal: SqliteJournal) -> Outcome:
        if options.reuse:
            return await driver.fork(options.reuse, run, request, wait_for_input=session.asks)
        return await driver.start(run, request, wait_for_input=session.asks)

    return session.execute(act, scripted(story))


def _checked(file: str, story: Story) -> ev.RunRequested:
    now = time.time()
    try:
        return checked(story.request(now), now)
    except PlanInvalid:
        raise
    except Invalid as error:
        raise Invalid(f"{file}: {error}") from error
