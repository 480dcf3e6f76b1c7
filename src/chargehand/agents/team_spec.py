"""From what a team declares to the executor that does its work. Who drives the executor is not known here."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Self, TypeVar, cast

from msgspec import Struct, field, structs

from chargehand.agents.checks import NO_CHECKS, Checks, Verifier
from chargehand.agents.executor import AgentExecutor, WorkerMaker
from chargehand.agents.loop import TeamResources
from chargehand.agents.messages import MessageTools, allowance, check_contacts
from chargehand.agents.nested import RunnableTeam, Subteam
from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import shared_blocks
from chargehand.agents.roles import Factory, Supervisor, Worker, check_worker_name
from chargehand.agents.setup import (
    ReadyWorker,
    check_worker,
    hosted_tools,
    make_ready,
    make_ready_with_memory,
    nameable,
    roster_agent,
    worker_card,
)
from chargehand.agents.spending import Spending, supervision, unpriced_handles
from chargehand.agents.strategies import Route
from chargehand.agents.strategies.route import check_route
from chargehand.agents.supervision import Lead
from chargehand.agents.tool_calls import ToolBreakers
from chargehand.agents.writer import Writer
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.declared import WrittenDuration
from chargehand.engine.plan import Combine, digest
from chargehand.engine.policy import Breaking, Policy
from chargehand.engine.roster import Agent, Roster, TeamMembers
from chargehand.errors import Invalid
from chargehand.memory.archives import Embedding
from chargehand.memory.session import OpenMemory
from chargehand.models.model import Model
from chargehand.models.providers import BUILT_IN
from chargehand.models.request_facts import WorkerCard
from chargehand.models.resolve import Finder, Lookup, check_handle, offered_tools
from chargehand.models.wrappers import (
    AnyModel,
    HedgedModel,
    Hedging,
    ReplicaLoad,
    ReplicaPool,
    model_handle,
    pool_handle,
)
from chargehand.runtime.executor import Listener
from chargehand.runtime.load import ThreadLoad
from chargehand.tools.provider_tool import check_offered
from chargehand.tools.tool import Tool
from chargehand.tools.toolbox import OpenToolboxes


class TeamSpec(Struct, frozen=True):
    """Everything an executor is made of. Workers in the `background` get no tasks of a plan."""

    workers: tuple[Worker, ...]
    supervisor: Supervisor
    prompts: Prompts
    background: tuple[Worker, ...] = ()
    checks: Checks = NO_CHECKS
    hedging: Hedging | None = None
    tool_breakers: ToolBreakers = field(default_factory=lambda: ToolBreakers(Breaking()))
    load: ThreadLoad = field(default_factory=ThreadLoad)
    replica_loads: dict[str, ReplicaLoad] = field(default_factory=dict[str, ReplicaLoad])

    def __post_init__(self) -> None:
        if not self.workers and self.supervisor.factory is None:
            only = "; who has `every` works only after turns" if self.background else ""
            raise Invalid(f"a team needs at least one worker, or a factory that makes them{only}")
        for worker in self.everybody:
            check_worker_name(worker.name)
            tools = check_worker(worker)
            if hosted := hosted_tools(tools):
                for model in self._worker_models(worker):
                    offered = offered_tools(model) if isinstance(model, str) else model.card.provider_tools
                    check_offered(f"worker {worker.name!r}", hosted, model_handle(model), offered)
        for model in self._named_models():
            if isinstance(model, str):
                check_handle(model)
        check_contacts(self.workers)
        strategy = self.supervisor.strategy
        if isinstance(strategy, Route):
            check_route(strategy, [worker.name for worker in self.workers])

    @property
    def models(self) -> tuple[str | Model, str | Model, str | Model]:
        """The models of the workers, the planner and the judge."""
        model = _role_model(self.supervisor.model)
        return model, _role_model(self.supervisor.planner or model), _role_model(self.supervisor.judge or model)

    @property
    def combine(self) -> Combine | None:
        """How results are combined, if that is fixed and no function of the user's."""
        combine = self.supervisor.combine
        return None if callable(combine) else combine

    def roster(self, budget: Budget) -> Roster:
        """The team as the scheduler sees it: workers first, then the factory."""
        agents = [self.agent(worker) for worker in self.workers]
        # what a made worker returns is not used again: the next one may be another
        agents += [structs.replace(self.agent(worker), spec="") for worker in self._made_workers]
        strategy = self.supervisor.strategy
        return Roster(
            agents=tuple(agents),
            supervision=supervision(budget, self.models[1:], self.supervisor.settings),
            planner=model_handle(self.models[1]),
            generalist=strategy.generalist if isinstance(strategy, Route) else "",
        )

    def agent(self, worker: Worker) -> Agent:
        """One of them as the scheduler sees it."""
        handles = [model_handle(model) for model in self._called_models(worker)]
        agent = roster_agent(worker, pool_handle(handles))
        names = tuple(self.checks.by_name)  # all of them: a task may name what its worker does not
        marks = (self.checks.mark(names),) if names else ()
        fallback_models = tuple(model_handle(_role_model(model)) for model in worker.fallback_models)
        return structs.replace(agent, spec=digest(worker.name, agent.spec, *marks), fallback_models=fallback_models)

    @property
    def background_agents(self) -> tuple[tuple[Agent, int], ...]:
        """Those in the background, and after how many turns each of them works."""
        return tuple((self.agent(worker), worker.every or 1) for worker in self.background)

    def cards(self) -> tuple[WorkerCard, ...]:
        """The team as a planner sees it."""
        return tuple(worker_card(worker, check_worker(worker)) for worker in (*self.workers, *self._made_workers))

    @property
    def everybody(self) -> tuple[Worker, ...]:
        return self.workers + self.background

    @property
    def _made_workers(self) -> tuple[Worker, ...]:
        """What stands for the workers that a factory makes."""
        return () if self.supervisor.factory is None else (self.supervisor.factory.stand_in,)

    @property
    def teams(self) -> tuple[RunnableTeam, ...]:
        return tuple(worker.team for worker in self.workers if worker.team is not None)

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Self]:
        """The same with tools that open their toolboxes when they are called; those are closed with the context."""
        owners = [*self.everybody, *(() if self.supervisor.factory is None else (self.supervisor.factory,))]
        if not any(isinstance(tool, Tool) and tool.toolbox for owner in owners for tool in owner.tools):
            yield self
            return
        async with OpenToolboxes() as toolboxes:
            yield structs.replace(
                self,
                workers=tuple(_connected(worker, toolboxes) for worker in self.workers),
                background=tuple(_connected(worker, toolboxes) for worker in self.background),
                supervisor=_with_connected_factory(self.supervisor, toolboxes),
            )

    @asynccontextmanager
    async def at_work(self, budget: Budget, finder: Finder) -> AsyncGenerator[dict[str, Subteam]]:
        """The teams among the workers, by name, ready to work: they reckon with what is capped here."""
        async with AsyncExitStack() as stack:
            subteams: dict[str, Subteam] = {}
            for worker in self.workers:
                if worker.team is not None:
                    team = await worker.team.keep_budget(finder)
                    bounded = team.bounded(budget=team.budget.limited(budget.caps))
                    executor = await stack.enter_async_context(bounded.executor(finder))
                    queue = worker.queue or team.queue
                    subteams[worker.name] = Subteam(worker.name, team, executor, worker.estimate, queue)
            yield subteams

    async def unpriced_models(self, finder: Finder, floor: Amount) -> tuple[str, ...]:
        """The handles of the models that a cap in dollars could not be kept with: their price is unknown.

        A worker's `estimate` stands in for the price of its models, and the `floor` for that of the supervisor's.
        """
        declared: list[str | Model] = []
        if not floor.micros:
            declared += [*self.models[1:], *(model for _, model in self._verifiers())]
        for worker in (*self.everybody, *self._made_workers):
            if not worker.estimate.micros:
                declared += self._worker_models(worker)
        models = [_find_model(finder, model) for model in declared]
        await finder.prepare()  # it looks up the prices of what was found
        handles = list(unpriced_handles(models))
        for team in self.teams:
            handles += await team.unpriced_models(finder)
        return tuple(dict.fromkeys(handles))

    async def executor(
        self,
        finder: Finder,
        roster: Roster,
        budget: Budget,
        policy: Policy,
        memory: OpenMemory | None,
        teams: Mapping[str, Subteam],
        embedding: Embedding | None = None,
        members: TeamMembers | None = None,
        listeners: Sequence[Listener] = (),
    ) -> AgentExecutor:
        """The executor, its models found."""
        planner, judge = (_find_model(finder, model) for model in self.models[1:])
        spending = Spending(budget, finder.observations)
        resources = TeamResources(self.prompts, spending, self.tool_breakers)
        models = {worker.name: self._models_of(worker, finder) for worker in self.everybody}
        workers = await self._ready_workers(models, roster, memory, capped=spending.capped)
        shared = None if memory is None else partial(shared_blocks, memory)
        lead = Lead(
            model=planner,
            prompts=self.prompts,
            cards=self.cards(),
            instructions=self.supervisor.instructions,
            settings=self.supervisor.settings,
            max_tasks=policy.limits.max_tasks,
            spending=spending,
            stream=self.supervisor.stream_plan,
            review=self.supervisor.review,
            asks=self.supervisor.ask_person,
            combine=self.combine,
            reserve=roster.supervision,
            shared=shared,
            embedding=embedding,
        )
        return AgentExecutor(
            workers=workers,
            lead=lead,
            writer=self._writer(judge, lead),
            resources=resources,
            worker_maker=self._worker_maker(finder),
            strategy=self.supervisor.strategy,
            teams=teams,
            functions={worker.name: worker.call for worker in self.workers if worker.call is not None},
            checks=self.checks,
            verifiers={name: _find_model(finder, model) for name, model in self._verifiers()},
            members=members,
            listeners=listeners,
            load=self.load.view if isinstance(self.supervisor.strategy, Route) else None,
        )

    def _writer(self, judge: Model, lead: Lead) -> Writer:
        """Writes answers by the prompts, the settings and the money that the planner works with."""
        combine = self.supervisor.combine
        return Writer(
            model=judge,
            prompts=lead.prompts,
            instructions=lead.instructions,
            settings=lead.settings,
            spending=lead.spending,
            own=combine if callable(combine) else None,
            reserve=lead.reserve,
            shared=lead.shared,
            takes_turns=self.supervisor.plan is None and self.supervisor.strategy.takes_turns,
        )

    def _worker_models(self, worker: Worker) -> list[str | Model]:
        """The models that a worker names: those it calls, then those it falls back to."""
        if worker.is_delegated:
            return []
        return [*self._called_models(worker), *map(_role_model, worker.fallback_models)]

    def _called_models(self, worker: Worker) -> list[str | Model]:
        """Those that share its calls, or the one that it calls."""
        return [_role_model(model) for model in worker.replicas or (worker.model or self.models[0],)]

    def _models_of(self, worker: Worker, finder: Finder) -> list[Model]:
        """The models of a worker, found: the one it calls, then those it falls back to."""
        models = [_find_model(finder, model) for model in self._worker_models(worker)]
        if worker.replicas:
            count = len(worker.replicas)
            models[:count] = [ReplicaPool(models[:count], self.replica_loads)]
        if self.hedging is not None and models:
            models[0] = HedgedModel(models[0], models[1] if len(models) > 1 else models[0], self.hedging)
        return models

    async def _ready_workers(
        self, models: Mapping[str, Sequence[Model]], roster: Roster, memory: OpenMemory | None, *, capped: bool
    ) -> dict[str, ReadyWorker]:
        """The workers that are no teams and no functions, ready to work, by name."""
        messages = MessageTools(
            agents=roster.agents[: len(self.workers)],
            allowances={worker.name: allowance(worker, models[worker.name]) for worker in self.workers if capped},
            contacts={worker.name: worker.contacts for worker in self.workers},
        )
        ready: dict[str, ReadyWorker] = {}
        for worker in self.everybody:
            if worker.is_delegated:
                continue
            own = messages.tools(worker.name) if worker.contacts else {}
            if memory is None:
                ready[worker.name] = make_ready(worker, models[worker.name], {**nameable(), **own})
            else:
                available = {**MessageTools().tools(), **own}
                ready[worker.name] = await make_ready_with_memory(worker, models[worker.name], available, memory)
        return ready

    def _worker_maker(self, finder: Finder) -> WorkerMaker | None:
        factory = self.supervisor.factory
        return None if factory is None else WorkerMaker(factory, _find_model(finder, factory.model or self.models[0]))

    def _verifiers(self) -> list[tuple[str, str | Model]]:
        """The checks that name a model of their own."""
        every = self.checks.by_name.items()
        return [(name, check.model) for name, check in every if isinstance(check, Verifier) and check.model]

    def route_embedding(self, lookup: Lookup) -> Embedding | None:
        """What a route of this team compares by; None where it is not led by one that compares meanings."""
        if not isinstance(self.supervisor.strategy, Route) or self.supervisor.strategy.router not in (
            "auto",
            "meaning",
            "hybrid",
        ):
            return None
        from chargehand.agents.strategies.route import find_route_embedding  # noqa: PLC0415 - only routes need it

        return find_route_embedding(self.supervisor.strategy, self.cards(), lookup)

    def _named_models(self) -> list[str | Model]:
        """Every model that the team names."""
        models: list[str | Model] = [*self.models, *(model for _, model in self._verifiers())]
        for worker in (*self.everybody, *self._made_workers):
            models += self._worker_models(worker)
        return models

    def _asked_models(self, *, plans: bool) -> list[str | Model]:
        """Every model that a run may ask; the planner's where it `plans`. A fixed plan and functions ask none."""
        _, planner, judge = self.models
        models: list[str | Model] = [model for _, model in self._verifiers()]
        models += [planner] if plans else []
        models += [judge] if self._asks_judge() else []
        for worker in (*self.everybody, *self._made_workers):
            models += self._worker_models(worker)
        return models

    def _asks_judge(self) -> bool:
        """Whether the judge's model writes answers or verifies results."""
        checks = self.checks.by_name.values()
        if any(isinstance(check, Verifier) and not check.model for check in checks):
            return True
        combine = self.supervisor.combine
        if combine is None and self.supervisor.plan is not None:
            combine = self.supervisor.plan.combine
        return not callable(combine) and combine not in ("forward", "none")

    def notice(self, finder: Finder, *, plans: bool) -> str:
        """What people must know about the models behind this team; about the planner's where it `plans`."""
        cards = [_find_model(finder, model).card for model in self._asked_models(plans=plans)]
        notices = [card.notice for card in cards]
        if len({card.reads_facts for card in cards}) > 1:  # then it would not be true as it stands
            notices = [PARTLY if card.reads_facts else card.notice for card in cards]
        notices += [worker.team.notice for worker in self.workers if worker.team is not None]
        return " ".join(dict.fromkeys(notice for notice in notices if notice))


