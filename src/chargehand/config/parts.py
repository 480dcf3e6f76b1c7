"""What a team file comes to, part by part, and everything that is wrong with it. The parts are made in `assemble`."""

from collections.abc import Callable
from pathlib import Path as File
from typing import TypeVar

from msgspec import Struct, field

from chargehand.agents.factory import Factory
from chargehand.agents.worker import Worker
from chargehand.config import folder
from chargehand.config.findings import Finding, Path
from chargehand.config.shapes import TeamShape
from chargehand.config.source import Source
from chargehand.errors import Invalid
from chargehand.memory.blocks import Access, Grant
from chargehand.memory.declared import Memory
from chargehand.terms.policy import Limits
from chargehand.tools.tool import Tool

_T = TypeVar("_T")


class Own(Struct):
    """What one worker may do with blocks and archives, where that is not what everybody may."""

    blocks: dict[str, Access | Grant] = field(default_factory=dict[str, "Access | Grant"])
    archives: dict[str, Access] = field(default_factory=dict[str, Access])


class Parts(Struct):
    """Tools by entry, workers, the factory, the memory, and all there is to say about them.

    `model` stands in for every model, `store` for the file of a memory that names none, `elsewhere` for any.
    `above` are the files this one is inside of, the outermost first, which allowed so many levels; `read` are all that
    are inside the outermost. `inside` are the teams among the workers.
    """

    source: Source
    team: TeamShape
    model: str = ""
    store: File | str | None = None
    elsewhere: File | str | None = None
    above: tuple[File, ...] = ()
    allowed: int = 0
    read: list[File] = field(default_factory=list[File])
    inside: "dict[str, Parts]" = field(default_factory=dict[str, "Parts"])
    tools: dict[str, tuple[Tool, ...]] = field(default_factory=dict[str, "tuple[Tool, ...]"])
    memory: Memory | None = None
    own: dict[str, Own] = field(default_factory=dict[str, Own])
    workers: list[Worker] = field(default_factory=list[Worker])
    factory: Factory | None = None
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def nesting(self) -> int:
        """How deep teams may be inside each other, from the outermost on: nobody inside may widen it."""
        own = self.team.supervisor.plan.max_nesting
        return min(self.allowed, own or self.allowed) if self.above else own or Limits().nesting

    def say(self, path: Path, message: str, *, grave: bool = True) -> None:
        self.findings.append(self.source.finding(path, message, grave=grave))

    def made(self, path: Path, make: Callable[[], _T], otherwise: _T) -> _T:
        """What `make` makes; where it cannot, that is said of this place."""
        try:
            return make()
        except Invalid as error:
            self.say(path, str(error))
            return otherwise

    def prose(self, path: Path, text: str) -> str:
        return self.made(path, lambda: folder.prose(self.source.folder, text), "")

    def handle(self, written: str) -> str:
        """A model handle, or what stands in for every one of them."""
        return self.model or written
