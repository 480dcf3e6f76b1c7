"""Pieces of a Markdown page. What stands on a page is not its business."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Made from the code by `make reference`: change the code, not this page. -->"


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", NOTICE, *(part for part in parts if part)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Nothing where there are no rows. A bar in a cell would end it."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]) if lines else ""


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """As a docstring is read: its lines joined, a capital first."""
    said = " ".join(text.split())
    return said[:1].upper() + said[1:]
