"""What the figures of a result rest on: facts that were counted, never a grade."""

from typing import Literal

from msgspec import Struct

Kind = Literal["number", "date", "url", "email", "quotation", "name"]
Origin = Literal["tool", "input", "words", ""]
"""A tool returned it; it was given (request, task, memory); only a worker says it; it stands in nothing of these."""
Conflict = Literal["", "row", "unit", "label"]
"""It stands in the sources, but in another row, in another unit, or of something else."""


class Untraced(Struct, frozen=True, omit_defaults=True, gc=False):
    """Something in a result that no tool returned and nobody gave its worker.

    `origin` is `words` where only workers say it: its own worker has no tools, or was told so by another. Empty:
    the worker has tools, and none of them returned it.
    """

    kind: Kind
    text: str
    origin: Origin = ""
    conflict: Conflict = ""
    sentence: str = ""


class Tracing(Struct, frozen=True, omit_defaults=True, gc=False):
    """How many figures of a result were returned by `tools` or were `given`, and what is left.

    `sent_back`: it was returned to its worker once because of what could not be traced. `unread`: there was more
    material than is looked at, so nothing was traced.
    """

    tools: int = 0
    given: int = 0
    untraced: tuple[Untraced, ...] = ()
    sent_back: bool = False
    unread: bool = False