PARTLY = (
    f"Part of this is not the work of a language model: where the model is `{BUILT_IN}`, a small set of rules "
    "decides and writes."
)
"""What people must know about a team of which only some work without a language model."""


def lent(
    team: RunnableTeam,
    name: str,
    description: str,
    tags: Sequence[str],
    estimate: Amount,
    timeout: WrittenDuration | None,
) -> Worker:
    """A team as a worker of another."""
    summary = description or "; ".join(
        f"{agent.name}: {agent.description}" for agent in team.roster.agents if agent.description
    )
    usual = min(1.25 * team.timeout, team.timeout + 10)  # what leaves its run all of its own time
    return Worker(
        name or team.name,
        summary,
        tags=tags,
        estimate=estimate,
        timeout=usual if timeout is None else timeout,
        team=team,
    )


_Owner = TypeVar("_Owner", Worker, Factory)


def _connected(owner: _Owner, toolboxes: OpenToolboxes) -> _Owner:
    return structs.replace(owner, tools=toolboxes.connect(owner.tools))


def _with_connected_factory(supervisor: Supervisor, toolboxes: OpenToolboxes) -> Supervisor:
    if supervisor.factory is None:
        return supervisor
    return structs.replace(supervisor, factory=_connected(supervisor.factory, toolboxes))


def _role_model(model: AnyModel) -> str | Model:
    """A model of a worker or supervisor, which has made one of whatever it was given."""
    return cast("str | Model", model)


def _find_model(finder: Finder, model: str | Model) -> Model:
    return finder.find(model) if isinstance(model, str) else finder.with_price(model)
