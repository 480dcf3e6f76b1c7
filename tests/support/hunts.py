"""Two sizes for hunts: tests that try many seeds, examples, sizes or hostile inputs."""

from typing import TypeVar

_Size = TypeVar("_Size")
_full_size = False


def hunt_size(*, quick: _Size, thorough: _Size) -> _Size:
    """Return `quick` in `make test`, `thorough` in `make thorough`. It may be called where a module is imported.

    A quick hunt takes at most 3 CPU seconds.
    """
    return thorough if _full_size else quick


def use_full_size(full: bool) -> None:
    """Choose the size for this process, before tests are imported."""
    global _full_size  # noqa: PLW0603 - `parametrize` needs sizes before there is a fixture
    _full_size = full
