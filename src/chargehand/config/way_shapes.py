"""The shapes of a team file's `way`: how the team is led. What becomes of them is decided in `ways`."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from chargehand.agents.ways import Router

Text: TypeAlias = str
Turns: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
Few: TypeAlias = Annotated[int, Meta(ge=0, le=10)]
Samples: TypeAlias = Annotated[int, Meta(ge=1, le=10)]
Part: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
WayName: TypeAlias = Literal["plan", "route", "loop", "broadcast", "round_robin", "dynamic", "recursive"]


class RouteShape(Struct, frozen=True, forbid_unknown_fields=True):
    router: Router = "auto"
    rules: dict[str, Text] = field(default_factory=dict[str, Text])
    secondary: bool = False
    generalist: Text = ""
    threshold: Part | None = None
    samples: Samples | None = None
    learn: bool = True
    embed: Text = "auto"


class LoopShape(Struct, frozen=True, forbid_unknown_fields=True):
    most_turns: Turns | None = None
    stalls: Few | None = None
    fresh_starts: Few | None = None


class BroadcastShape(Struct, frozen=True, forbid_unknown_fields=True):
    match_all: tuple[Text, ...] = ()
    match_some: tuple[Text, ...] = ()


class TalkShape(Struct, frozen=True, forbid_unknown_fields=True):
    most_turns: Turns | None = None
    token: Text | None = None


class RecursiveShape(Struct, frozen=True, forbid_unknown_fields=True):
    depth: Few | None = None
    breadth: Few | None = None


class WayShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of them."""

    route: RouteShape | None = None
    loop: LoopShape | None = None
    broadcast: BroadcastShape | None = None
    round_robin: TalkShape | None = None
    dynamic: TalkShape | None = None
    recursive: RecursiveShape | None = None
