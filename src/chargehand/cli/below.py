"""A Markdown page put inside another: its headings go deeper, its fenced text stays as it is."""

from collections.abc import Iterator

_BY, _DEEPEST = 3, 6


def below(page: str) -> Iterator[str]:
    """The lines of a page as part of one whose headings go down to the third level."""
    fence = ""
    for line in page.splitlines():
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if fence:
            fence = "" if line == fence else fence
        elif len(ticks) >= 3:
            fence = ticks
        elif line.startswith("#"):
            yield _deeper(line)
            continue
        yield line


def _deeper(line: str) -> str:
    signs = len(line) - len(line.lstrip("#"))
    return f"{'#' * min(_DEEPEST, signs + _BY)}{line[signs:]}"
