"""From the shape of a team file to its parts: memory, tools, workers, factory, checks and strategy.

What only the file can know is checked here. All else is checked as it is for teams declared in Python; what is refused
there becomes a finding at the table that declares it.
"""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path as File
from typing import Any, cast

from msgspec import Struct, structs

from chargehand.agents.background import check as check_background
from chargehand.agents.checks import Check, Checks, Reviewer, Rule, Verifier, declare_checks
from chargehand.agents.messages import MAIL, check_contacts
from chargehand.agents.prompts import Prompts
from chargehand.agents.roles import AttemptKeys, Factory, FactoryKeys, Worker, WorkerKeys, check_worker_name
from chargehand.agents.setup import check_memory, schemas, tool_name, toolset, with_memory_tools
from chargehand.agents.strategies import STRATEGIES, Broadcast, Route, Strategy, Whole
from chargehand.agents.strategies.route import check_route
from chargehand.config.python_objects import named_object
from chargehand.config.schema import (
    CHECK_KINDS,
    PLAIN_SOURCES,
    AmountShape,
    ArchiveShape,
    BlockShape,
    CheckShape,
    McpServerShape,
    MemoryShape,
    TeamShape,
    VerifierShape,
    WorkerShape,
)
from chargehand.config.source import FileFinding, FileSource, Path, inside, near, read_prose, read_schema, within
from chargehand.config.tools import make_tools
from chargehand.engine.budget import Amount
from chargehand.engine.roster import Match, fits
from chargehand.errors import Invalid
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Memory
from chargehand.memory.chunking import source_files
from chargehand.models.messages import Effort, Settings
from chargehand.models.provider_tools import PREFIX
from chargehand.store_url import PostgresUrl, StoreUrl, postgres_url
from chargehand.text.words import listed
from chargehand.tools import rules
from chargehand.tools.built_in import tools_named
from chargehand.tools.mcp_client import McpServer, McpServerKeys
from chargehand.tools.mcp_lock import LOCK_FILE
from chargehand.tools.provider_tool import provider_tool
from chargehand.tools.remember import NAMES as MEMORY_TOOLS
from chargehand.tools.rules import ToolRule
from chargehand.tools.tool import Tool

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")  # what providers let a tool be called
_HANDLE = re.compile(r"[A-Za-z0-9_.+-]+[:/]\S+\Z")
_MAX_LIMIT = 1_000_000
_NAMEABLE = (*MEMORY_TOOLS, *MAIL)
"""Tools that need no entry in the file: they are made where the memory and the other workers are."""


class Overrides(Struct, frozen=True):
    """What stands in for values of the file."""

    model: str = ""
    """For every model."""
    memory: File | str | None = None
    """Where memory is kept when the file does not say."""
    elsewhere: StoreUrl | None = None
    """Where memory is kept whatever the file says."""
    effort: Effort | None = None
    """How much every model thinks."""


