"""A tool that searches a folder of documents (.md, .txt) and returns passages with where they stand.

They are ranked by words and, where a small model is on this machine, by meaning as well.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from chargehand.errors import Invalid
from chargehand.memory.chunking import paragraphs, sections
from chargehand.models.artifacts import FoundPassage, Passages
from chargehand.models.embeddings import Embedder, open_embedder
from chargehand.text.words import BM25, printable_line, quoted_phrases, stems
from chargehand.tools.tool import Tool, ToolFailed, tool

LONGEST = 800


class DocumentPiece(Struct, frozen=True):
    """`heading` is what stands over the text; its words count as well."""

    source: str
    text: str
    heading: str = ""


def pieces(name: str, text: str) -> Iterator[DocumentPiece]:
    """A document in pieces that end with a paragraph (else a sentence, else a word), none over a heading."""
    for section in sections(text):
        heading = section.heading
        source = f"{name}#{_anchor(heading)}" if _anchor(heading) else name
        text = ""
        for part in paragraphs(section.body, LONGEST):
            if text and len(text) + 2 + len(part) > LONGEST:
                yield DocumentPiece(source=source, text=text, heading=heading)
                text = ""
            text = f"{text}\n\n{part}" if text else part
        if text:
            yield DocumentPiece(source=source, text=text, heading=heading)


class Ranking:
    """An index of pieces, made once."""

    def __init__(self, pieces: Sequence[DocumentPiece]) -> None:
        self._pieces = tuple(pieces)
        self._folded = [" ".join(f"{piece.heading}\n{piece.text}".casefold().split()) for piece in pieces]
        self._index = BM25([stems(f"{piece.heading} {piece.text}") for piece in pieces])

    def best(self, query: str, most: int) -> list[tuple[float, DocumentPiece]]:
        """The pieces that fit best, each with its score; pieces without a quoted phrase are out."""
        scores = self.scores(query)
        fits = sorted(scores, key=lambda number: (-scores[number], number))
        return [(round(scores[number], 3), self._pieces[number]) for number in fits[:most]]

    def scores(self, query: str) -> dict[int, float]:
        """The score of each piece that has a word of the query, by its number; quoted phrases must all be in it."""
        scores = self._index.scores(stems(query))
        if not scores and _phrases(query):  # phrases of nothing but common words
            scores = dict.fromkeys(range(len(self._pieces)), 1.0)
        return {number: scores[number] for number in self.with_phrases(scores, query)}

    def with_phrases(self, numbers: Iterable[int], query: str) -> list[int]:
        """Those of the pieces that hold every quoted phrase of the query."""
        phrases = _phrases(query)
        return [number for number in numbers if all(phrase in self._folded[number] for phrase in phrases)]

    def piece(self, number: int) -> DocumentPiece:
        return self._pieces[number]

    def alike(self, query: str) -> list[str]:
        """Words that do occur and look like those asked for; else the ones that occur most."""
        common = self._index.terms
        words = sorted(common)
        near = [match for word in stems(query) for match in get_close_matches(word, words, 2, 0.7)]
        return list(dict.fromkeys(near))[:8] or common[:8]


def _phrases(query: str) -> list[str]:
    return [" ".join(phrase.casefold().split()) for phrase in quoted_phrases(query)]


def _anchor(heading: str) -> str:
    return "-".join(re.sub(r"[^\w\s-]", "", heading.casefold()).split())


FLOOR = 0.33
"""How alike (a cosine) a passage must be that shares no word with the question; the docs say what was measured."""
MOST_CHARACTERS = 200_000
"""Of all passages together: 20 s of work for one core. Beyond that words alone decide; archives keep their vectors."""
_LEAST = 0.001  # a score of nothing would be left out of the result


class SemanticIndex:
    """The vectors of some pieces, made by the first search. Any thread may ask."""

    def __init__(self, pieces: Sequence[DocumentPiece], models: Path) -> None:
        self._texts = [f"{piece.heading}\n{piece.text}".strip() for piece in pieces]
        self._models = models
        self._lock = threading.Lock()
        self._embedder: Embedder | None = None
        self._vectors: list[tuple[int, bytes]] = []
        self._is_too_long = sum(map(len, self._texts)) > MOST_CHARACTERS

    def likeness(self, query: str) -> dict[int, float] | None:
        """How alike each piece is, by its number; None where meanings cannot be compared."""
        if self._is_too_long or not query.strip():
            return None
        try:
            with self._lock:  # one search makes the vectors, the others wait for them
                self._embedder = self._embedder or open_embedder(self._models)
                if self._embedder is None:
                    return None
                if not self._vectors:
                    self._vectors = list(enumerate(self._embedder.embed(self._texts)))
            from chargehand.memory.vectors import likeness  # noqa: PLC0415 - numpy is there if the model is

            return likeness(self._embedder.embed([query])[0], self._vectors)
        except Exception:  # noqa: BLE001 - a foreign library and its files; words need neither
            return None


def best_both_ways(
    ranking: Ranking, meanings: SemanticIndex, query: str, most: int
) -> list[tuple[float, DocumentPiece]]:
    """The pieces that fit best by words and by meaning; one that shares no word must be alike enough."""
    alike = meanings.likeness(query)
    if alike is None:
        return ranking.best(query, most)
    scores = ranking.scores(query)
    far = [number for number, likeness in alike.items() if likeness >= FLOOR and number not in scores]
    near = ranking.with_phrases(far, query)
    top = max(scores.values(), default=1.0)
    ranked = {number: scores.get(number, 0.0) / top + alike[number] for number in (*scores, *near)}
    best = sorted(ranked, key=lambda number: (-ranked[number], number))[:most]
    return [(max(_LEAST, round(ranked[number], 3)), ranking.piece(number)) for number in best]


MOST_FILES = 2_000
MOST_BYTES = 32 * 1024 * 1024
_KINDS = (".md", ".markdown", ".txt")
_NAMED = 12
_LONGEST_NAME = 60  # characters of the name of a file in the description


def documents(folder: Path | str, name: str = "search", *, models: Path | str | None = None) -> Tool:
    """A tool over the documents that lie in the folder now; Invalid when there are none, or too many.

    They are searched by words and, where the small model of the extra `local` lies in the folder `models`, by meaning
    as well. It is loaded by the first search, in that search's thread.
    """
    place = Path(folder)
    files = _files(place)
    names = [file.relative_to(place).as_posix() for file in files]
    pieces = _pieces(files, names)
    ranking = Ranking(pieces)
    meanings = None if models is None else SemanticIndex(pieces, Path(models))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    # a model reads a description as instructions, so a name is cut: an outsider may have given it
    shown = [printable_line(name, _LONGEST_NAME) for name in names[:_NAMED]]
    listed = ", ".join(shown) + more

    def search(
        query: Annotated[str, 'What to look for; "words in quotes" must occur as they are'],
        most: Annotated[int, Meta(ge=1, le=20, description="How many passages at most")] = 5,
    ) -> Passages:
        hits = ranking.best(query, most) if meanings is None else best_both_ways(ranking, meanings, query, most)
        if not hits:
            words = ", ".join(ranking.alike(query))
            raise ToolFailed(f"nothing found for {query[:200]!r} in {listed}. Words that do occur: {words or 'none'}")
        return Passages(query, tuple(FoundPassage(piece.source, piece.text, score) for score, piece in hits))

    description = f"Search the documents in {place.resolve().name} for passages, best first: {listed}."
    summary = f"searches documents: {', '.join(str(Path(name).with_suffix('')) for name in shown)}{more}"
    return tool(name=name, description=description, stable=True, summary=summary)(search)  # read once, above


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        raise Invalid(f"there is no folder {place}; name one with .md or .txt files")
    root = place.resolve()
    files = sorted(
        file
        for file in place.rglob("*")
        if file.suffix.lower() in _KINDS and file.is_file() and file.resolve().is_relative_to(root)
    )
    if not files:
        raise Invalid(f"there are no .md or .txt files in {place}; name a folder that has some")
    size = sum(file.stat().st_size for file in files)
    if len(files) > MOST_FILES or size > MOST_BYTES:
        raise Invalid(
            f"{place} holds {len(files):,} documents of {size:,} bytes; {MOST_FILES:,} and {MOST_BYTES:,} is the most"
        )
    return files


def _pieces(files: list[Path], names: list[str]) -> list[DocumentPiece]:
    parts: list[DocumentPiece] = []
    for file, name in zip(files, names, strict=True):
        try:
            text = file.read_bytes().decode("utf-8-sig", errors="replace")
        except OSError as error:
            raise Invalid(f"cannot read {file}: {error.strerror or error}") from error
        parts.extend(pieces(name, text))
    return parts
