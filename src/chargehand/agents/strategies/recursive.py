"""The strategy `recursive`: a request too big for one worker is split, and each part again, to a depth and breadth.

The whole tree is made before anything is done. Its leaves are the tasks, called after their place in it (`t2.1`).
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec import Raw, Struct, structs

from chargehand.agents import planner
from chargehand.agents.inputs import today
from chargehand.agents.recall import BlockView
from chargehand.agents.shape import (
    choice_schema,
    encode_schema,
    list_schema,
    object_schema,
    one_line,
    read_reply,
    sent_back,
    text_schema,
)
from chargehand.agents.strategies.base import Few, StrategyBase
from chargehand.agents.supervision import (
    LONGEST_LINE,
    Lead,
    ModelQuestion,
    SupervisorCalls,
    read_instruction,
    read_lines,
    read_worker,
)
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, TaskId
from chargehand.models.messages import new_nonce
from chargehand.models.request_facts import Splitting
from chargehand.runtime.executor import Proposal, StepContext, WorkFailed

_DEEPEST = 8  # however deep a team wants it: every level multiplies what is paid
_LONGEST = 1200  # characters of an instruction


class Recursive(StrategyBase, frozen=True, tag="recursive"):
    """A request judged too big is split, and each part again, to a depth and a breadth."""

    depth: Few = 2
    """How often a part may be split again."""
    breadth: Few = 4
    """Into how many parts."""

    async def propose(self, lead: Lead, brief: Brief, context: StepContext) -> Proposal:
        """The tasks of a request, all at once. What failed later is planned anew like any other plan."""
        if brief.tasks:
            return await planner.plan(lead, brief, context)
        breadth = max(1, min(self.breadth, lead.max_tasks)) if self.depth > 0 else 1
        calls = SupervisorCalls(lead, context)
        tree = _Tree(lead, brief, calls, await lead.blocks(), breadth)
        root = _Node(id="t", instruction=brief.goal, worker="")
        unserved = await tree.split_request(root)
        await tree.split_parts(root, min(self.depth, _DEEPEST) - 1)
        tasks = _tasks(root) if root.parts or root.worker else ()
        combine = lead.combine or ("forward" if len(tasks) == 1 else "merge")
        return Proposal(tasks, combine, used=calls.total(), unserved=unserved)


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


class SubtaskReply(Struct, frozen=True):
    """A subtask as a model puts it; `after` holds the places of others in the list."""

    instruction: str = ""
    worker: str | None = None
    after: Sequence[int] | None = None


class SplitReply(Struct, frozen=True):
    """How a model would split a part."""

    why: str | None = None
    simple: bool = False
    worker: str | None = None
    subtasks: Sequence[SubtaskReply | str] | None = None
    """Some models write only what is to be done."""
    unserved: Sequence[str] | None = None

    def parts(self) -> dict[int, SubtaskReply]:
        """The subtasks that say what to do, by their places."""
        parts: dict[int, SubtaskReply] = {}
        for number, item in enumerate(() if self.simple else self.subtasks or (), 1):
            part = SubtaskReply(item) if isinstance(item, str) else item
            if text := read_instruction(part.instruction):
                parts[number] = structs.replace(part, instruction=text)
        return parts


class _Tree(Struct):
    """Splits a request, and its parts."""

    lead: Lead
    brief: Brief
    calls: SupervisorCalls
    blocks: Sequence[BlockView]
    breadth: int
    count: int = 1
    """How many tasks there are by now."""

    async def split_request(self, root: _Node) -> tuple[str, ...]:
        """Judge the request itself: without that there is no plan. Returns the parts that are not done."""
        names = self.lead.names
        if self.breadth == 1 and len(names) == 1:
            root.worker = names[0]
            return ()
        judged = await self._judge(root)
        strange = next((part for part in judged.parts if part.worker not in names), None)
        if strange is not None:
            who = f"There is no worker {strange.worker!r}" if strange.worker else "A subtask names no worker"
            text = f"{who}. The workers are: {', '.join(names)}."
            raise self.calls.send_back("unknown_worker", "subtasks", text)
        if not judged.parts and not judged.worker and not judged.unserved:
            text = f"Say who does it: `worker` is one of {', '.join(names)}."
            raise self.calls.send_back("no_worker", "subtasks", text)
        root.worker = judged.worker
        self._split(root, judged)
        if not judged.rest:
            return judged.unserved
        rest = one_line("; ".join(judged.rest), LONGEST_LINE)
        return (*judged.unserved, f"A request is split into at most {self.breadth} parts; these are left out: {rest}")

    async def split_parts(self, node: _Node, depth: int) -> None:
        """Split the parts of a node, and their parts again, all at the same time."""
        async with asyncio.TaskGroup() as jobs:
            for part in node.parts if depth > 0 else ():
                jobs.create_task(self._split_part(part, depth))

    async def _split_part(self, node: _Node, depth: int) -> None:
        """One call, and those for its parts. A part that cannot be judged, or split within the bounds, stays whole."""
        if self.count >= self.lead.max_tasks or _plain(node.instruction) in node.above:
            return
        try:
            judged = await self._judge(node)
        except WorkFailed as error:
            self.calls.context.note(f"{node.id} could not be judged and is not split further: {error}")
            return
        count = self.count + len(judged.parts) - 1
        if not judged.parts or judged.unserved or judged.rest or count > self.lead.max_tasks:
            node.worker = judged.worker or node.worker  # so nothing of it is lost
            return
        self._split(node, judged)
        await self.split_parts(node, depth - 1)

    async def _judge(self, node: _Node) -> _Split:
        """One call of the model."""
        is_root = not node.above
        parts = [f"Task: {node.instruction}", today(self.brief)]
        if not is_root:
            parts.append(f"It is a part of this request, whose other parts are done by others: {self.brief.goal}")
        elif self.brief.findings:
            parts.append("Your last reply was sent back:\n" + sent_back(self.brief.findings))
        if self.breadth == 1:
            parts.append("It is not to be split: say who does it.")
        question = ModelQuestion(
            purpose="a question this long",
            prompt="split",
            parts=parts,
            subject=Splitting(node.instruction, self.lead.cards, self.breadth),
            schema=split_schema(self.lead.names, self.breadth),
            slots={"workers": self.lead.listing, "most": str(self.breadth)},
            blocks=self.blocks,
            nonce=new_nonce(),
            alone=is_root,
            extra=not is_root,
            keeps_reply=True,
        )
        read = partial(read_reply, shape=SplitReply)
        return self._read(node, await self.calls.ask(question, read, self.calls.hear if is_root else None))

    def _read(self, node: _Node, reply: SplitReply) -> _Split:
        """How a reply splits a part. One that makes a single part of it, or the same twice, splits nothing."""
        names = self.lead.names
        subtasks = reply.parts()
        nodes: dict[str, _Node] = {}
        numbered: dict[int, _Node] = {}
        for number, subtask in subtasks.items():
            worker = read_worker(subtask.worker, names) or node.worker or one_line(subtask.worker, LONGEST_LINE)
            key = f"{worker}: {_plain(subtask.instruction)}"
            if key not in nodes and len(nodes) < self.breadth:
                nodes[key] = _Node(
                    id=f"{node.id}{'.' if node.above else ''}{len(nodes) + 1}",
                    instruction=subtask.instruction,
                    worker=worker,
                    above=(*node.above, _plain(node.instruction)),
                )
            if key in nodes:
                numbered[number] = nodes[key]
        if len(nodes) > 1 and self.breadth > 1:
            self._order(subtasks, numbered)
        worker = read_worker(reply.worker, names)
        parts = tuple(nodes.values())
        if len(parts) == 1 or self.breadth == 1:
            worker = worker or (parts[0].worker if parts else node.worker)
            parts = ()
        return _Split(
            worker=worker,
            parts=parts,
            why=one_line(reply.why, LONGEST_LINE),
            unserved=read_lines(reply.unserved or ()),
            rest=tuple(part.instruction for number, part in subtasks.items() if number not in numbered)
            if parts
            else (),
        )

    def _order(self, subtasks: Mapping[int, SubtaskReply], numbered: Mapping[int, _Node]) -> None:
        """Let each part follow those it needs, wherever they stand in the list.

        Raises:
            WorkFailed: a part needs itself, a part that is not there, or parts that need each other. The reply is sent
                back.
        """
        for number, subtask in subtasks.items():
            for place in subtask.after or ():
                if place == number or place not in subtasks:
                    text = f"Subtask {number} is to come after {place}; name the places of other subtasks in the list."
                    raise self.calls.send_back("unknown_need", "subtasks", text)
            part = numbered.get(number)
            if part is not None:
                needed = (numbered[place] for place in subtask.after or () if place in numbered)
                part.after = tuple(dict.fromkeys((*part.after, *(other for other in needed if other is not part))))
        parts = tuple(dict.fromkeys(numbered.values()))
        ordered: set[str] = set()
        while waiting := [part for part in parts if part.id not in ordered]:
            ready = [part.id for part in waiting if all(other.id in ordered for other in part.after)]
            if not ready:
                names = ", ".join(part.instruction[:80] for part in waiting)
                text = f"These subtasks wait for each other: {names}. Order them."
                raise self.calls.send_back("circle", "subtasks", text)
            ordered.update(ready)

    def _split(self, node: _Node, judged: _Split) -> None:
        """Put the parts into their place, and say why."""
        node.parts = judged.parts
        self.count += max(0, len(judged.parts) - 1)
        why = f" (why: {judged.why})" if judged.why else ""
        what = "the request" if not node.above else node.id
        if node.parts:
            self.calls.context.note(f"{what} is split into {', '.join(part.id for part in node.parts)}{why}")
        elif node.worker:
            self.calls.context.note(f"{what} is simple: {node.worker} does it{why}")


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
