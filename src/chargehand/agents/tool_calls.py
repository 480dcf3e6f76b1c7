"""One call of a tool and what it came to, as it is journaled. Whether the rules allow it was decided before.

What goes wrong is data. Only an effect of which nobody knows whether it happened ends the attempt. A call that returned
has succeeded, whatever it returned: what JSON cannot carry is kept as text, and a large result whole or cut.
"""

from msgspec import Struct

from chargehand.agents.crew import Done, Hand, WorkFailed
from chargehand.agents.tool_breakers import ToolBreakers
from chargehand.models.messages import ToolCall
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.failure import CodeError, Failure
from chargehand.terms.value import DEPTH, decode_value, encode_or_text
from chargehand.tools.tool import Caller, Costs, Tool, ToolFailed

LARGEST = 1024 * 1024
"""Bytes of a result that a tool which only reads may return; it can be asked for less."""
LARGEST_OF_ACTION = 16 * 1024 * 1024
"""Bytes that are kept of what a tool returned that changed something: it cannot be asked again."""
_AS_TEXT = "The call succeeded. Parts of its result are no plain data, and are kept as text. Do not repeat the call."
_CUT = (
    "The call succeeded. Its result has {size:,} bytes, of which the first {kept:,} are kept. Do not repeat the call."
)


class Returned(Struct, frozen=True, omit_defaults=True):
    """What a call came to. `broken`: the tool failed for a reason of its own. `barred`: so it was not even called.

    `note` says to the model what is to be known besides, for example that the result is not kept as it was.
    `code_error`: it met a mistake in its own code, which ends the attempt.
    """

    value: object = None
    error: str = ""
    broken: bool = False
    barred: bool = False
    note: str = ""
    code_error: CodeError | None = None


async def made(tool: Tool, call: ToolCall, key: str, caller: Caller | None, breakers: ToolBreakers, hand: Hand) -> Done:
    """Make a call, unless the tool is out of order."""
    probing = 0.0
    if breakers:
        if problem := breakers.objection(tool):
            return Done(Returned(error=problem, barred=True), NOTHING, good=False)
        probing = breakers.probing(tool)
    used: Amount | None = NOTHING
    try:
        value = await tool.call(call.arguments, key, caller)
        if breakers:
            _noted(hand, breakers.worked(tool))
        if isinstance(value, Costs):
            used = value.used
            value = value.value
    except ToolFailed as error:
        if error.broken:
            _noted(hand, breakers.failed(tool, _printable(str(error))))
        else:
            breakers.unsettled(tool, probing)
        return _failed(tool, error)
    except BaseException:  # cancelled: nothing is known of the tool
        breakers.unsettled(tool, probing)
        raise
    return Done(_returned(tool, value), used)


def _returned(tool: Tool, value: object) -> Returned:
    """What is recorded of a call that succeeded."""
    body, whole = encode_or_text(value, depth=DEPTH - 1)  # one level is that of `Returned`
    size = len(body)
    if size > LARGEST and tool.effect == "read":
        return Returned(error=f"{tool.name} returned {size} bytes; ask for at most {LARGEST}")
    if size > LARGEST_OF_ACTION:
        kept = bytes(body)[:LARGEST].decode(errors="ignore")
        return Returned(kept, note=_CUT.format(size=size, kept=len(kept.encode())))
    return Returned(value) if whole else Returned(decode_value(body), note=_AS_TEXT)


def _failed(tool: Tool, error: ToolFailed) -> Done:
    if error.unknown and tool.effect == "effect":  # the step stays open: nobody may repeat it in silence
        failure = Failure("uncertain", f"{tool.name}: {_printable(str(error))}", code_error=error.code_error)
        raise WorkFailed(failure, NOTHING) from error
    # one that may have done its work is taken to have cost what was reserved for it
    returned = Returned(error=_printable(str(error)), broken=error.broken, code_error=error.code_error)
    return Done(returned, None if error.unknown else NOTHING, good=False)


def _noted(hand: Hand, text: str) -> None:
    if text:
        hand.note(text)


def _printable(text: str) -> str:
    """The text without halves of surrogate pairs, which cannot be recorded."""
    return text if text.isascii() else text.encode(errors="replace").decode()
