"""Workers made ready to work: their tools, models and the shape of their results, and what they may do with memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from chargehand.agents.messages import MessageTools
from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import EarlierTurns, WorkerMemory
from chargehand.agents.roles import Factory, Worker
from chargehand.agents.shape import JsonShape
from chargehand.engine.budget import NOTHING
from chargehand.engine.declared import parse_duration
from chargehand.engine.json_schema import schema_problem
from chargehand.engine.plan import digest
from chargehand.engine.roster import Agent
from chargehand.errors import Invalid
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Access, Block, Grant
from chargehand.memory.catalog import Memory
from chargehand.memory.session import OpenMemory
from chargehand.models.messages import Message, Request, ToolSpec, ways_to_answer
from chargehand.models.model import Model
from chargehand.models.provider_tools import PREFIX
from chargehand.models.request_facts import Skill, WorkerCard
from chargehand.models.token_count import EMPTY, REQUEST, Size, measure_deferred, measure_tools, together, without
from chargehand.text.words import did_you_mean, listed
from chargehand.tools.built_in import BUILT_IN, WITH_SETTINGS, tools_named
from chargehand.tools.provider_tool import check_offered, provider_tool
from chargehand.tools.remember import ARCHIVE_TOOLS, BLOCK_TOOLS, NAMES, described, memory_tools, usual_tools
from chargehand.tools.rules import check as check_rules
from chargehand.tools.rules import check_approvals, demanded, needs_approval
from chargehand.tools.tool import Tool, Toolbox, as_tool, unpack_toolboxes

AnyTool: TypeAlias = Tool | Callable[..., object] | str | Toolbox
"""Tools as a worker brings them: made by `@tool`, a typed function, a name, or the source of several."""
_Owner = TypeVar("_Owner", Worker, Factory)
_ACCESS: tuple[Access, ...] = get_args(Access)
GIVE_UP = ToolSpec(
    "give_up",
    "Say that the task cannot be done, and what was missing. `final`: no other wording would help.",
    Raw(
        b'{"type":"object","properties":{"reason":{"type":"string"},"final":{"type":"boolean"}},'
        b'"required":["reason"],"additionalProperties":false}'
    ),
    at_once=True,
)
READ_MORE = ToolSpec(
    "read_more",
    "Read on in a result or an input that was too long to show whole.",
    Raw(
        b'{"type":"object","properties":{"handle":{"type":"string"},"start":{"type":"integer","minimum":0}},'
        b'"required":["handle","start"],"additionalProperties":false}'
    ),
    at_once=True,
)
OURS = frozenset((GIVE_UP.name, READ_MORE.name))


class ReadyWorker(Struct, eq=False):
    """A worker ready to work."""

    worker: Worker
    tools: dict[str, Tool]
    models: tuple[Model, ...]
    """Tried in turn."""
    shape: JsonShape | None
    card: WorkerCard
    """As a planner sees it."""
    specs: tuple[ToolSpec, ...]
    """Its tools as a model sees them."""
    window: int
    beside: Size = EMPTY
    """The size of what a call reads at first beside the messages: its tools, and the schema of its result."""
    searched: Size = EMPTY
    """The size of the tools that no call reads before its model has searched for them."""
    memory: WorkerMemory | None = None
    """With one it is shown its memory before each call of its model."""
    has_deciding_tools: bool = False
    """A function decides which calls of one of its tools need approval."""
    provider_tools: tuple[str, ...] = ()
    """Those of its tools that the provider of its model runs."""
    takes_cut_replies: bool = False
    """It answers with what there is of a reply that reached its limit; else such a reply is asked for again."""
    _system: Message | None = None

    def system(self, prompts: Prompts) -> Message:
        """What its model is told about it: the same message each time, so that it is encoded once."""
        if self._system is None:
            worker = self.worker
            text = prompts.text("work", name=worker.name, description=worker.description, prompt=worker.prompt)
            if self.shape is not None:
                text += f"\n\nReply with JSON of this schema and nothing else:\n{bytes(self.shape.raw).decode()}"
            self._system = Message("system", text)
        return self._system


def worker_card(worker: Worker, tools: Mapping[str, Tool]) -> WorkerCard:
    """A worker as a planner sees it."""
    return WorkerCard(
        name=worker.name,
        description=worker.description,
        tags=tuple(worker.tags),
        skills=skills(tools),
        phrases=tuple(worker.skills),
        examples=tuple(worker.examples),
    )


def check_worker(worker: Worker, named: Mapping[str, Tool] | None = None) -> dict[str, Tool]:
    """The tools of a worker by name; Invalid, naming it, where it cannot work.

    `named` are the tools it may name; left out, they can be looked at but not called.
    """
    owner = f"worker {worker.name!r}"
    tools = toolset(owner, worker.tools, named)
    try:
        check_rules(worker.rules, tuple(name for name, tool in tools.items() if not tool.hosted))
        check_approvals(worker.rules, schemas(tools))
    except Invalid as error:
        raise Invalid(f"{owner}: {error}") from error
    if isinstance(worker.output, dict) and (problem := schema_problem(worker.output)):
        raise Invalid(f"{owner}: the schema of its output is wrong: {problem}")
    if worker.team is not None:
        _refuse_own_parts(worker, f"{owner} is a team and has", "give that to the workers of the team")
    if worker.call is not None:
        _refuse_own_parts(worker, f"{owner} has a call and", "the call brings what it works with")
    return tools


def make_ready(
    worker: Worker, models: Sequence[Model], named: Mapping[str, Tool] | None = None, memory: WorkerMemory | None = None
) -> ReadyWorker:
    """Make a worker ready; Invalid, naming it, where it cannot work."""
    tools = check_worker(worker, named)
    shape = None if worker.output is None else JsonShape(worker.output)
    needed = demanded(worker.rules)
    own = [tool.spec for tool in tools.values() if not tool.hosted]
    specs = (*(structs.replace(spec, at_once=True) if spec.name in needed else spec for spec in own), GIVE_UP)
    hosted = hosted_tools(tools)
    searched = _measure_searched(worker, models, specs)
    for model in models:
        check_offered(f"worker {worker.name!r}", hosted, model.card.handle, model.card.provider_tools)
    return ReadyWorker(
        worker=worker,
        tools=tools,
        models=tuple(models),
        shape=shape,
        card=worker_card(worker, tools),
        specs=specs,
        window=min((model.card.window for model in models), default=0),
        beside=without(together(REQUEST, measure_tools(specs, None if shape is None else bytes(shape.raw))), searched),
        searched=searched,
        memory=memory,
        has_deciding_tools=any(tool.decides is not None for tool in tools.values()),
        provider_tools=hosted,
    )


def _measure_searched(worker: Worker, models: Sequence[Model], specs: tuple[ToolSpec, ...]) -> Size:
    """Return the size of the tools that all models of a worker are left to search for.

    With rules some of the tools may be missing in a step, so that the others are few enough to be sent at once.
    """
    if worker.rules or not all(model.card.searches_tools for model in models):
        return EMPTY
    return measure_deferred(Request((), specs))


def hosted_tools(tools: Mapping[str, Tool]) -> tuple[str, ...]:
    """Return the names of those that the provider of a model runs."""
    return tuple(name for name, tool in tools.items() if tool.hosted)


def _refuse_own_parts(worker: Worker, lead: str, advice: str) -> None:
    """Raise Invalid for a worker that delegates its tasks, and has tools or a model of its own."""
    own = {
        "tools": worker.tools,
        "rules": worker.rules,
        "a model": worker.model or worker.replicas,
        "a prompt": worker.prompt,
        "fallback models": worker.fallback_models,
        "an output": worker.output is not None,
        "blocks": worker.blocks,
        "archives": worker.archives,
        "earlier tasks": worker.remembers,
        "contacts": worker.contacts,
    }
    for what, value in own.items():
        if value:
            raise Invalid(f"{lead} {what} of its own; {advice}")


def roster_agent(worker: Worker, model: str) -> Agent:
    """A worker as the scheduler sees it. `spec` changes when anything does that its results depend on.

    A team has no model of its own: a line that is dead for it says nothing about anybody else's. What it may use is
    reserved by its only step: an attempt that is taken up after a crash has been charged already.
    """
    tools = toolset(f"worker {worker.name!r}", worker.tools)
    agent = Agent(
        name=worker.name,
        description=worker.description,
        tags=tuple(worker.tags),
        tools=tuple(tools),
        model=model,
        fallbacks=tuple(worker.fallbacks),
        concurrency=worker.concurrency,
        estimate=worker.estimate,
        seconds=worker.seconds,
        timeout=parse_duration(worker.timeout),
        queue=worker.queue or UNSET,
    )
    if worker.team is not None:
        spec = digest(worker.team.name, msgspec.json.encode(worker.team.roster).decode())
        return structs.replace(agent, model="", estimate=NOTHING, spec=spec, queue=UNSET)  # its runs have the queue
    if worker.call is not None:
        module = getattr(worker.call, "__module__", "")
        name = getattr(worker.call, "__qualname__", type(worker.call).__qualname__)
        return structs.replace(agent, model="", spec=digest(f"{module}:{name}"))
    parts = [worker.prompt, model, *map(_describe_tool, tools.values())]
    if worker.contacts:
        parts.append(" ".join(worker.contacts))
    parts.append("" if worker.output is None else msgspec.json.encode(JsonShape(worker.output).schema).decode())
    if ways := ways_to_answer(worker.settings):
        parts.append(msgspec.json.encode(ways, order="deterministic").decode())
    return structs.replace(agent, spec=digest(*parts))


def _describe_tool(tool: Tool) -> str:
    """What of a tool the results of a worker depend on."""
    return f"{tool.name}{tool.spec.description}{tool.data}{tool.effect}{bytes(tool.spec.parameters).decode()}"


# --- tools


def toolset(owner: str, tools: Sequence[AnyTool], named: Mapping[str, Tool] | None = None) -> dict[str, Tool]:
    """Tools by name; Invalid where two share one, or one has a name of ours.

    `named` are those that may be named instead of being brought; left out, they can be looked at but not called.
    """
    by_name: dict[str, Tool] = {}
    for brought in unpack_toolboxes(tools):
        if isinstance(brought, str) and brought.startswith(PREFIX):
            tool = provider_tool(brought)
        elif isinstance(brought, str):
            tool = _tool_named(owner, brought, nameable() if named is None else named)
        else:
            tool = as_tool(brought)
        if tool.name in by_name:
            raise Invalid(f"{owner} has two tools called {tool.name!r}; give one of them another name")
        if tool.name in OURS:
            raise Invalid(f"{owner} has a tool called {tool.name!r}, which every worker has already; rename it")
        by_name[tool.name] = tool
    return by_name


@cache
def nameable() -> Mapping[str, Tool]:
    """The tools a worker may name, as models are told of them."""
    return {**described(), **MessageTools().tools()}


def with_built_in_tools(owner: _Owner) -> _Owner:
    """A worker, or a factory, with built-in tools in the place of their names. Names of other tools stay."""
    tools: list[AnyTool] = []
    for tool in owner.tools:
        tools.extend(tools_named(tool) if isinstance(tool, str) and tool in BUILT_IN else [tool])
    return structs.replace(owner, tools=tuple(tools))


def _tool_named(owner: str, name: str, tools: Mapping[str, Tool]) -> Tool:
    if name in tools:
        return tools[name]
    if name in WITH_SETTINGS:
        raise Invalid(f"{owner} names the tool {name!r}, which needs settings; {WITH_SETTINGS[name]}")
    names = [*BUILT_IN, *tools]
    raise Invalid(f"{owner} names the tool {name!r}, which there is not; {did_you_mean(name, names)}")


def tool_name(tool: object) -> str:
    """The name of a tool, however a worker brings it."""
    return tool if isinstance(tool, str) else str(getattr(tool, "name", getattr(tool, "__name__", "")))


def schemas(tools: Mapping[str, Tool]) -> dict[str, Mapping[str, Any]]:
    """Return the JSON Schemas of the arguments of tools, by name."""
    return {name: tool.arguments.schema for name, tool in tools.items() if tool.arguments is not None}


def skills(tools: Mapping[str, Tool]) -> tuple[Skill, ...]:
    return tuple(
        Skill(
            name=tool.name,
            description=tool.spec.description,
            parameters=tool.spec.parameters,
            summary=tool.summary,
            data=tool.data,
        )
        for tool in tools.values()
    )


# --- memory


def check_memory(memory: Memory | None, workers: Sequence[Worker]) -> None:
    """Raise Invalid for a memory that no worker can use, and for workers that name what is not in it."""
    if memory is None:
        for worker in workers:
            _check_without_memory(worker)
        return
    labels = [block.label for block in memory.blocks]
    names = [archive.name for archive in memory.archives]
    for what, existing in (("block", labels), ("archive", names)):
        if double := next((name for name in existing if existing.count(name) > 1), None):
            raise Invalid(f"the memory has two {what}s called {double!r}; give one of them another name")
    for worker in workers:
        owner = f"worker {worker.name!r}"
        _check_known(owner, "block", worker.blocks, labels)
        _check_known(owner, "archive", worker.archives or (), names)


def own_blocks(worker: Worker) -> dict[str, Grant]:
    """What a worker may do with blocks where that is not what everybody may, by label."""
    return {label: access if isinstance(access, Grant) else Grant(access) for label, access in worker.blocks.items()}


def own_archives(worker: Worker, archives: Sequence[Archive]) -> dict[str, Grant]:
    """The same for archives, by name: one that names some may use no others."""
    declared = worker.archives
    if declared is None:
        return {}
    if isinstance(declared, Mapping):
        return {archive.name: Grant(declared.get(archive.name, "none")) for archive in archives}
    usual: dict[str, Access] = {
        archive.name: "write" if archive.share == "none" else archive.share for archive in archives
    }
    return {name: Grant(access if name in declared else "none") for name, access in usual.items()}


def with_memory_tools(worker: Worker, memory: Memory | None) -> Worker:
    """The worker with the memory tools that it gets without naming them, after its own. Most workers need none."""
    if memory is None:
        return worker
    own = own_blocks(worker)
    grants = own_archives(worker, memory.archives)
    blocks: list[Access] = [_block_access(block, own.get(block.label, Grant(block.share))) for block in memory.blocks]
    archives: list[Access] = [grants.get(archive.name, Grant(archive.share)).access for archive in memory.archives]
    return _with_usual_tools(worker, blocks, archives)


def _with_usual_tools(worker: Worker, blocks: Iterable[Access], archives: Iterable[Access]) -> Worker:
    """Memory tools come with what a worker declares, or with all of memory if it remembers."""
    own_names = {tool for tool in worker.tools if isinstance(tool, str)}
    uses_blocks = worker.remembers or bool(worker.blocks) or bool(own_names & set(BLOCK_TOOLS))
    uses_archives = worker.remembers or bool(worker.archives) or bool(own_names & set(ARCHIVE_TOOLS))
    usual = usual_tools(blocks if uses_blocks else (), archives if uses_archives else (), remembers=worker.remembers)
    taken = {tool_name(tool) for tool in worker.tools}
    return structs.replace(worker, tools=(*worker.tools, *(name for name in usual if name not in taken)))


async def make_ready_with_memory(
    worker: Worker,
    models: Sequence[Model],
    named: Mapping[str, Tool],
    memory: OpenMemory,
    *,
    with_usual_tools: bool = True,
    earlier: EarlierTurns = "material",
    conversation: str = "",
) -> ReadyWorker:
    """Make a worker ready that uses an open memory. People may have attached more to it than is declared.

    Without the usual tools it has those that it names, and no others. In a `conversation` beside its own it remembers
    that one.
    """
    agent = memory.agents[worker.name]
    blocks: dict[str, Access] = {}
    archives: dict[str, Access] = {}
    for attachment in await memory.catalog.attached(agent):
        if isinstance(attachment.thing, Block):
            blocks[attachment.thing.label] = _block_access(attachment.thing, attachment.grant)
        else:
            archives[attachment.thing.name] = attachment.grant.access
    if with_usual_tools:
        worker = _with_usual_tools(worker, blocks.values(), archives.values())
    own = WorkerMemory(
        memory=memory,
        agent=agent,
        remembers=worker.remembers,
        shows=bool(blocks) or worker.remembers,
        earlier=earlier,
        conversation=conversation,
        searches="conversation_search" in worker.tools,
    )
    tools = {**memory_tools(memory, worker.name, blocks, archives, conversation), **named}
    return make_ready(worker, models, tools, own)


def _block_access(block: Block, grant: Grant) -> Access:
    return "read" if block.read_only and grant.access != "none" else grant.access


def _check_without_memory(worker: Worker) -> None:
    memory_tool = next((tool for tool in worker.tools if isinstance(tool, str) and tool in NAMES), "")
    wants = {
        "remembers": worker.remembers,
        "has blocks": bool(worker.blocks),
        "has archives": bool(worker.archives),
        f"has the tool {memory_tool!r}": bool(memory_tool),
    }
    for what, wanted in wants.items():
        if wanted:
            raise Invalid(f"worker {worker.name!r} {what}, but its team has no memory; give it one (`memory`)")


def _check_known(owner: str, what: str, asked: Sequence[str] | Mapping[str, object], known: Sequence[str]) -> None:
    for name in asked:
        if name not in known:
            hint = did_you_mean(name, known, f"there is {listed(known) or 'none'}")
            raise Invalid(f"{owner} names the {what} {name!r}, which the memory does not have; {hint}")


def only_reads(worker: Worker) -> bool:
    """Whether no tool of a worker changes anything, needs approval, or is meant to differ each time."""

    def harmless(tool: Tool) -> bool:
        asks = tool.may_need_approval or needs_approval(worker.rules, tool.name)
        return tool.effect == "read" and not tool.poll and not asks

    if worker.remembers or worker.is_delegated:
        return False
    return all(map(harmless, toolset(f"worker {worker.name!r}", worker.tools).values()))
