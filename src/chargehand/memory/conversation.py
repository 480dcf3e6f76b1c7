"""What an agent said and was told, across runs."""

from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.engine.policy import Instant

Role: TypeAlias = Literal["user", "assistant", "summary"]


class Turn(Struct, frozen=True, omit_defaults=True):
    """One message. `number` is given by the store and only grows. A summary stands for all up to `upto`.

    `old` turns are behind a summary: they are found by searching, but no longer shown.
    """

    role: Role
    text: str
    number: int = 0
    when: Instant = 0.0
    run: str = ""
    task: str = ""
    tainted: bool = False
    upto: int = 0
    old: bool = False
