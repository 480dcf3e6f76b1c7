"""Tools that may be called so often for one message. What was called before a crash counts."""

from collections.abc import Mapping

from msgspec import field

from chargehand.core.state import Step
from chargehand.tools.tool import Caller, Tool, ToolFailed


class Counted(Tool, frozen=True, kw_only=True):
    """A tool with a number of calls. It is made for one attempt: `made` holds a mark for each call of `inner`."""

    inner: Tool
    most: int = 1
    made: list[str] = field(default_factory=list[str])

    async def call(self, arguments: str, key: str, caller: Caller | None = None) -> object:
        if len(self.made) >= self.most:
            raise ToolFailed(
                f"{self.name} was called {self.most} times for this message, which is the most; go on without it"
            )
        self.made.append(key)
        return await self.inner.call(arguments, key, caller)

    def check(self, arguments: str) -> None:
        self.inner.check(arguments)


def counted(
    tools: Mapping[str, Tool], counts: Mapping[str, int], steps: Mapping[int, Step] | None = None
) -> dict[str, Tool]:
    """The tools, those with a count made to keep it. `steps` are the calls that this attempt made already."""
    found = dict(tools)
    for name, most in counts.items():
        if (tool := found.get(name)) is None:
            continue
        fields = {each: getattr(tool, each) for each in Tool.__struct_fields__}
        earlier = [step.name for step in (steps or {}).values() if step.name == name and step.result is not None]
        found[name] = Counted(**fields, inner=tool, most=most, made=earlier)
    return found