class TeamBuild(Struct):
    """A team file and what has been made of it so far."""

    source: FileSource
    shape: TeamShape
    overrides: Overrides = Overrides()
    above: tuple[File, ...] = ()
    """The files this one is nested in, the outermost first."""
    max_nesting: int = 0
    """How deep teams may be nested, counted from the outermost file. No file inside may widen it."""
    nested_files: list[File] = []
    """All files nested in the outermost one."""
    nested: "dict[str, TeamBuild]" = {}
    """The teams among the workers, by name."""
    tools: dict[str, tuple[Tool, ...]] = {}
    """The tools of each entry."""
    mcp_servers: dict[str, McpServer] = {}
    memory: Memory | None = None
    workers: list[Worker] = []
    factory: Factory | None = None
    misfits: tuple[FileFinding, ...] = ()
    """What is wrong with the shape of the file."""
    findings: list[FileFinding] = []

    def __post_init__(self) -> None:
        self.findings.extend(self.misfits)
        own = self.shape.policy.limits.max_nesting
        if not self.above:
            self.max_nesting = own
        elif self.is_written("policy", "limits", "max_nesting"):
            self.max_nesting = min(self.max_nesting, own)

    def report(self, path: Path, message: str, *, grave: bool = True) -> None:
        """Add a finding, unless the shape is wrong at that place or beneath it: this may only follow from that."""
        finding = self.source.finding(path, message, grave=grave)
        if not any(misfit.is_at(finding.path) for misfit in self.misfits):
            self.findings.append(finding)

    @contextmanager
    def at(self, *path: str | int) -> Generator[None]:
        """Make a finding at this place of what is refused inside."""
        try:
            yield
        except Invalid as error:
            self.report(path, str(error))

    def prose(self, path: Path, text: str) -> str:
        """Text as it stands, or that of a file for `file:path`."""
        with self.at(*path):
            return read_prose(self.source.folder, text)
        return ""

    def handle(self, written: str) -> str:
        """A model handle, or what stands in for every one of them."""
        return self.overrides.model or written

    def settings(self, own: Settings) -> Settings:
        """The settings of a worker or the supervisor, with the defaults of the file and what stands in for both."""
        merged = merge_settings(own, self.shape.defaults.settings)
        effort = self.overrides.effort
        return merged if effort is None else structs.replace(merged, effort=effort)

    def written_keys(self, *path: str) -> list[str]:
        """The keys that the file has in a table; none where it is not there."""
        table = self.source.data
        for key in path:
            inner = table.get(key)
            table = cast("dict[str, object]", inner) if isinstance(inner, dict) else {}
        return list(table)

    def is_written(self, *path: str) -> bool:
        """Whether the file has a key."""
        return path[-1] in self.written_keys(*path[:-1])


def build_members(build: TeamBuild) -> TeamBuild:
    """Make the memory, the tools, the workers and the factory. What is wrong is among the findings."""
    shape = build.shape
    _add_memory(build)
    for name, written in shape.tools.items():
        if not _TOOL_NAME.match(name):
            better = re.sub(r"[^A-Za-z0-9_-]", "_", name[:64])
            build.report(
                ("tools", name), f"{name[:70]!r} is no name for a tool; use letters, digits, _ and -: {better}"
            )
        if build.memory is not None and name in MEMORY_TOOLS:
            words = "is the name of a memory tool, which this team has; call yours something else"
            build.report(("tools", name), words)
        build.tools[name] = ()
        with build.at("tools", name):
            build.tools[name] = make_tools(name, written, build.source.folder)
    _add_mcp_servers(build)
    if not shape.workers and shape.supervisor.factory is None:
        build.report((), "there are no workers; write  workers:  and under it a name and what that worker does")
    for name, written in shape.workers.items():
        worker = Worker(name)
        with build.at("workers", name):
            check_worker_name(name)
            worker_shape = WorkerShape(description=written) if isinstance(written, str) else written
            worker = _make_worker(build, name, worker_shape)
        build.workers.append(worker)
    with build.at("workers"):
        check_contacts(build.workers)
    factory = shape.supervisor.factory
    if factory is not None:
        build.factory = Factory(
            **_keys_of(factory, FactoryKeys),
            tools=_find_tools(build, ("supervisor", "factory", "tools"), factory.tools),
            model=build.handle(factory.model or shape.defaults.model),
        )
    return build


# --- MCP servers


MCP = "mcp:"
"""How the names of tools of MCP servers begin."""


def _add_mcp_servers(build: TeamBuild) -> None:
    tools_used = {
        tool for worker in build.shape.workers.values() if not isinstance(worker, str) for tool in worker.tools
    }
    tools_used |= set(() if build.shape.supervisor.factory is None else build.shape.supervisor.factory.tools)
    for name in build.shape.mcp_servers:
        with build.at("mcp_servers", name):
            build.mcp_servers[name] = make_mcp_server(build.source, name, build.shape.mcp_servers[name])
        if not any(tool.startswith(f"{MCP}{name}/") for tool in tools_used):
            build.report(
                ("mcp_servers", name), f"no worker has a tool of it; write  tools: [mcp:{name}/*]", grave=False
            )


