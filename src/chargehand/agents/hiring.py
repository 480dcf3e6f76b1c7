"""From what a team declares to the crew that does its work. Who drives the crew is not known here."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from chargehand.agents.answering import Writer
from chargehand.agents.equip import equip, listed, nameable, skills, toolset
from chargehand.agents.factory import Factory
from chargehand.agents.granted import Furnished
from chargehand.agents.lead import Lead
from chargehand.agents.loop import Kit
from chargehand.agents.mail import Post, allowance
from chargehand.agents.money import Purse, supervision
from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import shared_blocks
from chargehand.agents.staff import Staff, Workshop
from chargehand.agents.subteam import Subteam, Team, least
from chargehand.agents.ways import Route, Way, Whole
from chargehand.agents.worker import Worker
from chargehand.errors import Invalid
from chargehand.memory.embedding import Embedding
from chargehand.memory.opened import OpenMemory
from chargehand.models.find import Finder
from chargehand.models.messages import Settings
from chargehand.models.model import Model
from chargehand.models.subject import WorkerCard
from chargehand.terms.budget import Amount, Budget, Ledger
from chargehand.terms.plan import Combine
from chargehand.terms.policy import Seconds
from chargehand.terms.roster import Agent, Roster

Find: TypeAlias = Callable[[str], Model]
_WHOLE = Whole()


class Hiring(Struct, frozen=True):
    """Everything a crew is made of. `models` are those of the workers, the planner and the judge."""

    workers: tuple[Worker, ...]
    models: tuple[str | Model, str | Model, str | Model]
    prompts: Prompts
    instructions: str = ""
    settings: Settings = Settings()
    way: Way = _WHOLE
    combine: Combine | None = None
    own: Callable[..., object] | None = None
    stream: bool = False
    review: bool = False
    factory: Factory | None = None

    def __post_init__(self) -> None:
        if not self.workers and self.factory is None:
            raise Invalid("a team needs at least one worker, or a factory that makes them")
        for worker in self.workers:
            equip(worker, ())
        if isinstance(self.way, Route):
            from chargehand.agents.routing import check  # noqa: PLC0415 - a team pays only for the way it is led

            check(self.way, [one.name for one in self.workers])

    def roster(self, budget: Budget) -> Roster:
        """The team as the scheduler sees it: workers first, then the factory."""
        agents = [listed(one, _handle(one.model or self.models[0])) for one in self.workers]
        made = self.factory
        if made is not None:
            tools = tuple(toolset(f"factory {made.name!r}", made.tools))
            model = _handle(made.model or self.models[0])
            agents.append(Agent(made.name, made.does, (), tools, model, capacity=made.capacity))
        return Roster(tuple(agents), supervision(budget, self.models[1:]))

    def cards(self) -> tuple[WorkerCard, ...]:
        """The team as a planner sees it."""
        cards = [equip(one, ()).card for one in self.workers]
        if self.factory is not None:
            tools = toolset(f"factory {self.factory.name!r}", self.factory.tools)
            cards.append(WorkerCard(self.factory.name, self.factory.does, (), skills(tools)))
        return tuple(cards)

    @property
    def teams(self) -> tuple[Team, ...]:
        return tuple(one.team for one in self.workers if one.team is not None)

    @asynccontextmanager
    async def at_work(self, budget: Budget, finder: Finder) -> AsyncGenerator[dict[str, Subteam]]:
        """The teams among the workers, by name, ready to work: they reckon with what is capped here."""
        async with AsyncExitStack() as stack:
            found: dict[str, Subteam] = {}
            for one in self.workers:
                if one.team is not None:
                    bounded = one.team.bounded(budget=least(one.team.budget, budget))
                    crew = await stack.enter_async_context(bounded.crew(finder))
                    found[one.name] = Subteam(one.name, one.team, crew, one.estimate)
            yield found

    def staff(
        self, find: Find, roster: Roster, budget: Budget, most_tasks: int, memory: OpenMemory | None,
        crowd: Sequence[Furnished], teams: Mapping[str, Subteam], embedding: Embedding | None = None,
    ) -> Staff:  # fmt: skip
        """The crew, its models found."""
        usual, planner, judge = (_found(find, one) for one in self.models)
        capped = Ledger(budget).capped
        kit = Kit(self.prompts, Purse(capped=capped))
        models = {
            one.name: [_found(find, model) for model in (one.model or usual, *one.fallback_models)]
            for one in self.workers
        }
        members = roster.agents[: len(self.workers)]
        post = Post(members, {one.name: allowance(one, models[one.name]) for one in self.workers if capped})
        named = {**nameable(), **post.tools()}
        workers = {
            one.worker.name: equip(one.worker, models[one.worker.name], {**named, **one.named}, one.desk)
            for one in crowd
            if one.worker.team is None
        }
        shared = None if memory is None else partial(shared_blocks, memory)
        lead = Lead(
            planner, self.prompts, self.cards(), self.instructions, self.settings, most_tasks, stream=self.stream,
            review=self.review, combine=self.combine, reserve=roster.supervision, shared=shared, embedding=embedding,
        )  # fmt: skip
        writer = Writer(judge, self.prompts, self.instructions, self.settings, self.own, roster.supervision, shared)
        made = self.factory
        workshop = None if made is None else Workshop(made, _found(find, made.model) if made.model else usual)
        return Staff(workers, lead, writer, kit, workshop, post, way=self.way, teams=teams)

    @property
    def routes_by_meaning(self) -> bool:
        return isinstance(self.way, Route) and self.way.router in ("auto", "meaning", "hybrid")

    def notice(self, find: Find) -> str:
        """What people must know about the models behind this team."""
        wanted = [
            *self.models,
            *(model for one in self.workers for model in (one.model, *one.fallback_models) if model),
        ]
        wanted += [self.factory.model] if self.factory is not None and self.factory.model else []
        notices = [_found(find, one).card.notice for one in wanted]
        notices += [one.team.notice for one in self.workers if one.team is not None]
        return " ".join(dict.fromkeys(one for one in notices if one))


def lent(
    team: Team, name: str, does: str, tags: Sequence[str], estimate: Amount, timeout: Seconds | None
) -> Worker:  # fmt: skip
    """A team as a worker of another."""
    said = does or "; ".join(f"{one.name}: {one.does}" for one in team.roster.agents if one.does)
    usual = min(1.25 * team.seconds, team.seconds + 10)  # what leaves its run all of its own seconds
    return Worker(
        name or team.name, said, tags=tags, estimate=estimate, timeout=usual if timeout is None else timeout, team=team
    )


def _handle(model: str | Model) -> str:
    return model if isinstance(model, str) else model.card.handle


def _found(find: Find, model: str | Model) -> Model:
    return find(model) if isinstance(model, str) else model
