"""Texts are looked through on the event loop only where they are short; longer ones in a thread, so that others run."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

AT_ONCE = 4_000
"""Characters that are looked through without letting others run: about 0.1 s at worst."""
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


async def look_through(
    characters: int, look: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """What `look` returns for texts of so many characters together."""
    if characters <= AT_ONCE:
        return look(*args, **kwargs)
    return await asyncio.to_thread(look, *args, **kwargs)
