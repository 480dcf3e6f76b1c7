"""The words that each verb takes. What they do is known to the verbs."""

from argparse import SUPPRESS, ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING

from chargehand.cli import USUAL_JOURNAL, USUAL_MEMORY
from chargehand.cli.request import count, duration, positive, token_price, usd
from chargehand.models.known import BUILT_IN

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage] - what add_subparsers returns

_PRUNABLE = ("complete", "partial", "failed", "cancelled", "waiting", "interrupted")
_LIMIT = "the latest N runs (default: 20; with --json all)"
_RUN = "the run, as  chargehand runs  names it; the beginning of its name; or  last"


def add_run(parser: ArgumentParser) -> None:
    _request(parser)
    _team(parser)
    asked = "whether a person is asked about the plan; auto and never: no (default: as the team says)"
    parser.add_argument("--approve", choices=("auto", "ask", "never"), help=asked)
    words = "the most it may cost; a --plan that costs more at the least is refused (default: as the team says)"
    parser.add_argument("--budget-usd", metavar="USD", type=usd, help=words)
    parser.add_argument(
        "--timeout", metavar="TIME", type=duration, help="the time it has: 90s, 5m, 1h (default: as the team says)"
    )
    parser.add_argument("--plan", metavar="FILE", help="carry out this plan instead of asking the planner")
    parser.add_argument(
        "--run", metavar="NAME", help="what to call the run (default: the team's name and a random part)"
    )
    _reuse(parser)
    parser.add_argument("--save", metavar="DIR", help="write charts, tables and the answer into this folder")
    _background(parser)
    words = "tasks that may run at once; 1: one after the other (default: as the team says)"
    parser.add_argument("--max-parallel", metavar="N", type=positive, help=words)
    _carrying(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def add_plan(parser: ArgumentParser) -> None:
    _request(parser)
    _team(parser)
    parser.add_argument(
        "--from", dest="source", metavar="FILE", help="check this plan or script (JSON); - for standard input"
    )
    parser.add_argument("--roster", metavar="SCRIPT", help="with --from: a script whose workers and policy count")
    words = "the most a run may cost, also its planning: the forecast stays below it (default: as the team says)"
    parser.add_argument("--budget-usd", metavar="USD", type=usd, help=words)
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the plan there, as run --plan takes it")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="findings, repaired plan and forecast as JSON")
    how.add_argument("--mermaid", action="store_true", help="the plan as a Mermaid flowchart")
    _plain(parser)


def add_runs(parser: ArgumentParser) -> None:
    _journal(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    what = parser.add_subparsers(dest="what", metavar="list|show|export|diff|cancel|prune|backup|restore")
    parser.add_argument("--limit", metavar="N", type=count, help=_LIMIT)
    listed = _part(what, "list", "every run, the latest first")
    listed.add_argument("--limit", metavar="N", type=count, default=SUPPRESS, help=_LIMIT)
    listed.add_argument("--json", action="store_true", default=SUPPRESS, help="one JSON document")
    show = _part(what, "show", "what happened in a run, and why")
    show.add_argument("name", metavar="RUN", help=_RUN)
    show.add_argument("--jsonl", action="store_true", help="the entries as JSON lines, and nothing else")
    export = _part(what, "export", "every step of a run: prompts, calls, results, retries, costs")
    export.add_argument("name", metavar="RUN", help=_RUN)
    export.add_argument("--report", action="store_true", help="as a Markdown page to read, not as JSON")
    export.add_argument("-o", "--output", metavar="FILE", help="write it there (default: standard output)")
    diff = _part(what, "diff", "what is different between two runs")
    diff.add_argument("name", metavar="RUN", help=_RUN)
    diff.add_argument("other", metavar="OTHER", help="the run it is compared with")
    diff.add_argument("--json", action="store_true", default=SUPPRESS, help="one JSON document")
    cancel = _part(what, "cancel", "end a run for good; finished work stays in the journal")
    cancel.add_argument("name", metavar="RUN", help=_RUN)
    cancel.add_argument("--reason", metavar="TEXT", default="", help="why, for the journal")
    prune = _part(what, "prune", "delete old runs; safe while a server runs")
    prune.add_argument("--older-than", metavar="TIME", type=duration, help="runs that changed last before: 12h, 30d")
    prune.add_argument("--keep", metavar="N", type=count, help="all but the latest N of these")
    states = "|".join(_PRUNABLE)
    prune.add_argument(
        "--state", action="append", choices=_PRUNABLE, metavar=states, help="only these (default: those that ended)"
    )
    prune.add_argument("--dry-run", action="store_true", help="name them and delete nothing")
    prune.add_argument("--json", action="store_true", default=SUPPRESS, help="one JSON document")
    backup = _part(what, "backup", "copy a journal, as of one moment; safe while a server runs")
    backup.add_argument("file", metavar="FILE", help="the copy, which must not exist yet; large results lie beside it")
    restore = _part(what, "restore", "put a backup where there is no journal yet")
    restore.add_argument("file", metavar="FILE", help="the backup")
    for verb in (listed, show, export, diff, cancel, prune, backup, restore):
        _journal(verb, nested=True)
        _plain(verb)


def _part(of: "_SubParsersAction[ArgumentParser]", name: str, words: str) -> ArgumentParser:
    return of.add_parser(name, help=words, description=f"{words[:1].upper()}{words[1:]}.")


def add_watch(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=_RUN)
    parser.add_argument("--from-seq", metavar="N", type=int, default=0, help="tell what happened from entry N on")
    parser.add_argument("--jsonl", action="store_true", help="the entries as JSON lines on standard output")
    _journal(parser)
    _plain(parser)


def add_resume(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=_RUN)
    _team(parser)
    parser.add_argument("--script", metavar="FILE", help="the script of a run that was played")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--approve", action="store_true", help="the plan may run, the call may be made")
    answer.add_argument("--reject", metavar="TEXT", help="it may not, and why; whoever proposed it is asked again")
    answer.add_argument("--plan", metavar="FILE", help="run this plan instead")
    answer.add_argument("--answer", metavar="TEXT", help="yes, or what to do instead of the call")
    answer.add_argument(
        "--effect", choices=("done", "again", "fail"), help="what became of an effect nobody is sure of"
    )
    parser.add_argument("--result", metavar="JSON", default="null", help="with --effect done: what the task returns")
    parser.add_argument(
        "--question", metavar="N", type=int, help="answer question N, and no other that is asked by now"
    )
    _background(parser)
    _carrying(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def add_replay(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=_RUN)
    words = "so many times as fast; 0: at once (default 4 at a terminal, else 0)"
    parser.add_argument("--speed", metavar="X", type=float, help=words)
    parser.add_argument(
        "--from", dest="source", metavar="TASK", help="a new run that does this task again, and what needs it"
    )
    parser.add_argument("--dry", action="store_true", help="with --from: only say what would be done again")
    parser.add_argument("--run", metavar="NAME", help="with --from: what to call the new run")
    _team(parser)
    parser.add_argument("--script", metavar="FILE", help="with --from: the script of a run that was played")
    _carrying(parser)


def add_message(parser: ArgumentParser) -> None:
    words = "what you want to know or to have done; - for standard input"
    parser.add_argument("text", metavar="TEXT", nargs="*", help=words)
    words = "only workers with this tag; may be repeated: all of them"
    parser.add_argument("--match-all", metavar="TAG", action="append", default=[], help=words)
    words = "only workers with this tag; may be repeated: at least one of them"
    parser.add_argument("--match-some", metavar="TAG", action="append", default=[], help=words)
    words = "this worker, instead of tags; may be repeated"
    parser.add_argument("--worker", metavar="NAME", action="append", default=[], help=words)
    parser.add_argument("--timeout", metavar="TIME", type=duration, help="the time each of them has: 90s, 5m")
    _team(parser)
    _journal(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    _plain(parser)


def add_play(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a script as JSON, for example examples/cascade.json")
    parser.add_argument(
        "--run", metavar="NAME", help="what to call the run (default: the file's name and a random part)"
    )
    _reuse(parser)
    _carrying(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


# --- what several verbs take


def _request(parser: ArgumentParser) -> None:
    words = "what is to be done, in words; - for standard input"
    parser.add_argument("request", metavar="REQUEST", nargs="*", help=words)
    words = "the team's own example number N (default 1)"
    parser.add_argument("--example", metavar="N", type=int, nargs="?", const=1, help=words)


def _team(parser: ArgumentParser) -> None:
    words = "a team file or its folder (default: the nearest team.yaml upwards, else the bundled team)"
    parser.add_argument("--team", metavar="PATH", help=words)
    parser.add_argument(
        "--model", metavar="NAME", help=f"the model of everybody, for example openai:gpt-5-mini or {BUILT_IN}"
    )
    words = "what a model costs that no table has: dollars per million tokens, in and out, like 0.25/2"
    parser.add_argument("--price", metavar="IN/OUT", type=token_price, help=words)
    words = f"where the team's memory is kept (default: as the team says, else {USUAL_MEMORY})"
    parser.add_argument("--memory", metavar="PATH", type=Path, help=words)


def _reuse(parser: ArgumentParser) -> None:
    words = "take over every result of this run whose task and inputs are unchanged; as for resume, also  last"
    parser.add_argument("--reuse", metavar="RUN", help=words)


def _background(parser: ArgumentParser) -> None:
    words = "leave what background workers have to do for the next time"
    parser.add_argument("--no-background", action="store_true", help=words)


def _carrying(parser: ArgumentParser) -> None:
    _journal(parser)
    words = "what a written entry survives: the loss of power, or only the end of the process (default machine)"
    parser.add_argument("--durability", choices=("machine", "process"), default="machine", help=words)
    parser.add_argument("--jsonl", action="store_true", help="the entries as JSON lines on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing but the answer, and what is wrong")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="one line an event, also where there is a live view, and also for what models are asked and say",
    )
    parser.add_argument("--no-input", action="store_true", help="never ask at the terminal")
    _plain(parser)


def _journal(parser: ArgumentParser, *, nested: bool = False) -> None:
    words = f"the SQLite file (default {USUAL_JOURNAL})"
    usual = SUPPRESS if nested else Path(USUAL_JOURNAL)  # what was said before the nested verb must stand
    parser.add_argument("--journal", metavar="PATH", type=Path, default=usual, help=words)


def _plain(parser: ArgumentParser) -> None:
    parser.add_argument("--no-color", action="store_true", help="no colours")
