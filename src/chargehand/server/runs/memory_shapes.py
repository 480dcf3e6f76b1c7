"""What this API tells of a team's memory, and what it is told."""

from typing import Annotated

from msgspec import Meta, Struct

from chargehand.server.runs.shapes import Asked, Count
from chargehand.terms.policy import Instant


class BlockShown(Struct, frozen=True):
    """`version` counts changes: an edit that names another than the present one is refused.

    `instruction` is what of it gives instructions: of a trusted block all, or what it held before it was tainted.
    """

    id: str
    label: str
    value: str
    description: str
    limit: int
    version: int
    read_only: bool
    trusted: bool
    tainted: bool
    instruction: str
    share: str
    tags: tuple[str, ...]
    updated: Instant


class BlockList(Struct, frozen=True):
    blocks: tuple[BlockShown, ...]


class ChangeShown(Struct, frozen=True):
    """`added` took the place of `removed`, from character `start` on."""

    version: int
    kind: str
    by: str
    name: str
    run: str
    task: str
    when: Instant
    start: int
    removed: str
    added: str
    tainted: bool


class History(Struct, frozen=True):
    """The latest first; `next` is what `before` must be for more, null after the last."""

    changes: tuple[ChangeShown, ...]
    next: int | None


class BlockEdit(Asked, frozen=True):
    """The whole new text, and the version it was made from."""

    value: Annotated[str, Meta(max_length=150_000)]
    version: Annotated[int, Meta(ge=1, le=2**53)]


class ArchiveShown(Struct, frozen=True):
    id: str
    name: str
    description: str
    embedding: str
    passages: int


class ArchiveList(Struct, frozen=True):
    archives: tuple[ArchiveShown, ...]


class Search(Asked, frozen=True):
    """`archives` are names or ids; left out, all of the team's."""

    query: Annotated[str, Meta(min_length=1, max_length=10_000, pattern=r"\S")]
    archives: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    tags: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class Found(Struct, frozen=True):
    id: str
    archive: str
    text: str
    score: float
    why: str
    tags: tuple[str, ...]
    source: str
    tainted: bool
    created: Instant


class FoundList(Struct, frozen=True):
    found: tuple[Found, ...]


class Past(Struct, frozen=True, forbid_unknown_fields=True):
    before: Count = 2**53
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
