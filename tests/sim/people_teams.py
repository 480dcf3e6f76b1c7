"""The teams of one seed of `people`, and the numbers that its run is played by; all of it is drawn from the seed."""

import json
import random
from typing import Literal

from msgspec import Struct, structs

from chargehand import Block, Memory
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.team import Team
from tests.sim.people_world import LINE, Clerk, Fault, Kind, Operation, Program, World, program_text

Door = Literal["events", "words", "callbacks", "alive"]
"""How persons answer: by events or words that resume the run, by functions, or by events while a process drives it."""
_KINDS: tuple[Kind, ...] = ("pay", "pay", "pay", "mail", "mail", "note", "look", "ask", "append")
_CALM = 100_000.0


class Manner(Struct, frozen=True):
    """How the persons of a seed are, each a share of what they do."""

    yes: float
    """Calls that they allow."""
    late: float
    """The longest time before an answer, in seconds."""
    part: float
    """Questions of which they answer only some calls."""
    looks: float
    """Visits that only look."""
    wrong: float
    """Answers before which a wrong one is given: an old number, another option, a call that nobody asked about."""
    twice: float
    """Answers that are given twice."""
    fails: float
    """Calls in doubt after which they have the task fail."""


class Scenario(Struct, frozen=True):
    """What a seed is, apart from its teams and its world."""

    door: Door
    manner: Manner
    policy: Policy
    deaths: int
    """Lives that end in the middle."""
    drains: bool
    """Some of them end in an orderly way."""
    cancel: float
    """After how many seconds the run is cancelled; 0: never."""
    timeout: float
    redo: bool
    """The run is done again by a fork when it is over."""
    mended: bool
    """Nothing more goes wrong in the second run."""
    far: bool
    """Some workers work in another process."""
    replans: bool

    @property
    def calm(self) -> bool:
        """Return whether there is all the time of the world and nobody cancels."""
        return self.timeout == _CALM and not self.cancel


class Cast(Struct):
    """The teams of a seed."""

    team: Team
    goal: str
    programs: dict[str, Program]
    """All programs by name, with those of the entries of lists."""
    tasks: dict[TaskId, str]
    """The program of each task of the outermost plan; of a team that does a task, nothing."""
    depth: int


def draw_scenario(seed: int) -> Scenario:
    """Return the numbers of a seed."""
    chance = random.Random(f"people/{seed}")
    replans = chance.random() < 0.1
    attempts = chance.choice((1, 3, 3)) if replans or chance.random() < 0.4 else 3
    policy = Policy(
        retry=Retry(attempts=attempts, base=0.1),
        refine=chance.random() < 0.5 and not replans,
        uncertain=chance.choice(("ask", "ask", "ask", "fail")),
        tainted_effects=chance.choice(("ask", "allow")),
        limits=Limits(width=chance.choice((1, 4, 16)), replans=int(replans)),
    )
    is_hurried = chance.random() < 0.15
    timeout = chance.choice((12.0, 25.0, 60.0)) if is_hurried else _CALM
    return Scenario(
        door=chance.choice(("events", "events", "words", "callbacks", "alive")),
        manner=Manner(
            yes=chance.choice((1.0, 1.0, 0.7, 0.3)),
            late=chance.choice((0.0, 5.0, 60.0, 300_000.0)),
            part=chance.choice((0.0, 0.5)),
            looks=chance.choice((0.0, 0.3)),
            wrong=chance.choice((0.0, 0.3)),
            twice=chance.choice((0.0, 0.3)),
            fails=chance.choice((0.0, 0.0, 0.1)),
        ),
        policy=policy,
        deaths=chance.choice((0, 0, 1, 2, 3)),
        drains=chance.random() < 0.3,
        cancel=chance.uniform(1, 20) if chance.random() < 0.1 else 0.0,
        timeout=timeout,
        redo=chance.random() < 0.4,
        mended=chance.random() < 0.7,
        far=chance.random() < 0.1,
        replans=replans,
    )


