"""What one look at the surroundings comes to. Who looks at what is the business of the modules beside it."""

from typing import Literal, TypeAlias

from msgspec import Struct

State: TypeAlias = Literal["good", "missing", "bad"]


class Line(Struct, frozen=True):
    """One thing looked at. `missing` is something that some teams need and others do not, or that is good to know."""

    what: str
    state: State
    said: str
    todo: str = ""
