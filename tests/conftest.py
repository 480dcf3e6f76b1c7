"""Lets a test be an `async def`: it runs on a loop of its own. Keeps all the collected tests out of the garbage."""

import asyncio
import gc
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = inspect.signature(test).parameters
    asyncio.run(test(**{name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}))
    return True


def pytest_collection_finish() -> None:
    """What stays to the end need not be looked through by every collection: that took half a second each."""
    gc.collect()
    gc.freeze()