def make_mcp_server(source: FileSource, name: str, shape: McpServerShape) -> McpServer:
    """A server of the file. Its program is started in the file's folder, where `mcp.lock` is as well."""
    folder = source.folder
    return McpServer(name, **_keys_of(shape, McpServerKeys), lock=folder / LOCK_FILE, folder=folder)


def _find_mcp_tools(build: TeamBuild, name: str) -> tuple[Tool, ...]:
    server, slash, pattern = name.removeprefix(MCP).partition("/")
    if not slash or not pattern:
        raise Invalid(f"{name!r} names no tool; write  mcp:SERVER/TOOL, or  mcp:SERVER/*  for all")
    if server in build.mcp_servers:
        return build.mcp_servers[server].select(pattern)
    if server in build.shape.mcp_servers:
        return ()  # the findings say what is wrong with it
    hint = near(server, build.shape.mcp_servers) or "; declare it under  mcp_servers:"
    raise Invalid(f"there is no MCP server {server!r}{hint}")


# --- memory


def _add_memory(build: TeamBuild) -> None:
    """The memory of a team. A team with a worker that remembers has one, declared or not."""
    remembers = any(not isinstance(worker, str) and worker.remembers for worker in build.shape.workers.values())
    if build.shape.memory is None and not remembers:
        return
    shape = build.shape.memory or MemoryShape()
    sources: dict[str, File] = {}
    archives: list[Archive] = []
    for name, written in shape.archives.items():
        archive = ArchiveShape(description=written) if isinstance(written, str) else written
        path: Path = ("memory", "archives", name)
        with build.at(*path):
            check_name(name, "an archive")
        with build.at(*path, "embed"):
            check_embedding(archive.embed)
        if archive.add:
            with build.at(*path, "add"):
                sources[name] = _find_texts(build.source.folder, archive.add)
        keys = structs.asdict(archive)
        del keys["add"]
        archives.append(Archive(name, embedding=keys.pop("embed"), **keys))
    blocks = [_make_block(build, label, written) for label, written in shape.blocks.items()]
    build.memory = Memory(_find_store(build, shape.file), blocks, archives, sources=sources)


def _find_store(build: TeamBuild, written: str) -> StoreUrl | None:
    overrides = build.overrides
    file: StoreUrl | None = find_database(build) or overrides.memory
    if written:
        with build.at("memory", "file"):
            file = within(build.source.folder, written)
            if file.is_dir():
                raise Invalid(f"{written!r} is a folder; name a file, for example {written}/memory.db")
    return overrides.elsewhere or file


def find_database(build: TeamBuild) -> PostgresUrl | None:
    """The database that the file names for all stores."""
    with build.at("store"):
        return postgres_url(build.shape.store) if build.shape.store else None
    return None


def _make_block(build: TeamBuild, label: str, written: BlockShape | str) -> Block:
    shape = BlockShape(value=written) if isinstance(written, str) else written
    path: Path = ("memory", "blocks", label)
    with build.at(*path):
        check_name(label, "a block")
    value = build.prose(path if isinstance(written, str) else (*path, "value"), shape.value)
    if not 1 <= shape.limit <= _MAX_LIMIT:
        build.report((*path, "limit"), f"is {shape.limit}; it must be between 1 and {_MAX_LIMIT} characters")
    elif len(value) > shape.limit:
        sizes = f"{len(value):,} characters, and its limit is {shape.limit:,}"
        build.report(path, f"its value has {sizes}; shorten it, or raise limit")
    if shape.read_only and shape.share in ("append", "write"):
        build.report(path, f"is read_only, and shared to {shape.share}; take one of them away")
    return Block(label, **structs.asdict(structs.replace(shape, value=value)))


