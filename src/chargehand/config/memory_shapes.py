"""The shapes of a team file's `memory` section: blocks and archives. What becomes of them is decided in `memory`."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from chargehand.config.scalars import Size

Text: TypeAlias = str
Prose: TypeAlias = str  # inline, or `file:` and a path beside the team file
Names: TypeAlias = tuple[Text, ...]
Share: TypeAlias = Literal["all", "none", "read", "append", "write"]


class BlockShape(Struct, frozen=True, forbid_unknown_fields=True):
    """`read`, `append`, `write` and `none` list workers with a grant of their own; see `memory` for `tainted`."""

    value: Prose = ""
    description: Text = ""
    limit: Size | None = None
    trusted: bool = False
    read_only: bool = False
    tags: Names = ()
    share: Share = "read"
    read: Names = ()
    append: Names = ()
    write: Names = ()
    none: Names = ()
    tainted: Names = ()


class ArchiveShape(Struct, frozen=True, forbid_unknown_fields=True):
    description: Text = ""
    embed: Text = "auto"
    add: Text = ""
    tags: Names = ()
    share: Share = "write"
    read: Names = ()
    write: Names = ()
    none: Names = ()


class MemoryShape(Struct, frozen=True, forbid_unknown_fields=True):
    file: Text = ""
    blocks: dict[str, BlockShape | Text] = field(default_factory=dict[str, BlockShape | Text])
    archives: dict[str, ArchiveShape | Text] = field(default_factory=dict[str, ArchiveShape | Text])
