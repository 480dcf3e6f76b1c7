"""The strategy `recursive`: a request too big for one worker is split, and each part again, to a depth and breadth.

The whole tree is made before anything is done. Its leaves are the tasks, called after their place in it (`t2.1`).
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from msgspec import Raw, Struct

from chargehand.agents import planner
from chargehand.agents.inputs import today
from chargehand.agents.planner import (
    LONGEST_LINE,
    Lead,
    ModelQuestion,
    Purpose,
    ask,
    hear_if_heard,
    read_flag,
    read_instruction,
    read_lines,
    read_list,
    read_worker,
)
from chargehand.agents.recall import BlockView
from chargehand.agents.shape import (
    choice_schema,
    encode_schema,
    find_object,
    list_schema,
    object_schema,
    one_line,
    sent_back,
    text_schema,
)
from chargehand.agents.spending import total
from chargehand.agents.strategies import Recursive
from chargehand.engine.budget import Amount
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Finding, Task, TaskId
from chargehand.models.messages import new_nonce
from chargehand.models.request_facts import Splitting
from chargehand.runtime.executor import Proposal, StepContext, WorkFailed

_DEEPEST = 8  # however deep a team wants it: every level multiplies what is paid
_TOO_BROAD = "too_broad"
_LONGEST = 1200  # characters of an instruction
_REST = 10  # parts over the breadth that are named one by one


class _Node(Struct, eq=False):
    """A part of the request. `after` are the siblings it needs, `parts` what it was split into (none: it is a task)."""

    id: str
    instruction: str
    worker: str
    above: tuple[str, ...] = ()
    after: tuple["_Node", ...] = ()
    parts: tuple["_Node", ...] = ()

    def leaves(self) -> Iterator["_Node"]:
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


class _Split(Struct, frozen=True):
    """How a part is to be split (into no parts: it is simple), and who should do it. `rest` is over the breadth."""

    worker: str
    parts: tuple[_Node, ...]
    why: str
    unserved: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()


async def split(strategy: Recursive, lead: Lead, brief: Brief, context: StepContext) -> Proposal:
    """The tasks of a request, all at once. What failed later is planned anew like any other plan."""
    if brief.tasks:
        return await planner.plan(lead, brief, context)
    breadth = max(1, min(strategy.breadth, lead.max_tasks)) if strategy.depth > 0 else 1
    tree = _Tree(lead=lead, brief=brief, context=context, blocks=await lead.blocks(), breadth=breadth)
    root = _Node(id="t", instruction=brief.goal, worker="")
    unserved = await tree.begin(root)
    level: Sequence[_Node] = root.parts
    for _ in range(1, min(strategy.depth, _DEEPEST)):
        level = await tree.deepen(root, level)
    tasks = _tasks(root) if root.parts or root.worker else ()
    combine = lead.combine or ("forward" if len(tasks) == 1 else "merge")
    return Proposal(tasks, combine, used=total(tree.used), unserved=unserved)


class _Tree(Struct):
    """The judging of parts, and what it cost."""

    lead: Lead
    brief: Brief
    context: StepContext
    blocks: Sequence[BlockView]
    breadth: int
    used: list[Amount | None] = []

    async def begin(self, root: _Node) -> tuple[str, ...]:
        """Judge the request itself: without that there is no plan. Returns the parts that no worker can do."""
        names = self.lead.names
        if self.breadth == 1 and len(names) == 1:
            root.worker = names[0]
            return ()
        findings = self.brief.findings
        judged = await self.judge(root, findings, aloud=True)
        if judged.rest and not any(finding.code == _TOO_BROAD for finding in findings):
            count = len(judged.parts) + len(judged.rest)
            raise self.sent_back(_TOO_BROAD, f"You gave {count} subtasks, and {self.breadth} are allowed. Merge some.")
        strange = next((part for part in judged.parts if part.worker not in names), None)
        if strange is not None:
            who = f"There is no worker {strange.worker!r}" if strange.worker else "A subtask names no worker"
            raise self.sent_back("unknown_worker", f"{who}. The workers are: {', '.join(names)}.")
        if not judged.parts and not judged.worker and not judged.unserved:
            raise self.sent_back("no_worker", f"Say who does it: `worker` is one of {', '.join(names)}.")
        root.worker = judged.worker
        root.parts = judged.parts
        self.note_split(root, judged)
        over = f"a request is split into at most {self.breadth} parts."
        over_breadth = [f"{one_line(text, 200).rstrip('. ')}: {over}" for text in judged.rest[:_REST]]
        more = [f"{len(judged.rest) - _REST} more parts: {over}"] if len(judged.rest) > _REST else []
        return (*judged.unserved, *over_breadth, *more)

    async def deepen(self, root: _Node, level: Sequence[_Node]) -> list[_Node]:
        """Judge every part of a level at the same time; returns the parts they were split into."""
        room = self.lead.max_tasks - sum(1 for _ in root.leaves())
        nodes = [node for node in level if _plain(node.instruction) not in node.above] if room > 0 else []
        covered = await self.context.afford(self.lead.reserve, len(nodes))
        if covered < len(nodes):
            self.context.note(
                f"the budget covers judging {covered} of {len(nodes)} parts: the others are not split further"
            )
            nodes = nodes[:covered]
        splits: dict[str, _Split] = {}
        async with asyncio.TaskGroup() as jobs:
            for node in nodes:
                jobs.create_task(self.try_to_judge(node, splits))
        next_level: list[_Node] = []
        for node in nodes:
            judged = splits.get(node.id)
            if judged is None:
                continue
            if not self.fits(node, judged, room):
                node.worker = judged.worker or node.worker
                continue
            room -= len(judged.parts) - 1
            node.parts = judged.parts
            next_level.extend(node.parts)
            self.note_split(node, judged)
        return next_level

    async def try_to_judge(self, node: _Node, splits: dict[str, _Split]) -> None:
        """One call. Where it fails the part stays as it is."""
        try:
            splits[node.id] = await self.judge(node)
        except WorkFailed as error:
            problem = error.failure.message
        except Exception as error:  # noqa: BLE001 - the model may be anybody's
            problem = f"{type(error).__name__}: {error}"
        else:
            return
        self.context.note(f"{node.id} could not be judged and is not split further: {problem}")

    def fits(self, node: _Node, judged: _Split, room: int) -> bool:
        """Whether a part may be split like this. If not it stays whole, so nothing of it is lost."""
        if not judged.parts or judged.unserved:
            return False
        if judged.rest:
            self.context.note(f"{node.id} stays whole: it was to be split into more than {self.breadth}")
            return False
        if len(judged.parts) - 1 > room:
            self.context.note(f"{node.id} stays whole: a run may have {self.lead.max_tasks} tasks")
            return False
        return True

    async def judge(self, node: _Node, findings: Sequence[Finding] = (), *, aloud: bool = False) -> _Split:
        """One call of the model; what it cost is kept, also where it fails."""
        parts = [f"Task: {node.instruction}", today(self.brief)]
        if node.above:
            parts.append(f"It is a part of this request, whose other parts are done by others: {self.brief.goal}")
        if findings:
            parts.append("Your last reply was sent back:\n" + sent_back(findings))
        if self.breadth == 1:
            parts.append("It is not to be split: say who does it.")
        question = ModelQuestion(
            prompt="split",
            parts=parts,
            schema=split_schema(self.lead.names, self.breadth),
            subject=Splitting(node.instruction, self.lead.cards, self.breadth),
            slots={"most": str(self.breadth)},
            blocks=self.blocks,
            nonce=new_nonce(),
        )
        at = len(self.used)
        self.used.append(None)
        hear = hear_if_heard(self.context) if aloud else None
        purpose = Purpose("a question this long", alone=not node.above)
        request = question.request(self.lead)
        try:
            table, self.used[at] = await ask(self.lead, request, self.context, purpose, find_object, hear=hear)
        except WorkFailed as error:
            self.used[at] = error.used
            raise
        return self.read(node, table)

    def read(self, node: _Node, table: Mapping[str, object]) -> _Split:
        """How a reply splits a part. One that makes a single part of it, or the same twice, splits nothing."""
        names = self.lead.names
        subtasks = [] if read_flag(table.get("simple")) else read_subtasks(table.get("subtasks"))
        nodes: dict[str, _Node] = {}
        numbered: dict[int, _Node] = {}
        for subtask in subtasks:
            worker = read_worker(subtask.worker, names) or node.worker or one_line(subtask.worker, LONGEST_LINE)
            key = f"{worker}: {_plain(subtask.instruction)}"
            if key not in nodes and len(nodes) < self.breadth:
                nodes[key] = _Node(
                    id=f"{node.id}{'.' if node.above else ''}{len(nodes) + 1}",
                    instruction=subtask.instruction,
                    worker=worker,
                    above=(*node.above, _plain(node.instruction)),
                    after=tuple(dict.fromkeys(numbered[place] for place in subtask.after if place in numbered)),
                )
            if key in nodes:
                numbered[subtask.number] = nodes[key]
        worker = read_worker(table.get("worker"), names)
        parts = tuple(nodes.values())
        if len(parts) == 1 or self.breadth == 1:
            worker = worker or (parts[0].worker if parts else node.worker)
            parts = ()
        return _Split(
            worker=worker,
            parts=parts,
            why=one_line(table.get("why"), LONGEST_LINE),
            unserved=read_lines(table.get("unserved")),
            rest=tuple(subtask.instruction for subtask in subtasks if subtask.number not in numbered) if parts else (),
        )

    def note_split(self, node: _Node, judged: _Split) -> None:
        why = f" (why: {judged.why})" if judged.why else ""
        what = "the request" if not node.above else node.id
        if node.parts:
            self.context.note(f"{what} is split into {', '.join(part.id for part in node.parts)}{why}")
        elif node.worker:
            self.context.note(f"{what} is simple: {node.worker} does it{why}")

    def sent_back(self, code: str, text: str) -> WorkFailed:
        finding = Finding(code=code, place="subtasks", message=text)
        return WorkFailed(Failure("logic", text), total(self.used), (finding,))


def _tasks(root: _Node) -> tuple[Task, ...]:
    """The leaves, each after all leaves of what it, or what it is a part of, needs."""
    tasks: list[Task] = []

    def walk(node: _Node, needed: tuple[TaskId, ...]) -> None:
        more = tuple(TaskId(leaf.id) for before in node.after for leaf in before.leaves())
        needed = tuple(dict.fromkeys((*needed, *more)))
        if not node.parts:
            name = TaskId(node.id if node.above else "t1")
            tasks.append(Task(name, node.instruction, node.worker, after=needed))
        for part in node.parts:
            walk(part, needed)

    walk(root, ())
    return tuple(tasks)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


class Subtask(Struct, frozen=True):
    """A subtask as a model put it: `number` is its place, `after` holds the places of others."""

    number: int
    instruction: str
    worker: object = None
    after: tuple[int, ...] = ()


def split_schema(workers: Sequence[str], breadth: int) -> Raw:
    """The schema for at most so many parts; for one there is nothing to split."""
    worker = choice_schema(workers)
    properties: dict[str, object] = {
        "why": text_schema(600),
        "simple": {"type": "boolean"},
        "worker": worker,
        "unserved": list_schema(text_schema(300), 10),
    }
    if breadth > 1:
        subtask = object_schema(
            {
                "instruction": text_schema(_LONGEST, min_length=1),
                "worker": worker,
                "after": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": breadth}},
            }
        )
        properties["subtasks"] = list_schema(subtask, breadth)
    return encode_schema(properties)


def read_subtasks(written: object) -> list[Subtask]:
    """The subtasks that say what to do; some models write only that."""
    subtasks: list[Subtask] = []
    for number, item in enumerate(read_list(written), 1):
        body = cast("dict[str, object]", item) if isinstance(item, dict) else {"instruction": item}
        places = [place for place in read_list(body.get("after")) if isinstance(place, int) and place is not True]
        if text := read_instruction(body.get("instruction")):
            subtasks.append(Subtask(number, text, body.get("worker"), tuple(places)))
    return subtasks
