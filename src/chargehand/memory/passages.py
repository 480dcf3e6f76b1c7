"""What every catalog decides the same way about passages: which texts are the same, which vectors fit an archive."""

import hashlib
import unicodedata
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.errors import Corrupt, Invalid, Refused, StoreUnavailable, Unknown
from chargehand.memory.archives import Archive, Inserted, Passage
from chargehand.memory.blocks import Origin
from chargehand.memory.things import key_digest

WIDEST = 65_535  # dimensions of a vector

decode_metadata = msgspec.json.Decoder(dict[str, object]).decode
decode_passage_origin = msgspec.json.Decoder(Origin).decode


def passage_digest(text: str, origin: Origin) -> bytes:
    """Return what two passages share that are one.

    Their texts differ in nothing but white space and how accents are spelled, and they come from the same author and
    source, for the same user: who forgets what one said takes nothing from the other.
    """
    plain = " ".join(unicodedata.normalize("NFC", text).split())
    whose = [origin.by, origin.name, origin.source, origin.scope]
    return hashlib.blake2b("\0".join([*whose, plain]).encode(errors="replace"), digest_size=16).digest()


def worker_of(origin: Origin) -> str | None:
    """The worker that filters find a passage by."""
    return (origin.name or None) if origin.by == "worker" else None


@contextmanager
def read_as_passage(which: str) -> Generator[None]:
    """Raise Corrupt where what is kept of a passage cannot be decoded."""
    try:
        yield
    except msgspec.MsgspecError as error:
        raise Corrupt(f"passage {which} cannot be read; restore the memory from a backup ({error})") from error


def taken_passage(which: str) -> Refused:
    return Refused(f"there is another passage {which} already; leave the id out and one is given")


def unknown_cursor(after: str, archive: str) -> Unknown:
    return Unknown(f"there is no passage {after} in {archive} (any more); start again without `after`")


# --- inserting


class ExistingPassage(Struct, frozen=True):
    """What a store has of a passage already. `key` is the digest of that of its origin."""

    number: int
    id: str
    archive: str
    digest: bytes
    key: bytes | None
    part: int
    tags: Sequence[str]


class NewPassage(Struct, frozen=True):
    """A passage to be written, with its id and all its tags."""

    passage: Passage
    digest: bytes


class InsertBatch:
    """Passages to insert, compared with those that the archive already has and with each other."""

    def __init__(self, archive: str, existing: Iterable[ExistingPassage]) -> None:
        self._by_key: dict[tuple[bytes, int], str] = {}
        self._by_digest: dict[bytes, str] = {}
        self._existing: dict[str, ExistingPassage] = {}
        self._taken: set[str] = set()
        self._tags: dict[str, list[str]] = {}
        """Tags to be written, by id: all those of a new passage, and those that an existing one gets."""
        self._new: dict[str, NewPassage] = {}
        for passage in existing:
            self._taken.add(passage.id)
            if passage.archive == archive:
                self._existing[passage.id] = passage
                self._by_digest[passage.digest] = passage.id
                if passage.key is not None:
                    self._by_key[passage.key, passage.part] = passage.id

    def add(self, passage: Passage, digest: bytes) -> tuple[Inserted, bool]:
        """The outcome for a passage, and whether its key was used before: then nothing changes.

        A text that is known from the same origin takes only the tags.
        """
        key = (key_digest(passage.origin.key), passage.part) if passage.origin.key else None
        if key is not None and key in self._by_key:
            return Inserted(self._by_key[key], new=False), True
        if digest in self._by_digest:
            self._join(self._by_digest[digest], passage.tags)
            return Inserted(self._by_digest[digest], new=False), False
        if passage.id in self._taken:
            raise taken_passage(passage.id)
        which = passage.id or f"passage-{uuid4()}"
        self._taken.add(which)
        self._by_digest[digest] = which
        if key is not None:
            self._by_key[key] = which
        self._new[which] = NewPassage(passage, digest)
        self._join(which, passage.tags)
        return Inserted(which, new=True), False

    def _join(self, which: str, tags: Sequence[str]) -> None:
        existing_tags = self._existing[which].tags if which in self._existing else ()
        joined = self._tags.setdefault(which, [])
        joined += [tag for tag in dict.fromkeys(tags) if tag not in existing_tags and tag not in joined]

    @property
    def new(self) -> list[NewPassage]:
        return [
            NewPassage(replace(new.passage, id=which, tags=tuple(self._tags[which])), new.digest)
            for which, new in self._new.items()
        ]

    @property
    def joined(self) -> list[tuple[ExistingPassage, list[str]]]:
        """Existing passages, and the tags they get."""
        return [(self._existing[which], tags) for which, tags in self._tags.items() if tags and which in self._existing]


