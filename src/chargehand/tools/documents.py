"""A tool that searches a folder of documents (.md, .txt) and returns passages with where they stand."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from chargehand.errors import Invalid
from chargehand.models.exhibits import Passage, Passages
from chargehand.tools.meanings import Meanings, best_both_ways
from chargehand.tools.passages import Piece, Ranking, pieces
from chargehand.tools.tool import Tool, ToolFailed, tool

MOST_FILES = 2_000
MOST_BYTES = 32 * 1024 * 1024
_KINDS = (".md", ".markdown", ".txt")
_NAMED = 12


def documents(folder: Path | str, name: str = "search", *, models: Path | str | None = None) -> Tool:
    """A tool over the documents that lie in the folder now; Invalid when there are none, or too many.

    They are searched by words and, where the small model of the extra `local` lies in the folder `models`, by meaning
    as well. It is loaded by the first search, in that search's thread.
    """
    place = Path(folder)
    files = _files(place)
    names = [file.relative_to(place).as_posix() for file in files]
    kept = _pieces(files, names)
    ranking = Ranking(kept)
    meanings = None if models is None else Meanings(kept, Path(models))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listed = ", ".join(names[:_NAMED]) + more

    def search(
        query: Annotated[str, 'What to look for; "words in quotes" must occur as they are'],
        most: Annotated[int, Meta(ge=1, le=20, description="How many passages at most")] = 5,
    ) -> Passages:
        found = ranking.best(query, most) if meanings is None else best_both_ways(ranking, meanings, query, most)
        if not found:
            words = ", ".join(ranking.alike(query))
            raise ToolFailed(f"nothing found for {query[:200]!r} in {listed}. Words that do occur: {words or 'none'}")
        return Passages(query, tuple(Passage(piece.source, piece.text, score) for score, piece in found))

    description = f"Search the documents in {place.resolve().name} for passages, best first: {listed}."
    summary = f"searches documents: {', '.join(str(Path(name).with_suffix('')) for name in names[:_NAMED])}{more}"
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


def _pieces(files: list[Path], names: list[str]) -> list[Piece]:
    found: list[Piece] = []
    for file, name in zip(files, names, strict=True):
        try:
            text = file.read_bytes().decode("utf-8-sig", errors="replace")
        except OSError as error:
            raise Invalid(f"cannot read {file}: {error.strerror or error}") from error
        found.extend(pieces(name, text))
    return found
