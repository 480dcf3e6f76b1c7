"""`chargehand feedback`: say how a routed run went, so that later requests like it go to whoever does them well."""

import asyncio
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace

import msgspec

from chargehand.cli.arguments import add_shared
from chargehand.cli.console import Console, clean, clean_json

_WORDS = {"good": 1.0, "bad": 0.0}


def add_feedback(parser: ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  chargehand feedback desk-1f2e3d good\n"
        "  chargehand feedback desk-1f2e3d bad --worker billing    who ought to have it\n"
        "  chargehand feedback desk-1f2e3d 0.7\n\n" + (parser.epilog or "")
    )
    parser.add_argument("name", metavar="RUN", help="a run that was led by a route, as  chargehand runs  names it")
    parser.add_argument("good", metavar="good|bad|0..1", type=score, help="how well it went")
    parser.add_argument("--worker", metavar="NAME", default="", help="who should have done it")
    add_shared(parser, "--journal", "--json", "--no-color")


def score(text: str) -> float:
    """From 0 to 1, as a word or a number."""
    said = text.strip().lower()
    try:
        found = _WORDS[said] if said in _WORDS else float(said)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:  # also what is no number
        raise ArgumentTypeError(f"{text!r} is no score; say good, bad or a number from 0 to 1")
    return found


def feedback(options: Namespace) -> int:
    """The journal is not taken over: another process may be driving runs of it."""
    from chargehand.runtime.route_feedback import Judgement, record_feedback  # noqa: PLC0415 - --help must not wait
    from chargehand.stores.route_examples import open_journal_file  # noqa: PLC0415 - as above

    async def record() -> Judgement:
        async with open_journal_file(options.journal) as journal:
            return await record_feedback(journal, options.name, options.good, options.worker)

    judgement = asyncio.run(record())
    console = Console(sys.stdout)
    if options.json:
        console.line(clean_json(msgspec.json.encode(judgement).decode()))
        return 0
    for word, workers in (("confirmed", judgement.confirmed), ("refuted", judgement.refuted)):
        if workers:
            console.line(f"{word} for run {clean(options.name)}: {clean(', '.join(workers))}")
    console.line("all confirmed examples: chargehand examples, with the --team of the run", "dim")
    return 0
