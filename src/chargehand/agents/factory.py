"""Workers made on the fly: from a task, a persona and some of the tools that are allowed for it."""

from collections.abc import Callable, Sequence

from chargehand.models.model import Model
from chargehand.terms.keywords import Declared
from chargehand.tools.tool import Tool


class Factory(Declared, frozen=True):
    """Makes a worker for a task nobody on the team is meant for.

    `tools` are all it may hand out, `most_tools` how many at once; `capacity` is how many such workers are at work at
    the same time.
    """

    tools: Sequence[Tool | Callable[..., object] | str] = ()
    name: str = "factory"
    description: str = "makes a worker for a task that nobody else is meant for"
    model: str | Model = ""
    most_tools: int = 4
    steps: int = 10
    capacity: int = 4
