"""The memory of a team as people declare it. Where it is opened is the runtime's business."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import field

from chargehand.engine.keywords import Declared
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Catalog


class Memory(Declared, frozen=True):
    """`store` is a file, an open catalog, or (left out) this process alone.

    Blocks and archives are made when they are not there yet. What a team wrote stays; a block that nobody has changed
    follows its declaration. `space` keeps several teams in one file apart; left out, it is the team's name. `sources`
    are folders or files, by the name of an archive, whose texts are put into it when it is opened
    (`memory.sources.read_sources`): what it has already is not put in again.
    """

    store: Path | str | Catalog | None = None
    blocks: Sequence[Block] = ()
    archives: Sequence[Archive] = ()
    space: str = ""
    sources: Mapping[str, Path] = field(default_factory=dict[str, Path])
