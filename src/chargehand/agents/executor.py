"""The executor of a team: workers at their loops, functions and teams as workers, a supervisor."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from chargehand.agents import planner
from chargehand.agents.answer import answer
from chargehand.agents.checks import NO_CHECKS, Checks
from chargehand.agents.inputs import read_inputs, request_text
from chargehand.agents.loop import Attempt, TeamResources, work
from chargehand.agents.nested import Subteam
from chargehand.agents.roles import Factory, Worker
from chargehand.agents.setup import ReadyWorker, make_ready, skills, toolset
from chargehand.agents.shape import find_json
from chargehand.agents.spending import cut_off, supervision
from chargehand.agents.strategies import Strategy, Whole
from chargehand.agents.supervision import Lead
from chargehand.agents.tool_calls import look_up_call
from chargehand.agents.writer import Writer
from chargehand.code_errors import error_in, mistake_failure
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.events import FileReference
from chargehand.engine.failure import Failure, Gap, Question
from chargehand.engine.owed import Brief
from chargehand.engine.plan import digest
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import TeamMembers
from chargehand.engine.state import Step
from chargehand.engine.value import decode_value
from chargehand.errors import Invalid
from chargehand.models.artifacts import WorkerOutput
from chargehand.models.messages import Message, Reply, Request
from chargehand.models.model import Model
from chargehand.models.request_facts import Making
from chargehand.runtime.executor import Done, Executor, Listener, Proposal, Refined, StepContext, WorkFailed
from chargehand.runtime.load import LoadView

# --- workers that are functions: an agent of another framework, a service, a script


class Assignment(Struct, frozen=True):
    """One attempt at a task, for the function that makes it."""

    goal: str
    """What the run was asked for."""
    task: str
    """The task's id."""
    instruction: str
    """What is to be done."""
    inputs: Mapping[str, object] = {}
    """The results of the tasks it needs, by their ids: `{"text": ...}` for text, else plain data."""
    gaps: tuple[Gap, ...] = ()
    """What it needs and does not get."""
    files: tuple[FileReference, ...] = ()
    """The files it is given: `await context.read_file(file.id)` has the bytes of one."""
    attempt: int = 1
    """Which attempt of the task: 1, 2, 3 …"""
    failure: str = ""
    """Why the last attempt failed."""
    until: Instant = 0.0
    """When its time is over: the function is cancelled then."""
    worker: str = ""
    """Who makes it."""
    key: str = ""
    """An idempotency key: the same in every attempt at this task, unless its instruction was put differently."""
    _brief: Brief | None = None

    def ask_person(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        free_text: bool = False,
        schema: Mapping[str, Any] | None = None,
        used: Amount = NOTHING,
    ) -> object:
        """What the person who made the request answers: text, or data of a JSON Schema.

        Where there is no answer yet this raises WorkFailed, which the function must let pass: the run waits, and the
        same attempt is made again once the person has answered. Steps that were recorded are not made again, and the
        question is answered at once. `used` is what the attempt used so far outside its steps. A person who does not
        answer fails the task.
        """
        key = digest("ask_person", question, *options, msgspec.json.encode(schema))
        answers = {} if self._brief is None else self._brief.answers or {}
        replies = {} if self._brief is None else self._brief.replies or {}
        if refusal := answers.get(key):
            failure = Failure("logic", f"a person did not answer {question!r}: {refusal}", permanent=True)
            raise WorkFailed(failure, used)
        if key in replies:
            return decode_value(replies[key])
        to_person = Question(
            what="question",
            workers=(self.worker,),
            key=key,
            options=tuple(options),
            free_text=free_text,
            schema=schema,
        )
        raise WorkFailed(Failure("approval", question, question=to_person), used)


WorkerFunction: TypeAlias = Callable[[Assignment, StepContext], Awaitable[object]]
"""An async function, or an object with an async `__call__`, that makes an attempt.

It returns text, plain data, or a `Done` that says what was used. What it raises fails the attempt; a `WorkFailed` says
of what kind the failure is, and what was used all the same.
"""


