"""How a team is led, as its file says: `way: route`, or `way: {route: {...}}`. What a way does is not known here."""

from msgspec import structs

from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Way, Whole
from chargehand.config.findings import Path, near
from chargehand.config.memory import is_handle
from chargehand.config.parts import Parts
from chargehand.config.shapes import RouteShape, WayName, WayShape, WorkerShape
from chargehand.terms.roster import Match, fits
from chargehand.text.names import listed

_KINDS: dict[str, type[Way]] = {
    "plan": Whole,
    "route": Route,
    "loop": Loop,
    "broadcast": Broadcast,
    "round_robin": RoundRobin,
    "dynamic": Dynamic,
    "recursive": Recursive,
}
_PLACE: Path = ("supervisor", "way")


def make_way(parts: Parts, written: WayShape | WayName) -> Way:
    """The way a team is led. What is wrong with it is added to the findings."""
    if isinstance(written, str):
        return _KINDS[written]()
    named = [name for name in written.__struct_fields__ if getattr(written, name) is not None]
    if len(named) != 1:
        said = f"names {len(named)} ways ({listed(named)})" if named else "names no way"
        parts.say(_PLACE, f"{said}; a team is led in exactly one: {', '.join(_KINDS)}")
        return Whole()
    shape = getattr(written, named[0])
    if isinstance(shape, RouteShape):
        _check_route(parts, shape)
    given = {key: value for key, value in structs.asdict(shape).items() if value is not None}
    made = structs.replace(_KINDS[named[0]](), **given)
    if isinstance(made, Broadcast):
        _check_tags(parts, made)
    return made


def _check_route(parts: Parts, shape: RouteShape) -> None:
    known = parts.team.workers
    for phrase, worker in shape.rules.items():
        if worker not in known:
            parts.say((*_PLACE, "route", "rules", phrase), f"there is no worker {worker!r}{near(worker, known)}")
    if shape.generalist and shape.generalist not in known:
        where = (*_PLACE, "route", "generalist")
        parts.say(where, f"there is no worker {shape.generalist!r}{near(shape.generalist, known)}")
    chosen: dict[Path, str] = {("rules", phrase): worker for phrase, worker in shape.rules.items()}
    for where, worker in {**chosen, ("generalist",): shape.generalist}.items():
        written = known.get(worker)
        if isinstance(written, WorkerShape) and written.every is not None:
            words = f"{worker!r} works only after turns (`every`), and takes no requests; name another worker"
            parts.say((*_PLACE, "route", *where), words)
    if shape.samples is not None and shape.samples > 1 and shape.secondary:
        parts.say((*_PLACE, "route", "samples"), "cannot be with `secondary`; keep one of them")
    if shape.embed not in ("auto", "words") and not is_handle(shape.embed):
        said = f"is {shape.embed[:60]!r}; write auto, words, local:minilm, local:multilingual or a handle such as"
        parts.say((*_PLACE, "route", "embed"), f"{said} openai:text-embedding-3-small")
    if shape.router == "rules" and not shape.rules:
        parts.say((*_PLACE, "route"), "routes by rules, and has none; write some under  rules:  phrase: worker")


def _check_tags(parts: Parts, way: Broadcast) -> None:
    match = Match(way.match_all, way.match_some)
    if parts.workers and not any(fits(match, one.tags) for one in parts.workers):
        tags = sorted({tag for one in parts.workers for tag in one.tags})
        parts.say((*_PLACE, "broadcast"), f"nobody has these tags; the tags are {listed(tags) or 'none'}")
