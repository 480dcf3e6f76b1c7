"""The parsers of the command line, verb by verb, for the reference and its tests."""

from argparse import Action, ArgumentParser
from collections.abc import Iterator, Mapping
from typing import cast

from chargehand.cli.main import parser


def verbs_of(action: Action) -> Mapping[str, ArgumentParser]:
    """The verbs an action chooses between, each with its parser; none where it is no such action."""
    choices = action.choices
    return cast("Mapping[str, ArgumentParser]", choices) if isinstance(choices, Mapping) else {}


def every_parser(top: ArgumentParser | None = None, path: str = "") -> Iterator[tuple[str, ArgumentParser]]:
    """Every verb, and verb of a verb, with its parser; the program itself has an empty path."""
    top = parser() if top is None else top
    yield path, top
    for action in top._actions:
        for name, inner in verbs_of(action).items():
            yield from every_parser(inner, f"{path} {name}".strip())