def _find_texts(folder: File, written: str) -> File:
    """The texts that are put into an archive when it is opened."""
    file = inside(folder, written)
    try:
        source_files(file)
    except Invalid as error:
        raise Invalid(str(error).replace(str(file), repr(written))) from error
    return file


def check_name(name: str, what: str) -> None:
    """Raise Invalid for a label of a block, or a name of an archive, that cannot be used."""
    if not _NAME.match(name):
        raise Invalid(f"{name[:70]!r} is no name for {what}; use up to 64 letters, digits, _, - and .")


def is_handle(embed: str) -> bool:
    """Whether this could name an embedding model."""
    return _HANDLE.match(embed) is not None


def check_embedding(embed: str) -> None:
    if embed not in ("auto", "words") and not is_handle(embed):
        words = f"is {embed[:60]!r}; write auto, words, local:minilm, local:multilingual or a handle such as"
        raise Invalid(f"{words} openai:text-embedding-3-small{near(embed, ('auto', 'words'))}")


# --- workers


BESIDE_TEAM = frozenset(("team", "call", "description", "tags", "skills", "examples", "accept")) | frozenset(
    ("fallbacks", "concurrency", "timeout", "seconds", "estimate", "queue")
)
"""The keys that may stand beside `team` and `call`, which bring what they work with."""


def _make_worker(build: TeamBuild, name: str, shape: WorkerShape) -> Worker:
    path: Path = ("workers", name)
    for index, other in enumerate(shape.fallbacks):
        if other == name or other not in build.shape.workers:
            words = f"there is no other worker {other!r} to fall back to{near(other, build.shape.workers)}"
            build.report((*path, "fallbacks", index), words)
    if shape.team or shape.call:
        brings = "the team" if shape.team else "the function"
        for key in build.written_keys(*map(str, path)):
            if key not in BESIDE_TEAM:
                kind = "team" if shape.team else "call"
                build.report((*path, key), f"does not go with `{kind}`: {brings} brings what it works with")
        return _delegating_worker(build, name, shape)
    if not shape.description and shape.every is None:
        build.report(path, "has no description; the planner reads it to hand out tasks", grave=False)
    model = build.overrides.model
    worker = Worker(
        name,
        **_worker_keys(build, shape, path),
        prompt=build.prose((*path, "prompt"), shape.prompt),
        tools=_find_tools(build, (*path, "tools"), shape.tools),
        model=model or shape.model or ("" if shape.replicas else build.shape.defaults.model),
        replicas=() if model else shape.replicas,
        fallback_models=() if model else shape.fallback_models,
        output=_read_output(build, path, shape),
        contacts=shape.contacts,
    )
    return _check_worker(build, path, structs.replace(worker, rules=_make_rules(build, path, shape)))


def _check_worker(build: TeamBuild, path: Path, worker: Worker) -> Worker:
    """Refuse, at its own place, a worker that no team could have."""
    known: dict[str, Tool] = {}
    with build.at(*path, "tools"):
        known = toolset(f"worker {worker.name!r}", worker.tools)
    check_memory(build.memory, [worker])
    with build.at(*path, "rules"):
        tools = with_memory_tools(worker, build.memory).tools
        called = [tool for tool in tools if not (isinstance(tool, Tool) and tool.hosted)]
        rules.check(worker.rules, [tool_name(tool) for tool in called])
        rules.check_approvals(worker.rules, schemas(known))
    if worker.every is not None:
        check_background(build.memory, (), (worker,))
    return worker


def _delegating_worker(build: TeamBuild, name: str, shape: WorkerShape) -> Worker:
    """A worker whose attempts a function beside the file makes, or a team: its file is read later."""
    if shape.team:
        return Worker(name, shape.description, tags=shape.tags, fallbacks=shape.fallbacks)
    worker = Worker(name, **_worker_keys(build, shape, ("workers", name)))
    with build.at("workers", name, "call"):
        function = named_object(build.source.folder, shape.call)
        if not callable(function):
            raise Invalid(f"{shape.call!r} is a {type(function).__name__}, not an async function")
        return structs.replace(worker, call=function)
    return worker


