"""Shows the code of an algorithm, and runs it to count its steps.

The algorithms are in algorithms.py, beside this file. What is known about them besides is in the notes.
"""

import random
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from inspect import getsource
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

from msgspec import Meta

from chargehand.models.artifacts import Figure

HERE = Path(__file__).parent
Algorithm = Literal["linear search", "binary search", "bubble sort", "merge sort", "trial division", "sieve"]
Size = Annotated[int, Meta(ge=1, le=2_000)]


def show_code(algorithm: Algorithm) -> str:
    """Show the Python source code of an algorithm, such as the sieve of Eratosthenes, as it is run and tested here.

    Args:
        algorithm: the name of the algorithm

    """
    function = getattr(_algorithms(), algorithm.replace(" ", "_"))
    return f"```python\n# algorithms.py\n{getsource(function)}```"


def count_steps(algorithm: Algorithm, size: Size = 100) -> Figure:
    """Run an algorithm on an input of some size and count the steps it takes.

    Args:
        algorithm: the name of the algorithm
        size: how many items, or the largest number that is looked at

    """
    steps = counted(algorithm, size)
    label = f"steps of {algorithm} with {size:,} items"
    return Figure(str(steps), label=label, unit="steps", source="algorithms.py, run here")


def counted(algorithm: str, size: int) -> int:
    """The same input for the same size, every time: numbers in a shuffled order, and the last one is looked for."""
    made = _algorithms()
    steps = 0

    def tick() -> None:
        nonlocal steps
        steps += 1

    ordered = list(range(size))
    shuffled = random.Random(size).sample(ordered, size)  # noqa: S311 - a test input
    runs: dict[str, Callable[[], object]] = {
        "linear search": lambda: made.linear_search(ordered, size - 1, tick),
        "binary search": lambda: made.binary_search(ordered, size - 1, tick),
        "bubble sort": lambda: made.bubble_sort(shuffled, tick),
        "merge sort": lambda: made.merge_sort(shuffled, tick),
        "trial division": lambda: made.trial_division(size, tick),
        "sieve": lambda: made.sieve(size, tick),
    }
    runs[algorithm]()
    return steps


def _algorithms() -> ModuleType:
    """The module beside this one, wherever the team lies."""
    spec = spec_from_file_location("research_algorithms", HERE / "algorithms.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
