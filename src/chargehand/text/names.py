"""Names that are not known: the nearest ones that are, and the end of the sentence that says so."""

from collections.abc import Iterable
from difflib import get_close_matches

_SIMILARITY = 0.5
_MAX_LENGTH = 100  # comparing takes time that grows with the square of it
_MAX_LISTED = 16


def nearest_names(name: str, names: Iterable[str], *, count: int = 3, similarity: float = _SIMILARITY) -> list[str]:
    """The names that look most like one, the nearest first; `similarity` is how alike they must be, from 0 to 1."""
    return get_close_matches(name[:_MAX_LENGTH], list(names), count, similarity)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """The end of a sentence on a name that is not known: which one may be meant; else `otherwise`, or all there are."""
    candidates = list(names)
    near = nearest_names(name, candidates)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return otherwise or f"there are {listed(candidates) or 'none'}"


def listed(names: Iterable[str], count: int = _MAX_LISTED) -> str:
    """Names in a row, cut where there are too many of them."""
    candidates = list(names)
    return ", ".join(candidates[:count]) + (f" and {len(candidates) - count} more" if len(candidates) > count else "")