def _worker_keys(build: TeamBuild, shape: WorkerShape, path: Path) -> dict[str, Any]:
    """The keys that are the same in Python, with `defaults` for those that the worker leaves out."""
    keys = _keys_of(shape, WorkerKeys)
    written = build.written_keys(*map(str, path))
    for key, value in _keys_of(build.shape.defaults, AttemptKeys).items():
        if key not in written:
            keys[key] = value
    keys["settings"] = build.settings(shape.settings)
    return keys | {"description": shape.description, "estimate": amount_of(shape.estimate)}


def merge_settings(own: Settings, defaults: Settings) -> Settings:
    """The settings, with defaults for what is left out."""
    left_out = {name: value for name, value in structs.asdict(defaults).items() if getattr(own, name) is None}
    return structs.replace(own, **left_out)


def _keys_of(shape: Struct, keys: type[Struct]) -> dict[str, Any]:
    """The fields of a table that are declared in Python."""
    values = {name: getattr(shape, name) for name in keys.__struct_fields__}
    return {
        name: tuple(cast("list[object]", value)) if isinstance(value, list) else value for name, value in values.items()
    }


def _find_tools(build: TeamBuild, path: Path, names: tuple[str, ...]) -> tuple[Tool | str, ...]:
    """The tools behind these names; those for memory and messages stay names."""
    tools: list[Tool | str] = []
    for index, name in enumerate(names):
        if name in build.tools:
            tools += build.tools[name]
        elif name in PLAIN_SOURCES:
            tools += tools_named(name)
        elif name.startswith(MCP):
            with build.at(*path, index):
                tools += _find_mcp_tools(build, name)
        elif name.startswith(PREFIX):
            with build.at(*path, index):
                tools.append(provider_tool(name))
        elif name not in _NAMEABLE:
            sources = [*build.shape.tools, *PLAIN_SOURCES]
            hint = near(name, (*sources, *_NAMEABLE)) or f"; there are {', '.join(sources)}"
            build.report((*path, index), f"there is no tool {name!r}{hint}")
        elif path[0] == "supervisor":
            build.report((*path, index), f"{name} is for workers of the team, not for those made on the fly")
        else:
            tools.append(name)
    return tuple(tools)


def _read_output(build: TeamBuild, path: Path, shape: WorkerShape) -> dict[str, object] | None:
    if shape.output is not None:
        with build.at(*path, "output"):
            return read_schema(build.source.folder, shape.output)
    return None


def amount_of(shape: AmountShape) -> Amount:
    return Amount(tokens=shape.tokens or 0, micros=round((shape.usd or 0) * 1_000_000), calls=shape.calls or 0)


# --- rules


_RULES: dict[str, Callable[[str], ToolRule]] = {
    "run_first": rules.RunFirst,
    "exit_loop": rules.ExitLoop,
    "continue_loop": rules.ContinueLoop,
    "required_before_exit": rules.RequiredBeforeExit,
    "requires_approval": rules.RequiresApproval,
}
"""Rules that are written with the name of a tool alone."""


def _make_rules(build: TeamBuild, path: Path, shape: WorkerShape) -> tuple[ToolRule, ...]:
    rules: list[ToolRule] = []
    for index, rule in enumerate(shape.rules):
        with build.at(*path, "rules", index):
            name, value = only_key(rule, "rule", "for example  - run_first: search")
            rules.append(_RULES[name](value) if isinstance(value, str) else cast("ToolRule", value))
    return tuple(rules)


def only_key(shape: Struct, what: str, hint: str) -> tuple[str, object]:
    """The one key of a table that has exactly one."""
    keys = {name: value for name, value in structs.asdict(shape).items() if value is not None}
    if len(keys) != 1:
        names = f" ({listed(keys)})" if keys else ""
        raise Invalid(f"must be exactly one {what}, and is {len(keys)}{names}; {hint}")
    return next(iter(keys.items()))