# --- vectors


class VectorModel(Struct, frozen=True):
    """The model that made the vectors of an archive."""

    handle: str
    width: int


def width_of(vectors: Sequence[bytes]) -> int:
    """How many dimensions all of them have; Invalid unless it is the same for all."""
    sizes = {len(vector) for vector in vectors}
    if len(sizes) != 1:
        raise Invalid(f"vectors of different lengths ({sorted(sizes)} bytes); embed all texts with one model")
    (size,) = sizes
    if not size or size % 4 or size // 4 > WIDEST:
        raise Invalid(f"a vector of {size} bytes; send 1 to {WIDEST} little-endian floats of four bytes each")
    return size // 4


def check_vectors(
    archive: Archive, passages: Sequence[Passage], vectors: Sequence[bytes], handle: str, present: VectorModel | None
) -> None:
    """Invalid unless there is a vector for each passage, of the model of the archive."""
    if len(vectors) != len(passages):
        raise Invalid(f"{len(vectors)} vectors for {len(passages)} passages; send one for each, or none at all")
    check_model(archive, VectorModel(handle, width_of(vectors)), present)


def check_model(archive: Archive, model: VectorModel, present: VectorModel | None) -> None:
    """Invalid if an archive takes no vectors of a model; `present` is that of the vectors it has."""
    name = archive.name
    if not model.handle:
        raise Invalid("vectors without the handle of the model that made them; say which one it was")
    if archive.embedding == "words":
        raise Invalid(f"the archive {name} is searched by words alone; insert without vectors, or change its embedding")
    if archive.embedding not in ("auto", model.handle):
        raise Invalid(
            f"the archive {name} takes vectors of {archive.embedding}, not of {model.handle}; embed with the former"
        )
    if present is not None and present != model:
        raise Invalid(
            f"the archive {name} has vectors of {present.handle} with {present.width} dimensions, and these are of "
            f"{model.handle} with {model.width}; embed with {present.handle}, or make another archive"
        )


def check_question_model(archive: Archive, handle: str, present: VectorModel | None) -> None:
    """Invalid if the vector of a question is of another model than those of an archive."""
    if handle and present is not None and present.handle != handle:
        raise Invalid(
            f"the archive {archive.name} has vectors of {present.handle}, and the question's is of {handle}; "
            f"embed it with {present.handle}, or search by words"
        )


def check_question_width(archive: str, vector: bytes, present: VectorModel | None) -> None:
    """Invalid if the vector of a question cannot be compared with those of an archive."""
    width = width_of([vector])
    if present is not None and width != present.width:
        raise Invalid(
            f"a vector of {width} dimensions cannot be compared with those of {archive}, which have "
            f"{present.width}; embed the question with {present.handle}"
        )


def unit_vectors(vectors: Sequence[bytes]) -> list[bytes]:
    """Each vector, made to have length one. Invalid for one that points nowhere."""
    try:
        from chargehand.memory.vectors import unit  # noqa: PLC0415 - numpy is needed for vectors only
    except ImportError as error:
        raise no_numpy() from error
    return unit(vectors)


def vector_signs(vectors: Sequence[bytes]) -> list[bytes]:
    """The signs of each vector: one bit a dimension."""
    try:
        from chargehand.memory.vectors import sign_bits  # noqa: PLC0415 - numpy is needed for vectors only
    except ImportError as error:
        raise no_numpy() from error
    return sign_bits(vectors)


def no_numpy() -> StoreUnavailable:
    return StoreUnavailable(
        "vectors are compared with numpy, which is not installed; run pip install 'chargehand[local]', or give the "
        "archive the embedding `words`"
    )
