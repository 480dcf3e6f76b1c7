"""Who a piece of text comes from. The engine writes it down; no model is asked."""

from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["person", "team", "supervisor", "worker"]


class Origin(Struct, frozen=True, omit_defaults=True):
    """`team` is what a team's declaration says. `key` is the same however often a call is repeated after a crash.

    `source` is where the text itself was found (a file, an address). `tainted` says that whoever wrote it had seen
    text from outside: what a tool returned, what another worker wrote, a tainted block or passage. `mark` tells
    runs of the same name apart, which are in journals of their own.
    """

    by: Kind = "person"
    name: str = ""
    run: str = ""
    task: str = ""
    attempt: int = 0
    key: str = ""
    source: str = ""
    tainted: bool = False
    mark: str = ""


PERSON = Origin()
TEAM = Origin("team")
