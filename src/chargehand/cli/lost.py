"""What is true once the output of a verb could not be written: what is kept of it, and what to do next.

That it could not be written is found out by `console`, and said by `command`.
"""

import shlex
from argparse import Namespace
from collections.abc import Mapping
from typing import cast

from chargehand.cli import USUAL_JOURNAL

_RUNS = ("run", "play", "resume", "message")
_CHANGES = {
    "memory": ("set", "restore", "add", "import", "embed"),
    "models": ("pull", "rm"),
    "tokens": ("revoke",),
    "runs": ("cancel", "prune", "backup", "restore"),
}  # what is done before anything is printed
_DONE = "it was done all the same; only its output is missing"
_AGAIN = "nothing was changed; make room, or send the output elsewhere, and do it again"
_TOKEN = "a token was made that nobody saw: chargehand tokens lists it; revoke it, and create another"  # noqa: S105 - words
_SERVED = "nothing is served; if a first token was made, nobody saw it: chargehand tokens create makes another"
_SAVED = "the case was saved all the same"
_EVAL = "eval keeps no runs"


def kept(options: Namespace) -> str:
    """What became of what the command was to do, in words."""
    given = cast("Mapping[str, object]", vars(options))
    verb = str(given["verb"])
    if verb in _RUNS or (verb == "replay" and given["source"] is not None and not given["dry"]):
        return f"runs are kept: chargehand runs{journal_words(given)}"
    if verb == "eval":
        return _of_eval(options)
    if verb == "serve":
        return _SERVED
    if verb == "tokens" and given["what"] == "create":
        return _TOKEN
    return _DONE if _changed(verb, given) else _AGAIN


def journal_words(given: Mapping[str, object]) -> str:
    """The words that name the same journal again; none for the usual one."""
    journal = str(given.get("journal", USUAL_JOURNAL))
    return "" if journal == USUAL_JOURNAL else f" --journal {shlex.quote(journal)}"


def _of_eval(options: Namespace) -> str:
    first = options.what[0] if options.what else ""
    if first == "save" and options.to is not None:
        return _SAVED
    if first == "audit":
        return _AGAIN
    written = [
        str(one) for one in (options.output, options.markdown, options.junit) if one is not None and one.is_file()
    ]
    if written:
        return f"{_EVAL}, but the report is in {written[0]}"
    return f"{_EVAL}: write the report into a file with -o FILE"


def _changed(verb: str, given: Mapping[str, object]) -> bool:
    if verb == "init":
        return not given["list"]
    act = given.get("act") or given.get("what")
    return verb == "feedback" or bool(given.get("forget")) or act in _CHANGES.get(verb, ())
