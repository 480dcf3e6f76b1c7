"""The verbs: what each is for, and the module it lives in. Modules are imported when their verb is called."""

import signal
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import cast

VERBS = {
    "run": "plan a request, carry it out and answer it",
    "plan": "plan a request, or check a plan, and say what it will take; nothing is done",
    "runs": "the runs of a journal: list, show, export, diff, cancel, prune, backup, restore",
    "watch": "look on while another process drives a run",
    "resume": "go on with a run after a stop, a crash or a question",
    "replay": "tell a run again, or do it again from one task on",
    "play": "play a script: a plan and what everybody does, without any model",
    "message": "ask workers directly, by tag or by name, and show what each replies",
    "feedback": "say how a routed run went, so that the team learns from it",
    "examples": "requests that were confirmed to be for a worker of a routed team",
    "eval": "try cases on a team and say how good it is; save cases, look into runs",
    "serve": "serve teams over HTTP: to letta-client, OpenAI clients, and an API of its own",
    "memory": "what a team remembers: blocks and archives",
    "init": "make a team of your own to start from",
    "check": "check a team file",
    "doctor": "say what works here, and what is missing",
    "models": "small models on this machine: list, pull, remove",
    "tokens": "who may call the server: create, list, revoke",
    "completion": "print the lines that make a shell complete commands",
    "fault-server": "serve every fault a model provider can have, for tests",
}
"""What each verb is for."""
_MODULES = {"fault-server": "models", "eval": "evaluate"}
"""The modules of verbs that cannot have one of their own name."""


def verb_function(verb: str) -> Callable[[Namespace], int]:
    """The function of a verb: it has the verb's name."""
    return cast("Callable[[Namespace], int]", getattr(_import_module(verb), verb.replace("-", "_")))


def add_options(verb: str, parser: ArgumentParser) -> None:
    """Add the arguments of a verb to its parser."""
    add = cast("Callable[[ArgumentParser], None]", getattr(_import_module(verb), f"add_{verb.replace('-', '_')}"))
    add(parser)


def _import_module(verb: str) -> ModuleType:
    return import_module(f"chargehand.cli.{_MODULES.get(verb, verb)}")


@contextmanager
def loading() -> Generator[None]:
    """While modules are loaded Ctrl-C ends the process at once: nothing is under way that could be put in order.

    An exception in the middle of that may crash what is written in C.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # it is ignored here, or handled elsewhere
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