class Casting:
    """Draws the teams of a seed and what goes wrong in its world."""

    def __init__(self, seed: int, scenario: Scenario, world: World) -> None:
        self._chance = random.Random(f"cast/{seed}")
        self._scenario = scenario
        self._world = world
        self._model = Clerk(world)
        world.attempts = scenario.policy.retry.attempts
        self._programs: dict[str, Program] = {}
        self._tasks: dict[TaskId, str] = {}
        self._is_faulty = self._chance.random() < 0.6
        self._depth = 0 if scenario.replans else self._chance.choice((0, 0, 0, 1, 1, 2))

    def draw(self) -> Cast:
        """Return the teams."""
        team, goal = self._team(self._depth, "a", is_top=True)
        if not self._scenario.replans:
            self._world.told = frozenset(filter(None, self._tasks.values()))
        return Cast(team, goal, self._programs, self._tasks, self._depth)

    def _team(self, levels: int, name: str, *, is_top: bool = False) -> tuple[Team, str]:
        chance = self._chance
        workers: list[Worker] = []
        tasks: list[Task] = []
        count = chance.randint(1, 4 if is_top and not levels else 2)
        has_list = not levels and count > 1 and chance.random() < 0.15 and not self._scenario.replans
        for number in range(count):
            each = f"{name}{number}"
            after = tuple(
                Edge(earlier.id, chance.choice(("required", "required", "optional")))
                for earlier in tasks
                if chance.random() < 0.35
            )
            if levels and (number == 0 or chance.random() < 0.4):
                below, _ = self._team(levels - 1, each)
                workers.append(below.as_worker(description="has its part done"))
                task = Task(TaskId(f"t{number}"), f"Have all of part {each} done now.", workers[-1].name, after=after)
            else:
                made, task = self._worker(each, after, is_top=is_top, lists=has_list and number == 0)
                workers += made
            if has_list and number == count - 1 and not task.instruction.startswith("Have"):
                task = self._for_each(task, each)
            tasks.append(task)
            if is_top:
                self._tasks[task.id] = "" if task.instruction.startswith("Have") or task.for_each else each
        return self._assemble(workers, tasks, name, is_top=is_top)

    def _assemble(self, workers: list[Worker], tasks: list[Task], name: str, *, is_top: bool) -> tuple[Team, str]:
        scenario = self._scenario
        is_planned = is_top and scenario.replans
        written = {
            task.id: {
                "instruction": task.instruction,
                "worker": task.worker,
                "after": [edge.task for edge in task.after if isinstance(edge, Edge) and edge.need == "required"],
                "optional": [edge.task for edge in task.after if isinstance(edge, Edge) and edge.need == "optional"],
            }
            for task in tasks
        }
        team = Team(
            workers,
            supervisor=Supervisor(
                model=self._model,
                plan=None if is_planned else Plan(tuple(tasks), self._chance.choice(("none", "merge"))),
            ),
            name=name,
            policy=scenario.policy if is_top else structs.replace(scenario.policy, limits=Limits()),
            timeout=scenario.timeout if is_top else _CALM,
            memory=Memory(blocks=[Block("notes", "what was done")]) if is_top else None,
        )
        return team, f"Work through all programs.\n{json.dumps(written)}"

    def _worker(self, name: str, after: tuple[Edge, ...], *, is_top: bool, lists: bool) -> tuple[list[Worker], Task]:
        chance = self._chance
        program = () if lists else self._program(name, is_top=is_top)
        self._programs[name] = program
        blocks = {"notes": "append"} if any(call.kind == "append" for calls in program for call in calls) else {}
        kinds = frozenset(call.kind for calls in program for call in calls)
        fallbacks = [f"{name}f"] if chance.random() < 0.2 and not lists else []
        workers = [
            Worker(
                each,
                "works through its program",
                tools=[*self._world.tools(kinds=kinds), *(["ask_person"] if "ask" in kinds else [])],
                model=self._model,
                output=list[str] if lists else None,
                blocks=blocks if is_top else {},  # pyright: ignore[reportArgumentType] - the access is a literal
                fallbacks=fallbacks if each == name else [],
                steps=12,
                timeout=_CALM,
                queue="far" if self._scenario.far and chance.random() < 0.5 else "",
            )
            for each in (name, *fallbacks)
        ]
        kind = "Write the list of entries for" if lists else "Work through"
        instruction = f"{kind} the program {program_text(name, program)} from its first call to its last."
        if self._is_faulty and not lists:
            self._faults(name, program)
        return workers, Task(TaskId(f"t{name[-1]}"), instruction, name, after=after)

    def _for_each(self, task: Task, name: str) -> Task:
        """Return the task with its program played for each entry of the list of the first one."""
        program = self._programs.pop(name)
        kept = tuple(calls for calls in program if all(call.kind != "append" for call in calls))
        for entry in ("entry-1", "entry-2"):
            rounds = tuple(
                tuple(Operation(call.kind, f"{call.item}/{entry}", call.repeat) for call in calls) for calls in kept
            )
            self._programs[f"{name}/{entry}"] = rounds
        instruction = f"Work through the program {program_text(name, kept)} for each entry of the list."
        return structs.replace(task, instruction=instruction, for_each=TaskId("t0"), after=())

    def _program(self, name: str, *, is_top: bool) -> Program:
        chance = self._chance
        rounds: list[tuple[Operation, ...]] = []
        paid: list[Operation] = []
        for number in range(chance.randint(1, 4)):
            calls: list[Operation] = []
            for place in range(chance.choice((1, 1, 1, 2, 2, 3))):
                kind = chance.choice(_KINDS)
                if kind == "append" and not is_top:
                    kind = "mail"
                if kind == "ask" and place:
                    kind = "note"
                calls.append(Operation(kind, f"{name}-{number}{place}"))
                if kind == "ask":
                    break
            if paid and len(calls) == 1 and chance.random() < 0.08:
                calls = [structs.replace(chance.choice(paid), repeat=True)]
            rounds.append(tuple(calls))
            paid = [call for call in calls if call.kind in ("pay", "mail")]
        return tuple(rounds)

    def _faults(self, name: str, program: Program) -> None:
        """Draw what goes wrong where a program is played."""
        chance = self._chance
        world = self._world
        if chance.random() < 0.5:
            kind = chance.choice((*LINE, *LINE, "give_up"))
            world.faults[name, chance.randint(0, len(program))] = Fault(kind)
        effects = [call.item for calls in program for call in calls if call.kind in ("pay", "mail")]
        if effects and chance.random() < 0.15:
            world.service_faults[chance.choice(effects)] = Fault(chance.choice(("lost", "hang", "declined")))