async def call_function(function: WorkerFunction, brief: Brief, context: StepContext) -> Done:
    """The attempt of a brief, made by a function. What it does in `context.step` is not done again after a crash."""
    where = context.where
    assignment = Assignment(
        goal=brief.goal,
        task=brief.work.task,
        instruction=brief.instruction,
        inputs={source.task: source.value for source in read_inputs(brief, {})},
        gaps=tuple(gap for source in brief.inputs for gap in source.gaps),
        files=tuple(source.file for source in brief.inputs if source.file is not None),
        attempt=brief.work.number,
        failure=brief.failure,
        until=brief.until,
        worker=brief.worker,
        key=f"{where.origin}/{where.task}/{digest(brief.instruction)[:8]}",
        _brief=brief,
    )
    called = f"the function of worker {brief.worker!r}"
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        result = await function(assignment, context)
    except SystemExit as error:  # it must not end the program
        message = f"{called} called sys.exit({error.code!r}); return a result, or raise an error"
        raise WorkFailed(mistake_failure(error_in(function, "SystemExit", message))) from error
    done = result if isinstance(result, Done) else Done(result)
    _check_time(called, clock() - began, brief, context, done)
    if done.value is None:
        message = f"{called} returned nothing; return text, plain data or a Done"
        raise WorkFailed(mistake_failure(error_in(function, "TypeError", message)), done.used)
    if isinstance(done.value, str):
        if not done.value.strip():
            message = f"{called} returned empty text; return a result, or raise an error"
            raise WorkFailed(Failure("logic", message, code="empty_reply"), done.used)
        return Done(WorkerOutput(done.value), done.used, tracing=done.tracing)
    return done


def _check_time(called: str, seconds: Seconds, brief: Brief, context: StepContext, done: Done) -> None:
    """Raise WorkFailed for a result that is too late. A function that blocks the event loop cannot be cancelled."""
    agents = context.request.roster.agents
    timeout = next((agent.timeout for agent in agents if agent.name == brief.worker), math.inf)
    if seconds > timeout:
        message = (
            f"{called} returned after {seconds:.1f} s, and its timeout is {timeout:g} s: the event loop was blocked. "
            "Use await for what it waits for, or asyncio.to_thread"
        )
        raise WorkFailed(Failure("timeout", message), done.used)


# --- the executor


_LONGEST_PERSONA = 2000
_WHOLE = Whole()
_NO_TEAMS: Mapping[str, Subteam] = {}
_NO_FUNCTIONS: Mapping[str, WorkerFunction] = {}
_NO_MODELS: Mapping[str, Model] = {}


