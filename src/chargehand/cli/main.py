"""`chargehand`: reads the words of a command and hands them to its verb. Verbs are imported when they are called."""

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from chargehand import __version__
from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.console import clean

_EXITS = """\
exit codes: 0 complete   1 failed, or the journal cannot be used   2 usage or invalid input   3 partial: there are gaps
            4 a person is asked   5 budget or deadline ended it   130 cancelled
Data goes to standard output, progress to standard error. NO_COLOR turns colours off.
"""
_WORDS = {
    "play": "play a script: a plan and what everybody does, without any model",
    "resume": "go on with a run after a crash or a question",
    "runs": "list the runs of a journal",
    "show": "tell what happened in a run",
    "plan": "check a plan, and say what it will take",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"chargehand: {clean(message)}; see  {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Every verb and option there is."""
    shape = argparse.RawDescriptionHelpFormatter
    top = _Parser(
        "chargehand", description="A supervisor-worker system for LLM agents.", epilog=_EXITS, formatter_class=shape
    )
    top.add_argument("--version", action="version", version=f"chargehand {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    made = {
        verb: verbs.add_parser(
            verb, help=words, description=words.capitalize() + ".", epilog=_EXITS, formatter_class=shape
        )
        for verb, words in _WORDS.items()
    }
    _carrying(made["play"], made["resume"])
    made["show"].add_argument("name", metavar="RUN")
    made["show"].add_argument("--jsonl", action="store_true", help="the entries as JSON lines, and nothing else")
    made["runs"].add_argument("--json", action="store_true", help="one JSON document")
    for verb in ("play", "resume", "show", "runs"):
        words = f"the SQLite file (default {USUAL_JOURNAL})"
        made[verb].add_argument("--journal", metavar="PATH", type=Path, default=Path(USUAL_JOURNAL), help=words)
    _planning(made["plan"])
    return top


def _carrying(play: argparse.ArgumentParser, resume: argparse.ArgumentParser) -> None:
    play.add_argument("file", metavar="FILE", help="a script as JSON, for example examples/cascade.json")
    play.add_argument("--run", metavar="NAME", help="what to call the run (default: the file's name and a random part)")
    play.add_argument(
        "--reuse", metavar="RUN", help="take over every result of this run whose task and inputs are unchanged"
    )
    resume.add_argument("name", metavar="RUN")
    resume.add_argument("--script", metavar="FILE", required=True, help="the script with what everybody does")
    answer = resume.add_mutually_exclusive_group()
    answer.add_argument("--approve", action="store_true", help="the plan may run")
    answer.add_argument("--reject", metavar="TEXT", help="the plan may not run, and why; the planner is asked again")
    answer.add_argument("--plan", metavar="FILE", help="run this plan instead")
    answer.add_argument(
        "--effect", choices=("done", "again", "fail"), help="what became of an effect nobody is sure of"
    )
    resume.add_argument("--result", metavar="JSON", default="null", help="with --effect done: what the task returns")
    for verb in (play, resume):
        verb.add_argument("--jsonl", action="store_true", help="the entries as JSON lines on standard output")
        words = "what a written entry survives: the loss of power, or only the end of the process (default machine)"
        verb.add_argument("--durability", choices=("machine", "process"), default="machine", help=words)


def _planning(plan: argparse.ArgumentParser) -> None:
    plan.add_argument(
        "--from", dest="source", metavar="FILE", required=True, help="a plan or a script as JSON; - for standard input"
    )
    plan.add_argument("--roster", metavar="SCRIPT", help="a script whose workers and policy count")
    how = plan.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="findings, repaired plan and forecast as JSON")
    how.add_argument("--mermaid", action="store_true", help="the plan as a Mermaid flowchart")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code it ends with."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _check_verb(words)
    options = parser().parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what this terminal cannot show must not end a run
    from chargehand.cli.command import perform  # noqa: PLC0415 - --help must not wait for what only verbs need

    try:
        return perform(options)
    except KeyboardInterrupt:
        return 130


def _check_verb(words: Sequence[str]) -> None:
    verb = words[0] if words else "--help"
    if verb.startswith("-") or verb in _WORDS:
        return
    alike = get_close_matches(verb, _WORDS, 1, 0.4)
    hint = f"did you mean {alike[0]!r}?" if alike else f"the verbs are {', '.join(_WORDS)}"
    print(f"chargehand: there is no verb {verb!r}; {hint}", file=sys.stderr)
    sys.exit(2)
