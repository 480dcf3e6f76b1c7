"""The verbs that carry a run: play and resume. Each returns its exit code."""

import secrets
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from shutil import which

from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.carry import Act, carry
from chargehand.cli.console import Console, clean
from chargehand.cli.render import finding
from chargehand.cli.script import Story, read_story, read_table, read_value
from chargehand.cli.tale import Tale
from chargehand.core.state import RunState
from chargehand.errors import Invalid, PlanInvalid, Refused
from chargehand.runtime.driver import Driver, Outcome, checked
from chargehand.stores.journal import check_name
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms import events as ev
from chargehand.terms.lint import lint
from chargehand.terms.plan import Plan, parse
from chargehand.terms.value import encode_value

_CODES = {"complete": 0, "partial": 3, "failed": 1, "cancelled": 130, "needs_input": 4}


def exit_code(ending: ev.Ending, reason: ev.EndReason) -> int:
    return 5 if reason in ("budget", "deadline") else _CODES[ending]


def play(options: Namespace) -> int:
    """A new run of a script. All of the input is checked before the journal is touched."""
    file: str = options.file
    story = read_story(file)
    run: str = options.run or f"{Path(file).stem.strip('-') or 'run'}-{secrets.token_hex(3)}"
    check_name(run)
    request = _checked(file, story)
    console = Console(sys.stderr)
    tale = Tale(console, Console(sys.stdout), jsonl=options.jsonl)
    if story.plan is not None:
        for warning in lint(story.plan.tasks, story.roster, story.policy.limits).warnings:
            console.line(finding(warning), "warn")

    async def act(driver: Driver, _journal: SqliteJournal) -> Outcome:
        if options.reuse:
            return await driver.fork(options.reuse, run, request)
        return await driver.start(run, request)

    return _carried(options, run, file, story, tale, console, act)


def _checked(file: str, story: Story) -> ev.RunRequested:
    now = time.time()
    try:
        return checked(story.request(now), now)
    except PlanInvalid:
        raise
    except Invalid as error:
        raise Invalid(f"{file}: {error}") from error


def resume(options: Namespace) -> int:
    """Go on with a run that a crash or a question left unfinished."""
    run: str = options.name
    story = read_story(options.script)
    reply = _reply(options)
    if not Path(options.journal).exists():  # opening would make it
        raise Refused(f"there is no journal {options.journal}; name the one that holds {run!r} with --journal")
    console = Console(sys.stderr)
    tale = Tale(console, Console(sys.stdout), jsonl=options.jsonl)

    async def act(driver: Driver, journal: SqliteJournal) -> Outcome:
        entries = await journal.read(run)
        tale.catch_up(entries)
        return await driver.resume(run, *_replies(run, tale.state, reply))

    return _carried(options, run, options.script, story, tale, console, act)


def _carried(options: Namespace, run: str, file: str, story: Story, tale: Tale, console: Console, act: Act) -> int:
    found = carry(
        run,
        act,
        story=story,
        journal=options.journal,
        durability=options.durability,
        listener=tale.hear,
        warn=_warning(console, run, file, options.journal),
    )
    tale.close()
    _advise(console, tale.state, run, file, options.journal)
    return exit_code(found.ending, found.reason)


_Reply = Callable[[int], ev.InputAnswered]


def _reply(options: Namespace) -> _Reply | None:
    """What the person answers, once the number of the question is known."""
    if options.approve:
        return lambda number: ev.InputAnswered(number, "approve")
    if options.reject is not None:
        return lambda number: ev.InputAnswered(number, "reject", options.reject)
    if options.plan is not None:
        plan: Plan = parse(read_table(options.plan))
        return lambda number: ev.InputAnswered(number, "edit", plan=plan)
    if options.effect is not None:
        result = encode_value(read_value("--result", options.result.encode(errors="surrogateescape")))
        return lambda number: ev.InputAnswered(number, options.effect, result=result)
    return None


def _replies(run: str, state: RunState, reply: _Reply | None) -> tuple[ev.Event, ...]:
    """The reply to what is being asked; whether it fits, the driver says."""
    if state.ended is not None:
        said = f"run {run!r} has ended ({state.ended.ending})"
        raise Refused(f"{said}; to do some of it again: chargehand play FILE --reuse {shlex.quote(run)}")
    going_on = (ev.PauseSet(paused=False),) if state.paused else ()
    if reply is None:
        return going_on
    if state.input is None:
        raise Refused(f"run {run!r} asks nothing; resume it without an answer")
    return (*going_on, reply(state.input.number))


def _warning(console: Console, run: str, file: str, journal: Path) -> Callable[[int], None]:
    def warn(pressed: int) -> None:
        if pressed == 1:
            console.line("cancelling the run; Ctrl-C once more ends this process at once", "warn")
        else:
            console.line(f"ended at once; to go on: {_command('resume', run, journal, '--script', file)}", "warn")

    return warn


def _advise(console: Console, state: RunState, run: str, file: str, journal: Path) -> None:
    """What the run is called and what can be done with it."""
    console.line(f"run: {clean(run)} in {clean(str(journal))}")
    console.line(f"  look again:  {_command('show', run, journal)}")
    if state.ended is None and state.input is not None:
        answer = "--approve" if state.input.what == "plan" else "--effect again"
        others = "--reject TEXT or --plan FILE" if state.input.what == "plan" else "done or fail"
        console.line(f"  go on:       {_command('resume', run, journal, '--script', file, answer)}  (or {others})")
    elif state.ended is None:
        console.line(f"  go on:       {_command('resume', run, journal, '--script', file)}")
    elif state.ended.ending != "complete":
        again = _command("play", file, journal, "--reuse", run)
        console.line(f"  once more:   {again}  (finished work is taken over)")


def _command(verb: str, subject: str, journal: Path, *more: str) -> str:
    where = () if str(journal) == USUAL_JOURNAL else ("--journal", str(journal))
    words = " ".join(shlex.quote(word) for word in (verb, subject, *more, *where))
    return clean(f"{_program()} {words}")


def _program() -> str:
    """How to type the command again: it need not be on the path."""
    typed, found = sys.argv[0], which("chargehand")
    if typed.endswith("__main__.py"):
        return "python -m chargehand"
    return "chargehand" if found and Path(found).resolve() == Path(typed).resolve() else shlex.quote(typed)
