"""Teams: their workers, tools and memory; what a plan for a goal would take; how their workers are doing."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from msgspec import UNSET, structs
from starlette.requests import Request

from chargehand import __version__
from chargehand.agents.draft import draft, foreseen
from chargehand.agents.roles import Worker
from chargehand.engine.events import Entry, RunRequested
from chargehand.engine.lint import lint
from chargehand.engine.plan import Plan
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Agent
from chargehand.errors import Corrupt
from chargehand.evals.report import EvalReport
from chargehand.evals.report_files import list_reports, load_report
from chargehand.memory.archives import Archive, Filter, Passage
from chargehand.memory.blocks import PERSON, Block
from chargehand.memory.edits import Rethink
from chargehand.memory.session import OpenMemory
from chargehand.runtime.executor import Executor
from chargehand.runtime.stats import MAX_RUNS, health
from chargehand.server.api.operations import operation
from chargehand.server.api.shapes import (
    LATEST,
    ArchiveInfo,
    ArchiveList,
    BlockChange,
    BlockEdit,
    BlockInfo,
    BlockList,
    BlockVersion,
    CallerInfo,
    ChangeOrigin,
    HealthReport,
    History,
    HistoryQuery,
    PassageInfo,
    PassageList,
    PassagesAfter,
    PassageUses,
    PlanBody,
    PlanDraft,
    ReportList,
    RestoreBody,
    RouteBody,
    RouteDraft,
    SearchBody,
    SearchHit,
    SearchHits,
    TeamInfo,
    TeamLimits,
    TeamList,
    WorkerInfo,
    WorkerScore,
    show,
)
from chargehand.server.latest_runs import WorkerTimes, find_uses
from chargehand.server.routing import CALLER, ApiCaller
from chargehand.server.teams import Teams
from chargehand.server.tenant_runs import root_of
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, unknown
from chargehand.team import Team
from chargehand.tools.tool import Tool

_MAX_DRAFTS = 8
_FRESH: Seconds = 2.0


class Drafts:
    """So many plans are drafted at once; others wait. `tenant.part(Drafts)` is it."""

    def __init__(self, _tenant: Tenant) -> None:
        self.turn = asyncio.Semaphore(_MAX_DRAFTS)


@operation("GET", "/api/me")
async def show_caller(tenant: Tenant, request: Request) -> CallerInfo:
    """Who is calling, and what the token allows."""
    caller: ApiCaller = request.scope[CALLER]
    return CallerInfo(
        tenant=caller.tenant,
        key=caller.key,
        name=caller.name,
        scopes=caller.scopes,
        version=__version__,
        now=time.time(),
        unlocked=tenant.settings.unlocked,
    )


@operation("GET", "/api/teams")
async def list_teams(tenant: Tenant) -> TeamList:
    """The teams of this server."""
    return TeamList(tuple(map(_team_info, tenant.part(Teams).teams.values())))


@operation("GET", "/api/teams/{team}")
async def show_team(tenant: Tenant, team: str) -> TeamInfo:
    """A team: its workers, how it is led, examples, limits."""
    return _team_info(tenant.part(Teams).get(team))


def _team_info(team: Team) -> TeamInfo:
    budget = team.budget
    limits = team.policy.limits
    return TeamInfo(
        name=team.name,
        strategy=str(type(team.supervisor.strategy).__struct_config__.tag),
        workers=tuple(map(_worker_info, team.spec.workers, team.members)),
        examples=team.examples,
        limits=TeamLimits(
            seconds=team.timeout,
            usd=budget.usd,
            tokens=budget.tokens,
            calls=budget.calls,
            max_tasks=limits.max_tasks,
            max_depth=limits.max_depth,
            width=limits.width,
        ),
        approve=team.policy.approve,
        memory=team.remembers,
        notice=team.notice,
    )


def _worker_info(worker: Worker, agent: Agent) -> WorkerInfo:
    acts = tuple(tool.name for tool in worker.tools if isinstance(tool, Tool) and tool.effect == "effect")
    return structs.replace(show(agent, WorkerInfo), acts=acts)


@operation("POST", "/api/teams/{team}/plan", scope="run")
async def draft_plan(tenant: Tenant, team: str, body: PlanBody) -> PlanDraft:
    """A plan for a goal, checked and reckoned; nothing is done about it. One that is given is checked as it is:
    findings that are `grave` keep it from running, and there is no forecast then.
    """  # noqa: D205 - it is one summary
    served = await tenant.part(Teams).of(team)
    tenant.runs.check()
    team_in_budget = await served.keep_budget()
    request = team_in_budget.request(body.goal, time.time())
    request = structs.replace(request, roster=await tenant.part(WorkerTimes).fill_in(team, request.roster))
    if body.plan is not None:
        return _checked_plan(served.executor, request, body.plan)
    async with tenant.part(Drafts).turn:
        drafted = await draft(served.executor, request)
    return PlanDraft(
        plan=drafted.plan,
        findings=drafted.findings,
        forecast=drafted.forecast,
        unserved=drafted.unserved,
        notes=(*(note.text for note in team_in_budget.budget_notes()), *drafted.notes),
        usd=None if drafted.spent is None else drafted.spent.usd,
    )


def _checked_plan(executor: Executor, request: RunRequested, plan: Plan) -> PlanDraft:
    linted = lint(plan.tasks, request.roster, request.policy.limits)
    checked = Plan(linted.tasks, plan.combine, plan.goal or request.goal)
    reckoned = None if linted.errors else foreseen(executor, checked, request)
    return PlanDraft(plan=checked, findings=linted.findings, forecast=reckoned, unserved=(), notes=(), usd=0.0)


@operation("POST", "/api/teams/{team}/route", scope="run")
async def draft_route(tenant: Tenant, team: str, body: RouteBody) -> RouteDraft:
    """Which workers would get a request, and how sure that is; nothing is done about it."""
    served = await tenant.part(Teams).of(team)
    tenant.runs.check()
    team_in_budget = await served.keep_budget()
    async with tenant.part(Drafts).turn:
        drafted = await draft(served.executor, team_in_budget.request(body.goal, time.time()))
    route = drafted.route
    in_plan = tuple(dict.fromkeys(task.worker for task in drafted.plan.tasks))
    return RouteDraft(
        workers=in_plan if route is None else route.workers,
        router="plan" if route is None else route.router,
        confidence=None if route is None else route.confidence,
        scores=() if route is None else tuple(WorkerScore(name, score) for name, score in route.scores),
        unserved=drafted.unserved,
        notes=drafted.notes,
        usd=None if drafted.spent is None else drafted.spent.usd,
    )


@operation("GET", "/api/teams/{team}/evals")
async def list_evals(tenant: Tenant, team: str) -> ReportList:
    """The reports that `chargehand eval` saved for a team, the newest first."""
    folder = tenant.part(Teams).report_folder(team)
    return ReportList(tuple(await asyncio.to_thread(list_reports, folder, team)))


@operation("GET", "/api/teams/{team}/evals/{report}")
async def show_eval(tenant: Tenant, team: str, report: str) -> EvalReport:
    """A saved report: cases, measures with their intervals, gates, changes since the baseline, counts of routes."""
    folder = tenant.part(Teams).report_folder(team)
    return await asyncio.to_thread(load_report, folder, team, report)


class LatestHealth:
    """What was found last: looking again costs as much as it did. `tenant.part(LatestHealth)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._last: HealthReport | None = None

    async def look(self, now: Instant) -> HealthReport:
        if self._last is None or not 0 <= now - self._last.at < _FRESH:
            journal = self._tenant.journal
            rows = await journal.latest(before=LATEST, limit=MAX_RUNS)
            driven_now = {row.run for row in rows if row.held}
            runs: list[tuple[str, list[Entry]]] = []
            driven: set[str] = set()
            for name in (row.run for row in rows):
                with suppress(Corrupt):  # the others are worth a look all the same
                    entries = await journal.read(name)
                    runs.append((name, entries))
                    root = root_of(name, entries[0].event)
                    if root in driven_now or self._tenant.runs.is_running(root):
                        driven.add(name)
            self._last = HealthReport(health(runs, now, driven=driven), len(runs), now)
        return self._last


@operation("GET", "/api/health/workers")
async def show_health(tenant: Tenant) -> HealthReport:
    """How workers, tools and models are doing, by the latest runs."""
    return await tenant.part(LatestHealth).look(time.time())


# --- memory


_MAX_LISTED = 1000
_BLOCK = "/api/teams/{team}/blocks/{block}"


@asynccontextmanager
async def _memory(tenant: Tenant, name: str) -> AsyncGenerator[OpenMemory]:
    team = (await tenant.part(Teams).of(name)).team
    if not team.remembers:
        raise Problem(404, "unknown", f"team {name!r} remembers nothing; give it a memory in its file")
    async with team.remembering() as memory:
        yield memory


async def _block(memory: OpenMemory, which: str) -> Block:
    """By its id or its label."""
    by_id = await memory.catalog.get(Block, which) if which.startswith("block-") else None
    blocks = [by_id] if by_id else await memory.catalog.find(Block, name=which, limit=1)
    if not blocks:
        all_blocks = await memory.catalog.find(Block, limit=_MAX_LISTED)
        raise unknown("block", which, [block.label for block in all_blocks])
    return blocks[0]


@operation("GET", "/api/teams/{team}/blocks")
async def list_blocks(tenant: Tenant, team: str) -> BlockList:
    """The blocks of a team."""
    async with _memory(tenant, team) as memory:
        blocks = await memory.catalog.find(Block, limit=_MAX_LISTED)
    return BlockList(tuple(show(block, BlockInfo) for block in blocks))


@operation("GET", _BLOCK)
async def show_block(tenant: Tenant, team: str, block: str, query: BlockVersion) -> BlockInfo:
    """A block, by its label or its id, as it is or with the text of an earlier version."""
    async with _memory(tenant, team) as memory:
        current = await _block(memory, block)
        if query.version is UNSET:
            return show(current, BlockInfo)
        text = await _text_at(memory, current, query.version)
        return show(structs.replace(current, value=text, version=query.version), BlockInfo)


async def _text_at(memory: OpenMemory, block: Block, version: int) -> str:
    if version > block.version:
        raise unknown("version", str(version))
    return await memory.catalog.text_at(block.id, version)


@operation("POST", f"{_BLOCK}/restore", scope="run")
async def restore_block(tenant: Tenant, team: str, block: str, body: RestoreBody) -> BlockInfo:
    """Give a block the text of an earlier version, as a new version."""
    async with _memory(tenant, team) as memory:
        current = await _block(memory, block)
        text = await _text_at(memory, current, body.version)
        changed = await memory.catalog.edit(current.id, Rethink(text), PERSON, expect=current.version)
    return show(changed, BlockInfo)


@operation("GET", f"{_BLOCK}/history")
async def show_history(tenant: Tenant, team: str, block: str, query: HistoryQuery) -> History:
    """What became of a block, the latest change first."""
    async with _memory(tenant, team) as memory:
        current = await _block(memory, block)
        changes = await memory.catalog.history(current.id, limit=query.limit, before=query.before)
    has_more = len(changes) == query.limit and changes[-1].version > 1
    page = tuple(show(change, BlockChange) for change in changes)
    return History(page, changes[-1].version if has_more else None)


@operation("PUT", _BLOCK, scope="run")
async def edit_block(tenant: Tenant, team: str, block: str, body: BlockEdit) -> BlockInfo:
    """Write a block anew; 409 if it has changed since."""
    async with _memory(tenant, team) as memory:
        current = await _block(memory, block)
        changed = await memory.catalog.edit(current.id, Rethink(body.value), PERSON, expect=body.version)
    return show(changed, BlockInfo)


@operation("GET", "/api/teams/{team}/archives")
async def list_archives(tenant: Tenant, team: str) -> ArchiveList:
    """The archives of a team."""
    archives: list[ArchiveInfo] = []
    async with _memory(tenant, team) as memory:
        for archive in await memory.catalog.find(Archive, limit=_MAX_LISTED):
            passages, _ = await memory.catalog.count(archive.id)
            archives.append(
                ArchiveInfo(
                    id=archive.id,
                    name=archive.name,
                    description=archive.description,
                    embedding=archive.embedding,
                    passages=passages,
                )
            )
    return ArchiveList(tuple(archives))


@operation("GET", "/api/teams/{team}/archives/{archive}/passages")
async def list_passages(tenant: Tenant, team: str, archive: str, query: PassagesAfter) -> PassageList:
    """The passages of an archive, by its name or id, in the order of inserting."""
    async with _memory(tenant, team) as memory:
        archive_id = await _archive_id(memory, archive)
        passages = await memory.catalog.passages(archive_id, after=query.after, limit=query.limit)
    page = tuple(map(_passage_info, passages))
    return PassageList(page, passages[-1].id if len(passages) == query.limit else None)


@operation("GET", "/api/teams/{team}/archives/{archive}/passages/{passage}/uses")
async def list_passage_uses(tenant: Tenant, team: str, archive: str, passage: str) -> PassageUses:
    """The tasks that found a passage when they searched, by the latest runs of the team."""
    async with _memory(tenant, team) as memory:
        await _archive_id(memory, archive)
    return await find_uses(tenant, team, passage)


async def _archive_id(memory: OpenMemory, archive: str) -> str:
    """The id of an archive, by its name or id; 404 where there is none."""
    archives = await memory.catalog.find(Archive, limit=_MAX_LISTED)
    for candidate in archives:
        if archive in (candidate.id, candidate.name):
            return candidate.id
    raise unknown("archive", archive, [candidate.name for candidate in archives])


def _passage_info(passage: Passage) -> PassageInfo:
    return PassageInfo(
        id=passage.id,
        text=passage.text,
        tags=passage.tags,
        source=passage.origin.source,
        tainted=passage.origin.tainted,
        created=passage.created,
        origin=show(passage.origin, ChangeOrigin),
    )


@operation("POST", "/api/teams/{team}/search")
async def search_archives(tenant: Tenant, team: str, body: SearchBody) -> SearchHits:
    """The passages that fit a question best."""
    async with _memory(tenant, team) as memory:
        archives = await memory.catalog.find(Archive, limit=_MAX_LISTED)
        by_name = {key: archive for archive in archives for key in (archive.name, archive.id)}
        for name in body.archives:
            if name not in by_name:
                raise unknown("archive", name, [archive.name for archive in archives])
        wanted = [by_name[name] for name in body.archives] or archives
        within = Filter(tags=body.tags)
        hits = await memory.search(wanted, body.query, within=within, limit=body.limit) if wanted else []
    results: list[SearchHit] = []
    for hit in hits:
        passage = hit.passage
        results.append(
            SearchHit(
                id=passage.id,
                archive=by_name[passage.archive].name if passage.archive in by_name else passage.archive,
                text=passage.text,
                score=hit.score,
                why=hit.why,
                tags=passage.tags,
                source=passage.origin.source,
                tainted=passage.origin.tainted,
                created=passage.created,
                origin=show(passage.origin, ChangeOrigin),
            )
        )
    return SearchHits(tuple(results))
