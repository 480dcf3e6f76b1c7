"""How a call of a tool ends: failures in words, results cut to size, prints kept off standard output."""

import contextlib
import io
import os
import sys
from collections.abc import Generator, Mapping
from typing import TextIO

from chargehand.models.code_errors import code_error, is_outage, message_of
from chargehand.terms.failure import CodeError

_ROOM = 2000
_ASKED_WRONG = (ValueError, LookupError, ArithmeticError)  # what functions raise for arguments they cannot use


class ToolFailed(Exception):
    """Raise it in a tool: the message reaches the model as it is. Say what is wrong and what would be right.

    `broken` says that the tool itself is out of order: no other arguments would help. One that says so again and again
    is left alone for a while. `unknown` says that the tool may have done its work all the same. `code_error` is the
    mistake in the tool's code that was met.
    """

    unknown = False
    code_error: CodeError | None = None

    def __init__(self, message: str = "", *, broken: bool = False) -> None:
        self.broken = broken
        super().__init__(message)


def failed_by(error: BaseException, arguments: Mapping[str, object] | None = None) -> ToolFailed:
    """What came of a call that raised; the exception itself is the cause.

    Three things a function can raise: what the model may put right (ToolFailed, ValueError and whatever is neither of
    the other two), an outage (`is_outage`), and a mistake in its own code (`code_error`), which no model can mend.
    """
    if isinstance(error, ToolFailed):
        return error
    text = message_of(error)
    kind = type(error).__name__
    out = is_outage(error) and not isinstance(error, _ASKED_WRONG)
    failed = ToolFailed(f"{kind}: {text}"[:_ROOM] if text else kind, broken=out)
    failed.code_error = code_error(error, arguments)
    failed.__cause__ = error
    failed.unknown = True
    return failed


def capped(text: str, cap: int) -> tuple[str, bool]:
    """The text in at most `cap` bytes of UTF-8 besides a note on what is missing, and whether anything was cut.

    It is cut after a line where one ends in the second half, else between two characters.
    """
    if len(text) * 4 <= cap:
        return text, False
    body = text.encode(errors="replace")
    if len(body) <= cap:
        return text, False
    kept = body[: max(cap, 0)].decode(errors="ignore")
    line = kept.rfind("\n") + 1
    if line > len(kept) // 2:
        kept = kept[:line]
    left = len(body) - len(kept.encode())
    gap = "" if not kept or kept.endswith("\n") else "\n"
    return f"{kept}{gap}[cut here: {left:,} of {len(body):,} bytes are not shown]", True


@contextlib.contextmanager
def quiet_stdout() -> Generator[TextIO]:
    """While it is on, whatever the process prints goes to standard error; the stream given reaches standard output.

    Tools print from threads and from children, so the whole process is turned, down to the file descriptor. A thread
    that outlives the context prints to standard output again: hold the context until the last line is written.
    """
    sys.stdout.flush()
    before = sys.stdout
    descriptor = _descriptor(sys.stdout)
    if descriptor is None:  # somebody keeps standard output in memory
        with contextlib.redirect_stdout(sys.stderr):
            yield before
        return
    sys.stderr.flush()
    kept = os.dup(descriptor)
    try:
        os.dup2(_descriptor(sys.stderr) or 2, descriptor)
        stream = io.TextIOWrapper(os.fdopen(kept, "wb"), before.encoding, before.errors, write_through=True)
    except BaseException:
        os.dup2(kept, descriptor)
        raise
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield stream
    finally:
        before.flush()  # what somebody who held on to the old stream wrote goes to standard error as well
        stream.flush()
        os.dup2(kept, descriptor)
        stream.close()


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
