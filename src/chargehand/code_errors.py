"""Exceptions of code that is not ours (tools, models, checks): a mistake in that code, an outage, or neither.

- A **mistake** is one of `MISTAKES`: exceptions that Python raises for code that is wrong. No waiting, no other
  arguments and no other words for the task would mend it.
- An **outage** is an `OSError` or a `TimeoutError`, or an exception raised from one. Waiting may help.
- Anything else (`ValueError` first of all) says something about the request, to the caller.
"""

import linecache
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import cast

from chargehand.engine.failure import CodeError, Failure, Frame

MISTAKES = (
    AttributeError,
    TypeError,
    NameError,
    KeyError,
    IndexError,
    ImportError,
    SyntaxError,
    AssertionError,
    NotImplementedError,
    RecursionError,
    StopIteration,
    StopAsyncIteration,
    SystemError,
)
"""What Python raises for mistakes in code. A tool that raises one has a bug; it does not judge its arguments."""

_ABOUT_THE_PATH = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
_OURS = f"{Path(__file__).parent}{os.sep}"
_MOST_FRAMES = 5
_LONGEST_MESSAGE = 500
_LONGEST_SOURCE = 200
_MOST_LINKS = 20


def code_error(error: BaseException, arguments: Mapping[str, object] | None = None) -> CodeError | None:
    """The mistake in code that an exception tells of; None where it tells of something else.

    A `KeyError` about one of the `arguments` is no mistake: the arguments ask for something that does not exist.
    """
    for leaf in _leaves(error):
        if isinstance(leaf, MISTAKES) and not _asked_for(leaf, arguments):
            raised = leaf if leaf.__traceback__ is not None else error  # one of a group may never have been raised
            return CodeError(type(leaf).__name__, message_of(leaf)[:_LONGEST_MESSAGE], _frames(raised))
    return None


def error_in(function: Callable[..., object], exception: str, message: str) -> CodeError:
    """A mistake in a function that raised nothing. It is shown where the function is defined, if that is known."""
    defined = function if hasattr(function, "__code__") else getattr(function, "__call__", None)  # noqa: B004 - an object
    code = getattr(getattr(defined, "__func__", defined), "__code__", None)
    if not isinstance(code, CodeType):
        return CodeError(exception, message)
    frame = Frame(_file_name(code.co_filename), code.co_firstlineno, code.co_qualname)
    return CodeError(exception, message, (frame,))


def is_outage(error: BaseException) -> bool:
    """Whether the world outside failed: a connection, a disk, a time limit."""
    return any(_is_outage(link) for leaf in _leaves(error) for link in _chain(leaf))


def message_of(error: BaseException) -> str:
    """What an exception says, whatever its class does when it is asked."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a foreign __str__
        return "(its message cannot be shown)"


def failure_of(error: Exception) -> Failure:
    """The failure of a piece of work that was ended by an exception."""
    mistake = code_error(error)
    if mistake is not None:
        return mistake_failure(mistake)
    words = f"{type(error).__name__}: {message_of(error)}"
    if isinstance(error, TimeoutError):
        return Failure("timeout", message_of(error) or "the worker timed out")
    if isinstance(error, MemoryError):
        return Failure("resource", "out of memory")
    return Failure("network" if is_outage(error) else "logic", words)


def mistake_failure(mistake: CodeError, where: str = "") -> Failure:
    """The failure of work that met a mistake in code: for good, because the same code fails again."""
    lead = f"{where}: " if where else ""
    return Failure("logic", f"{lead}{mistake.describe()}", permanent=True, code_error=mistake)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and those it was raised from or while handling."""
    link: BaseException | None = error
    for _ in range(_MOST_LINKS):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, OSError) and not isinstance(error, _ABOUT_THE_PATH)  # a TimeoutError is an OSError


def _asked_for(error: BaseException, arguments: Mapping[str, object] | None) -> bool:
    if not isinstance(error, KeyError) or not arguments or not error.args:
        return False
    key = str(error.args[0]).strip().casefold()
    return any(key == str(value).strip().casefold() for value in arguments.values())


def _frames(error: BaseException) -> tuple[Frame, ...]:
    """The innermost frames of a traceback in code that is not ours, the innermost last.

    What is called with wrong arguments raises in our code: that is to be mended where it was called.
    """
    frames: list[Frame] = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        frames.append(Frame(code.co_filename, line, code.co_qualname))
    theirs = [at for at, frame in enumerate(frames) if not frame.file.startswith(_OURS)]
    if theirs:
        frames = frames[theirs[0] : theirs[-1] + 1]
    described: list[Frame] = []
    for frame in frames[-_MOST_FRAMES:]:
        source = linecache.getline(frame.file, frame.line).strip()[:_LONGEST_SOURCE]
        described.append(Frame(file=_file_name(frame.file), line=frame.line, function=frame.function, source=source))
    return tuple(described)


def _file_name(path: str) -> str:
    """A file as messages name it: from the working folder, else by its name alone. Journals hold no machine's paths."""
    file = Path(path)
    try:
        return str(file.relative_to(Path.cwd()))
    except (OSError, ValueError):  # elsewhere, or the working folder is gone
        return file.name
