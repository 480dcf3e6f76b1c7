"""`chargehand memory` about agents: who there is, their tags, and what each remembers of its earlier tasks."""

from chargehand.cli.console import Tone, short
from chargehand.cli.memory_space import Space
from chargehand.cli.phrases import counted
from chargehand.cli.table import now, table, when
from chargehand.errors import Refused
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Profile
from chargehand.memory.compaction import behind, plain_summary, summary_turn
from chargehand.memory.conversation import Turn
from chargehand.terms.roster import Match

_KEPT = 4  # turns that stay in sight when the rest goes behind a summary
_MOST = 1000
_ROOM = 100


async def agents(space: Space) -> int:
    """Everybody who shares this memory, or those with some tags."""
    wanted = tuple(dict.fromkeys(space.options.tag))
    match = Match(all=wanted) if space.options.match == "all" else Match(some=wanted)
    found = await space.catalog.find(Profile, tags=match, limit=_MOST)
    if space.options.json:
        return space.show(found)
    if not found:
        space.out.line("nobody with these tags" if wanted else "nobody")
        return 0
    rows = [(one.name, " ".join(f"#{tag}" for tag in one.tags), short(one.description, _ROOM)) for one in found]
    table(space.out, ("agent", "tags", "description"), rows)
    return 0


async def tags(space: Space) -> int:
    """Every tag, and how many agents, blocks and archives carry it."""
    kinds = {"agents": Profile, "blocks": Block, "archives": Archive}
    found = {name: await space.catalog.tags(kind) for name, kind in kinds.items()}
    if space.options.json:
        return space.show(found)
    names = sorted({tag for counts in found.values() for tag in counts})
    if not names:
        space.out.line("no tags")
        return 0
    rows = [(f"#{tag}", *(str(counts.get(tag) or "") for counts in found.values())) for tag in names]
    table(space.out, ("tag", *found), rows)
    return 0


async def talk(space: Space) -> int:
    """What a worker remembers; or find in it, shorten it, forget it."""
    options = space.options
    agent = await space.agent(options.worker)
    if options.reset:
        return await _reset(space, agent)
    if options.compact:
        return await _compact(space, agent)
    if options.search is not None:
        found = await space.catalog.recall(agent.id, options.search, limit=options.limit)
    else:
        found = await space.catalog.turns(agent.id, limit=options.limit)
    if options.json:
        return space.show(found)
    for one in found:
        _show(space, one)
    if not found:
        nothing = "nothing found" if options.search is not None else f"{agent.name} remembers nothing yet"
        space.out.line(short(nothing, _ROOM))
    return 0


def _show(space: Space, turn: Turn) -> None:
    what = {"user": "was asked", "assistant": "came to", "summary": f"summary of all up to {turn.upto}"}[turn.role]
    tone: Tone = "dim" if turn.old else "plain"
    where = f" · {turn.run}" + (f", {turn.task}" if turn.task else "") if turn.run else ""
    behind = " · behind a summary" if turn.old else ""
    space.out.line(short(f"{turn.number}  {when(turn.when)}  {what}{where}{behind}", 160), "dim")
    space.out.line(f"   {short(turn.text, 300)}", tone)


async def _reset(space: Space, agent: Profile) -> int:
    if not space.options.yes:
        raise Refused(f"this makes {agent.name!r} forget all of its earlier tasks for good; say --yes if that is meant")
    gone = await space.catalog.reset(agent.id)
    if space.options.json:
        return space.show({"agent": agent.name, "forgotten": gone})
    space.note(f"{agent.name}: {counted(gone, 'turn')} forgotten", "good")
    return 0


async def _compact(space: Space, agent: Profile) -> int:
    """Without a model: the summary is made by rule. Nothing is lost, old turns are still found by searching."""
    turns = await space.catalog.turns(agent.id, limit=_MOST)
    said = [one for one in turns if one.role != "summary"][:-_KEPT]
    made = False
    if said:
        old = behind(turns, said[-1].number)
        made = await space.catalog.summarise(agent.id, summary_turn(old, plain_summary(old), now()))
    if space.options.json:
        return space.show({"agent": agent.name, "summarised": len(said) if made else 0})
    told = f"{counted(len(said), 'turn')} put behind a summary" if made else "there is nothing to put behind a summary"
    space.note(f"{agent.name}: {told}", "good")
    return 0
