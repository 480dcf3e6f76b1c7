"""`chargehand eval`: the options of the verb. `eval_commands` does the work, and is imported when it is called."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.arguments import add_shared

_EXAMPLES = """examples:
  chargehand eval            the datasets in evals/ beside the team file
  chargehand eval evals/routing.jsonl --gate accuracy=0.9
  chargehand eval -o now.json --baseline before.json --markdown report.md
  chargehand eval save shop-1f2e3d --to evals/golden.yaml
  chargehand eval audit      every run of the journal

"""


def add_eval(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES + (parser.epilog or "")
    words = "datasets (.jsonl, .yaml); or  save RUN,  or  audit [RUN ...]"
    parser.add_argument("what", metavar="FILE", nargs="*", help=words)
    words = "a team file or its folder (default: the nearest team.yaml upwards, else the bundled team)"
    parser.add_argument("--team", metavar="PATH", help=words)
    parser.add_argument("--model", metavar="NAME", help="the model of everybody on the team")
    words = "the model that judges rubrics; without one such cases are not tried"
    parser.add_argument("--judge", metavar="NAME", default="", help=words)
    words = "only cases of this kind: routing, plan, worker, run or verifier; may be repeated"
    parser.add_argument("--kind", metavar="KIND", action="append", default=[], help=words)
    words = "a measure and what it must reach, such as accuracy=0.9 or usd=0.01; may be repeated"
    parser.add_argument("--gate", metavar="NAME=VALUE", type=gate, action="append", default=[], help=words)
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="an earlier report to compare with")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the report there, as JSON")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the report there, as Markdown")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write the report there, as JUnit XML")
    words = "let tools be called that change something; without it a case that would call one has not passed"
    parser.add_argument("--act", action="store_true", help=words)
    words = "begin no further case once all together have cost so many dollars"
    parser.add_argument("--budget-usd", metavar="USD", type=float, help=words)
    words = "how many cases are tried in parallel (default 4)"
    parser.add_argument("--max-parallel", metavar="N", type=int, default=4, help=words)
    words = "for seeded mistakes and intervals (default 0)"
    parser.add_argument("--seed", metavar="N", type=int, default=0, help=words)
    parser.add_argument("--to", metavar="FILE", type=Path, help="with save: the dataset the case is added to")
    parser.add_argument("--name", metavar="NAME", default="", help="with save: what to call the case")
    words = f"with save and audit: the SQLite file (default {USUAL_JOURNAL})"
    parser.add_argument("--journal", metavar="PATH", type=Path, default=Path(USUAL_JOURNAL), help=words)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="the report as one JSON document")
    words = "a line of JSON for each result as soon as it is known, instead of the report"
    output.add_argument("--jsonl", action="store_true", help=words)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_shared(parser, "--no-color")


def gate(text: str) -> tuple[str, float]:
    """A measure and a number."""
    from chargehand.evals.gates import LESS_IS_BETTER  # noqa: PLC0415 - --help must not wait for it

    name, _, value = text.replace(">=", "=").replace("<=", "=").partition("=")
    name = name.strip()
    sign, bound = ("<=", "at most") if name.rpartition(".")[2] in LESS_IS_BETTER else (">=", "at least")
    if any(other in text and other != sign for other in ("<=", ">=")):
        raise ArgumentTypeError(f"{text!r} is no gate: {name} is held to {bound} so much; write {name}{sign}{value}")
    try:
        return name, float(value)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no gate; write it like accuracy=0.9") from None


def eval(options: Namespace) -> int:  # noqa: A001 - a verb's function has its name
    from chargehand.cli import eval_commands  # noqa: PLC0415 - --help must not wait for it

    subcommands = {"save": eval_commands.save_case, "audit": eval_commands.audit_journal}
    first: str = options.what[0] if options.what else ""
    if first in subcommands and not Path(first).exists():
        return subcommands[first](options, options.what[1:])
    return eval_commands.run_eval(options)