class AgentExecutor(Struct, eq=False, frozen=True, weakref=True):
    """The executor a runner works with; everything it needs is connected already."""

    workers: Mapping[str, ReadyWorker]
    lead: Lead
    writer: Writer
    resources: TeamResources
    worker_maker: "WorkerMaker | None" = None
    strategy: Strategy = _WHOLE
    teams: Mapping[str, Subteam] = _NO_TEAMS
    functions: Mapping[str, WorkerFunction] = _NO_FUNCTIONS
    checks: Checks = NO_CHECKS
    verifiers: Mapping[str, Model] = _NO_MODELS
    members: TeamMembers | None = None
    load: LoadView | None = None
    listeners: Sequence[Listener] = ()

    def plan(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Proposal]:
        return self.strategy.propose(self.lead, self._read(self.lead.model, brief), context)

    def _read(self, model: Model, brief: Brief) -> Brief:
        """The brief as a model reads it: the material of the run stands below its goal."""
        if not brief.material or model.card.reads_facts:
            return brief
        return structs.replace(brief, goal=request_text(brief))

    def attempt(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        if brief.worker in self.checks.by_worker or (brief.tasks and brief.tasks[0].accept):
            return self._inspected(brief, context)
        ready = self.workers.get(brief.worker)
        return self._delegate(brief, context) if ready is None else work(ready, self.resources, brief, context)

    def _delegate(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        """The attempt of a worker without a model of its own: a team, a function, or one that is made first."""
        if brief.worker in self.teams:
            return self.teams[brief.worker].attempt(brief, context)
        if brief.worker in self.functions:
            return call_function(self.functions[brief.worker], brief, context)
        return self._attempt_by_made_worker(brief, context)

    def _inspected(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        """The same for results that must pass checks."""
        from chargehand.agents.checks.run import CheckedAttempt, Inspector, Witness  # noqa: PLC0415 - few teams have checks

        inspector = Inspector(checks=self.checks, workers=self.workers, writer=self.writer, verifiers=self.verifiers)
        witness = Witness(context)
        names = self.checks.of(brief.tasks[0] if brief.tasks else None, brief.worker)
        ready = self.workers.get(brief.worker)
        checked = CheckedAttempt(inspector, names, brief, witness)
        if ready is None:
            return checked.run(self._delegate(brief, witness))
        attempt = Attempt(ready, self.resources, brief, witness)
        return checked.run(attempt.run(), attempt)

    async def _attempt_by_made_worker(self, brief: Brief, context: StepContext) -> Done:
        ready = None
        if self.worker_maker is not None and brief.worker == self.worker_maker.factory.name:
            ready = await self.worker_maker.make(brief, context, self.resources)
        if ready is None:
            names = ", ".join((*self.workers, *self.teams, *self.functions)) or "none"
            raise WorkFailed(
                Failure(
                    "logic",
                    f"there is no worker {brief.worker!r}; there are {names}",
                    permanent=True,
                    code="unknown_worker",
                )
            )
        return await work(ready, self.resources, brief, context)

    def refine(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Refined]:
        return planner.refine(self.lead, brief, context)

    def answer(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        brief = self._read(self.writer.model, brief)
        return answer(self.writer, brief, context)

    async def look_up(self, brief: Brief, step: Step) -> Done | None:
        return await look_up_call(self.workers.get(brief.worker), step)

    def team_of(self, worker: str) -> Executor | None:
        """The executor of the team that does the tasks of a worker; None: the worker is no team."""
        return self.teams[worker].executor if worker in self.teams else None

    def supervision(self, budget: Budget) -> Amount:
        """What a call of the supervisor is taken to cost, now that it is known what its models do."""
        return supervision(budget, (self.lead.model, self.writer.model), self.lead.settings)

    @property
    def free(self) -> bool:
        """Whether nothing it does costs anything."""
        models = [self.lead.model, self.writer.model, *self.verifiers.values()]
        models += [model for worker in self.workers.values() for model in worker.models]
        models += [] if self.worker_maker is None else [self.worker_maker.model]
        if self.functions or any(worker.card.highest_price(1, 1) != 0 for worker in models):
            return False
        return all(team.free for team in self.teams.values())


class Made(Struct, frozen=True):
    """A worker that was made: who it is, and its tools by name."""

    persona: str
    tools: tuple[str, ...] = ()


class WorkerMaker:
    """Makes workers for tasks, within what its factory allows."""

    def __init__(self, factory: Factory, model: Model) -> None:
        self.factory = factory
        self.model = model
        self._tools = toolset(f"factory {factory.name!r}", factory.tools)

    async def make(self, brief: Brief, context: StepContext, resources: TeamResources) -> ReadyWorker:
        """A worker for the task of a brief. Who was made is journaled, so a resumed attempt has the same one."""
        request = self._request(brief, resources)
        reservation = resources.spending.reserve([self.model], request)

        async def call(_key: str) -> Done:
            reply, used = await resources.spending.call(reservation, context)
            return Done(self._read(reply, used), used)

        profile = await resources.spending.step(
            context, reservation, "make_worker", call, kind="make_worker", request=brief.instruction, shape=Made
        )
        worker = Worker(
            self.factory.name,
            profile.persona,
            tools=[self._tools[name] for name in profile.tools],
            steps=self.factory.steps,
        )
        return make_ready(worker, [self.model])

    def _request(self, brief: Brief, resources: TeamResources) -> Request:
        listing = "\n".join(f"- {tool.name}: {tool.spec.description}" for tool in self._tools.values()) or "(none)"
        system = resources.prompts.text("make", most=str(self.factory.max_tools), tools=listing)
        messages = (Message("system", system), Message("user", f"Task: {brief.instruction}"))
        return Request(messages, subject=Making(brief.instruction, skills(self._tools)))

    def _read(self, reply: Reply, used: Amount | None) -> Made:
        if reply.finish == "length":
            raise WorkFailed(Failure("logic", f"no worker could be made: {cut_off(reply)}"), used)
        try:
            profile = msgspec.convert(find_json(reply.text), Made)
        except (Invalid, msgspec.ValidationError) as error:
            raise WorkFailed(Failure("logic", f"no worker could be made: {error}"), used) from error
        tools = tuple(name for name in dict.fromkeys(profile.tools) if name in self._tools)[: self.factory.max_tools]
        return structs.replace(profile, persona=profile.persona[:_LONGEST_PERSONA], tools=tools)
