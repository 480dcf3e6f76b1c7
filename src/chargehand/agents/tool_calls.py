"""One call of a tool and what it came to, as it is journaled. Whether the rules allow it was decided before.

What goes wrong is data. Only an effect of which nobody knows whether it happened ends the attempt.
"""

from msgspec import Struct

from chargehand.agents.crew import Done, Hand, WorkFailed
from chargehand.agents.tool_breakers import ToolBreakers
from chargehand.errors import NotJson
from chargehand.models.messages import ToolCall
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.failure import Failure
from chargehand.terms.value import encode_value
from chargehand.tools.tool import Caller, Costs, Tool, ToolFailed

LARGEST = 1024 * 1024


class Returned(Struct, frozen=True, omit_defaults=True):
    """What a call came to. `broken`: the tool failed for a reason of its own. `barred`: so it was not even called."""

    value: object = None
    error: str = ""
    broken: bool = False
    barred: bool = False


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
            value, used = value.value, value.used
        size = len(encode_value(value))
    except ToolFailed as error:
        if error.broken:
            _noted(hand, breakers.failed(tool, str(error)))
        else:
            breakers.unsettled(tool, probing)
        return _failed(tool, error)
    except NotJson as error:
        return Done(Returned(error=f"{tool.name} returned something that cannot be kept: {error}"), used)
    except BaseException:  # cancelled: nothing is known of the tool
        breakers.unsettled(tool, probing)
        raise
    if size > LARGEST:
        return Done(Returned(error=f"{tool.name} returned {size} bytes; ask for at most {LARGEST}"), used)
    return Done(Returned(value), used)


def _failed(tool: Tool, error: ToolFailed) -> Done:
    if error.unknown and tool.effect == "effect":  # the step stays open: nobody may repeat it in silence
        raise WorkFailed(Failure("uncertain", f"{tool.name}: {error}"), NOTHING) from error
    # one that may have done its work is taken to have cost what was reserved for it
    returned = Returned(error=str(error), broken=error.broken)
    return Done(returned, None if error.unknown else NOTHING, good=False)


def _noted(hand: Hand, text: str) -> None:
    if text:
        hand.note(text)