# --- checks


def make_checks(build: TeamBuild) -> dict[str, Check]:
    """The checks by name. What is wrong with them, or with who names them, is among the findings."""
    checks: dict[str, Check] = {}
    accepted = {name for worker in build.workers for name in worker.accept}
    members = [structs.replace(worker, accept=()) for worker in build.workers]
    for name, shape in build.shape.checks.items():
        with build.at("checks", name):
            check = _make_check(build, name, shape)
            declare_checks({name: check}, members)
            checks[name] = check
        if name not in accepted:
            words = "no worker names it under `accept`, so only a task of a plan of yours can be held to it"
            build.report(("checks", name), words, grave=False)
    for worker in build.workers:
        names = [name for name in worker.accept if name in checks or name not in build.shape.checks]
        with build.at("workers", worker.name, "accept"):
            Checks(checks, {}).vet_names(f"worker {worker.name!r}", names, worker.name)
    return checks


def _make_check(build: TeamBuild, name: str, shape: CheckShape) -> Check:
    keys = {key: value for key, value in structs.asdict(shape).items() if value not in (None, False)}
    kinds = [key for key in keys if key in CHECK_KINDS]
    is_rule = len(keys) > len(kinds)
    if len(kinds) + is_rule != 1:
        raise Invalid(
            f"{f'mixes {listed(keys)}' if keys else 'checks nothing'}; a check is one of {', '.join(CHECK_KINDS)}, "
            "or a rule of contains, matches, min_words, max_words, cites, has_number"
        )
    if shape.python is not None:
        check = named_object(build.source.folder, shape.python)
        if not callable(check) and not isinstance(check, Rule | Reviewer | Verifier):
            raise Invalid(f"{shape.python!r} is {type(check).__name__}, not a function of a result")
        return cast("Check", check)
    if shape.schema is not None:
        return read_schema(build.source.folder, shape.schema)
    if shape.reviewer is not None:
        return Reviewer(shape.reviewer)
    if shape.verifier:
        settings = shape.verifier if isinstance(shape.verifier, VerifierShape) else VerifierShape()
        prompt = build.prose(("checks", name, "verifier", "prompt"), settings.prompt)
        return Verifier(prompt, build.handle(settings.model) if settings.model else "")
    return structs.replace(Rule(), **keys)


# --- the strategy and the prompts of the supervisor


def make_strategy(build: TeamBuild) -> Strategy:
    """`strategy: route`, or `strategy: {route: {...}}`."""
    written = build.shape.supervisor.strategy
    if isinstance(written, str):
        return STRATEGIES[written]()
    with build.at("supervisor", "strategy"):
        _, value = only_key(written, "strategy", f"a team has exactly one: {', '.join(STRATEGIES)}")
        strategy = cast("Strategy", value)
        members = [worker for worker in build.workers if worker.every is None]
        if isinstance(strategy, Route):
            check_route(strategy, [worker.name for worker in members])
            check_embedding(strategy.embed)
            if strategy.router == "rules" and not strategy.rules:
                raise Invalid("routes by rules, and has none; write some under  rules:  phrase: worker")
        if isinstance(strategy, Broadcast):
            match = Match(strategy.match_all, strategy.match_some)
            if not any(fits(match, worker.tags) for worker in members):
                tags = sorted({tag for worker in members for tag in worker.tags})
                raise Invalid(f"no worker has these tags; the tags are {listed(tags) or 'none'}")
        return strategy
    return Whole()


def read_prompts(build: TeamBuild) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, written in structs.asdict(build.shape.supervisor.prompts).items():
        if written:
            path = ("supervisor", "prompts", name)
            texts[name] = build.prose(path, written)
            with build.at(*path):
                Prompts({name: texts[name]})
    return texts
