"""Archives and passages: large searchable stores, shared by many agents. How they are kept and searched is not here."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

from chargehand.engine.declared import Declared
from chargehand.engine.policy import Instant
from chargehand.errors import Invalid
from chargehand.memory.blocks import PERSON, Access, Origin
from chargehand.memory.edits import check_text

TagMatch: TypeAlias = Literal["any", "all"]


class Archive(Declared, frozen=True):
    """A store of passages.

    `embedding` is a handle (`local:minilm`, `openai:text-embedding-3-small`), `words` for none, or `auto`: the local
    model where it is there, else words. `width` is what its vectors have, once it has any: vectors of two models are
    not mixed. `share` is what every member of a team may do: read is searching, append and write are adding too.
    """

    name: str
    description: str = ""
    embedding: str = "auto"
    share: Access = "write"
    tags: tuple[str, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    id: str = ""
    width: int = 0
    created: Instant = 0.0
    updated: Instant = 0.0


class Passage(Struct, frozen=True):
    """`document` is shared by the parts of one long text, which `part` counts from 0."""

    text: str
    tags: tuple[str, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    origin: Origin = PERSON
    created: Instant = 0.0
    id: str = ""
    archive: str = ""
    document: str = ""
    part: int = 0


def check_passages(passages: Sequence[Passage]) -> None:
    """Invalid, at the first passage that cannot be kept."""
    for at, passage in enumerate(passages):
        if not passage.text.strip():
            raise Invalid(f"passage {at} has no text; leave it out")
        try:
            check_text("".join((passage.text, passage.id, passage.document, *passage.tags, *passage.origin.texts)))
        except Invalid as error:
            raise Invalid(f"passage {at}: {error}") from error
        if not all(tag.strip() for tag in passage.tags):
            raise Invalid(f"passage {at} has an empty tag; leave it out")
        if not -(1 << 63) <= passage.part < 1 << 63:
            raise Invalid(f"passage {at} is part {passage.part}; count parts from 0")


class Filter(Struct, frozen=True, omit_defaults=True):
    """What a passage must be. Times are inclusive; empty means: no matter."""

    tags: tuple[str, ...] = ()
    tag_match: TagMatch = "any"
    start: Instant | None = None
    end: Instant | None = None
    source: str = ""
    run: str = ""
    task: str = ""
    worker: str = ""

    def __bool__(self) -> bool:
        return self != EVERYTHING


EVERYTHING = Filter()


class Hit(Struct, frozen=True):
    """A passage found. `meaning` is the likeness of vectors (None: not compared), `words` the share of BM25 in `score`.

    `why` says it for people: which words matched, how alike, whether only words were compared.
    """

    passage: Passage
    score: float
    meaning: float | None = None
    words: float = 0.0
    why: str = ""


class Inserted(Struct, frozen=True):
    """`new` is False for a text the archive had already: it is not kept twice, its tags are joined."""

    id: str
    new: bool


class Embedding(Protocol):
    """`handle` names the model. Vectors have length one, as little-endian 32-bit floats: `width` times four bytes."""

    @property
    def handle(self) -> str: ...

    @property
    def width(self) -> int: ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text. Raises StoreUnavailable when the model cannot be reached: nothing is lost by it."""
        ...

    async def close(self) -> None: ...
