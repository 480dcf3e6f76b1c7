"""Tools that a worker's provider runs itself: `provider:web_search`. Nothing is called here."""

import msgspec
from msgspec import Raw

from chargehand.errors import Invalid
from chargehand.models.messages import ToolSpec
from chargehand.models.provider_tools import PREFIX, PROVIDER_TOOLS
from chargehand.text.words import did_you_mean, listed
from chargehand.tools.schema import Arguments
from chargehand.tools.tool import Tool, ToolFailed

_SCHEMA: dict[str, object] = {"type": "object", "properties": {}}


def provider_tool(name: str) -> Tool:
    """Return a tool of the worker's provider, by its name with or without `provider:`; Invalid where there is none."""
    name = name.removeprefix(PREFIX)
    if name not in PROVIDER_TOOLS:
        names = [PREFIX + known for known in PROVIDER_TOOLS]
        raise Invalid(f"no provider has a tool {PREFIX + name!r}; {did_you_mean(PREFIX + name, names)}")

    def run() -> None:
        raise ToolFailed(f"{name} is run by the provider; use it without a call, or go on without")

    about = PROVIDER_TOOLS[name].description
    return Tool(
        ToolSpec(name, about, Raw(msgspec.json.encode(_SCHEMA))),
        run,
        quick=True,
        arguments=Arguments(name, _SCHEMA),
        summary=about,
        hosted=True,
    )


def check_offered(owner: str, wanted: tuple[str, ...], handle: str, offered: tuple[str, ...]) -> None:
    """Raise Invalid where a model has not all of the provider's tools that a worker uses."""
    for name in wanted:
        if name not in offered:
            makers = listed(PROVIDER_TOOLS[name].makers)
            own = f"{handle} has only {listed(PREFIX + tool for tool in offered)}" if offered else f"{handle} has none"
            raise Invalid(
                f"{owner} uses {PREFIX}{name}, which its model must bring, and {own}; models of {makers} have it: "
                "name one of them, or take the tool away"
            )
