"""Lets a test be an `async def`: it runs on a loop of its own. Keeps all the collected tests out of the garbage.

An example of a property may take ten seconds: the usual 0.2 s is less than a busy machine may stand still for. Ctrl-C
means what it usually does, for us and for the commands we start, also in the background of a script, where it would be
ignored.
"""

import asyncio
import gc
import inspect
import signal

import pytest
from hypothesis import settings

settings.register_profile("busy machine", parent=settings(), deadline=10_000)
settings.load_profile("busy machine")


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
