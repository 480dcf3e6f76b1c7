"""How a call of a tool ends: failures in words, results cut to size."""

from collections.abc import Mapping

from chargehand.code_errors import code_error, is_outage, message_of
from chargehand.engine.failure import CodeError

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
