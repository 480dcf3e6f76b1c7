"""Leading by splitting: a request that is too big for one worker is split, and each part again, to a depth and breadth.

The whole tree is made before anything is done. Its leaves are the tasks, called after their place in it (`t2.1`).
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from msgspec import Raw, Struct

from chargehand.agents import lead as leading
from chargehand.agents.crew import Hand, Proposal, WorkFailed
from chargehand.agents.inputs import today
from chargehand.agents.lead import Lead
from chargehand.agents.memory_text import Seen
from chargehand.agents.money import total
from chargehand.agents.questions import Answered, Question, instruction, put, texts, who, worded, words, yes
from chargehand.agents.shape import choice_schema, encode_schema, list_schema, object_schema, sent_back, text_schema
from chargehand.agents.ways import Recursive
from chargehand.core.owed import Brief
from chargehand.models.envelope import new_nonce
from chargehand.models.subject import Splitting
from chargehand.terms.budget import Amount
from chargehand.terms.failure import Failure
from chargehand.terms.plan import Finding, Task, TaskId

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
        for one in self.parts:
            yield from one.leaves()


class _Judged(Struct, frozen=True):
    """What came of judging a part: how it is to be split (not at all: it is simple), and who should do it.

    `rest` are the parts over the breadth.
    """

    worker: str
    parts: tuple[_Node, ...]
    why: str
    unserved: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()


async def split(way: Recursive, lead: Lead, brief: Brief, hand: Hand) -> Proposal:
    """The tasks of a request, all at once. What failed later is planned anew like any other plan."""
    if brief.tasks:
        return await leading.plan(lead, brief, hand)
    blocks = () if lead.shared is None else await lead.shared()
    tree = _Tree(way=way, lead=lead, brief=brief, hand=hand, blocks=blocks)
    root = _Node(id="t", instruction=brief.goal, worker="")
    unserved = await tree.begin(root)
    level = list(root.parts)
    for _ in range(1, min(way.depth, _DEEPEST)):
        level = await tree.deepen(root, level)
    tasks = _tasks(root) if root.parts or root.worker else ()
    combine = lead.combine or ("forward" if len(tasks) == 1 else "merge")
    return Proposal(tasks, combine, used=total(tree.used), unserved=unserved)


class _Tree(Struct):
    """The judging of parts, and what it cost."""

    way: Recursive
    lead: Lead
    brief: Brief
    hand: Hand
    blocks: Sequence[Seen]
    used: list[Amount | None] = []

    @property
    def breadth(self) -> int:
        return max(1, min(self.way.breadth, self.lead.most_tasks)) if self.way.depth > 0 else 1

    async def begin(self, root: _Node) -> tuple[str, ...]:
        """Judge the request itself: without that there is no plan. Back comes what nobody can do."""
        names = [card.name for card in self.lead.cards]
        if self.breadth == 1 and len(names) == 1:
            root.worker = names[0]
            return ()
        answered = await self.put(root, self.brief.findings)
        self.used.append(answered.used)
        found = self.read(root, answered)
        told = any(one.code == _TOO_BROAD for one in self.brief.findings)
        if found.rest and not told:
            count = len(found.parts) + len(found.rest)
            raise self.failed(_TOO_BROAD, f"You gave {count} subtasks, and {self.breadth} are allowed. Merge some.")
        if strange := [one.worker for one in found.parts if one.worker not in names]:
            said = f"There is no worker {strange[0]!r}" if strange[0] else "A subtask names no worker"
            raise self.failed("unknown_worker", f"{said}. The workers are: {', '.join(names)}.")
        if not found.parts and not found.worker and not found.unserved:
            raise self.failed("no_worker", f"Say who does it: `worker` is one of {', '.join(names)}.")
        root.worker = found.worker
        root.parts = found.parts
        self.tell(root, found)
        over = f"a request is split into at most {self.breadth} parts."
        left = [f"{words(one, 200).rstrip('. ')}: {over}" for one in found.rest[:_REST]]
        more = [f"{len(found.rest) - _REST} more parts: {over}"] if len(found.rest) > _REST else []
        return (*found.unserved, *left, *more)

    async def deepen(self, root: _Node, level: Sequence[_Node]) -> list[_Node]:
        """Judge every part of a level at the same time; back come the parts that were made of them."""
        room = self.lead.most_tasks - sum(1 for _ in root.leaves())
        asked = [one for one in level if _same(one.instruction) not in one.above] if room > 0 else []
        if (left := await self.hand.afford(self.lead.reserve, len(asked))) < len(asked):
            self.hand.note(f"the budget covers judging {left} of {len(asked)} parts: the others are not split further")
            asked = asked[:left]
        found: dict[str, _Judged] = {}
        async with asyncio.TaskGroup() as jobs:
            for one in asked:
                jobs.create_task(self.judge(one, found))
        made: list[_Node] = []
        for one in asked:
            judged = found.get(one.id)
            if judged is None:
                continue
            if not self.fits(one, judged, room):
                one.worker = judged.worker or one.worker
                continue
            room -= len(judged.parts) - 1
            one.parts = judged.parts
            made.extend(one.parts)
            self.tell(one, judged)
        return made

    async def judge(self, node: _Node, found: dict[str, _Judged]) -> None:
        """One call. Where it fails the part stays as it is."""
        try:
            answered = await self.put(node, aloud=False)
        except WorkFailed as error:
            self.used.append(error.used)
            said = error.failure.message
        except Exception as error:  # noqa: BLE001 - the model may be anybody's
            self.used.append(None)
            said = f"{type(error).__name__}: {error}"
        else:
            self.used.append(answered.used)
            found[node.id] = self.read(node, answered)
            return
        self.hand.note(f"{node.id} could not be judged and is not split further: {said}")

    def fits(self, node: _Node, judged: _Judged, room: int) -> bool:
        """Whether a part may be split like this. If not it stays whole, so nothing of it is lost."""
        if not judged.parts or judged.unserved:
            return False
        if judged.rest:
            self.hand.note(f"{node.id} stays whole: it was to be split into more than {self.breadth}")
            return False
        if len(judged.parts) - 1 > room:
            self.hand.note(f"{node.id} stays whole: a run may have {self.lead.most_tasks} tasks")
            return False
        return True

    async def put(self, node: _Node, findings: Sequence[Finding] = (), *, aloud: bool = True) -> Answered:
        names = tuple(card.name for card in self.lead.cards)
        said = [f"Task: {node.instruction}", today(self.brief)]
        if node.above:
            said.append(f"It is a part of this request, whose other parts are done by others: {self.brief.goal}")
        if findings:
            said.append("Your last reply was sent back:\n" + sent_back(findings))
        if self.breadth == 1:
            said.append("It is not to be split: say who does it.")
        subject = Splitting(node.instruction, self.lead.cards, self.breadth)
        asked = Question(
            prompt="split",
            said=said,
            schema=split_schema(names, self.breadth),
            subject=subject,
            slots={"most": str(self.breadth)},
        )
        request = worded(self.lead, asked, new_nonce(), self.blocks)
        alone = not node.above and not self.brief.tasks
        return await put(self.lead, request, self.hand, aloud=aloud, alone=alone)

    def read(self, node: _Node, answered: Answered) -> _Judged:
        """How a reply splits a part. One that makes a single part of it, or the same twice, splits nothing."""
        table = answered.table
        names = [card.name for card in self.lead.cards]
        given = [] if yes(table.get("simple")) else read_subtasks(table.get("subtasks"))
        made: dict[str, _Node] = {}
        numbered: dict[int, _Node] = {}
        for one in given:
            worker = who(one.worker, names) or node.worker or words(one.worker)
            key = f"{worker}: {_same(one.instruction)}"
            if key not in made and len(made) < self.breadth:
                name = f"{node.id}{'.' if node.above else ''}{len(made) + 1}"
                after = tuple(dict.fromkeys(numbered[place] for place in one.after if place in numbered))
                made[key] = _Node(
                    id=name,
                    instruction=one.instruction,
                    worker=worker,
                    above=(*node.above, _same(node.instruction)),
                    after=after,
                )
            if key in made:
                numbered[one.number] = made[key]
        worker = who(table.get("worker"), names)
        found = tuple(made.values())
        if len(found) == 1 or self.breadth == 1:
            worker = worker or (found[0].worker if found else node.worker)
            found = ()
        rest = tuple(one.instruction for one in given if one.number not in numbered) if found else ()
        return _Judged(
            worker=worker, parts=found, why=words(table.get("why")), unserved=texts(table.get("unserved")), rest=rest
        )

    def tell(self, node: _Node, found: _Judged) -> None:
        why = f" (why: {found.why})" if found.why else ""
        what = "the request" if not node.above else node.id
        if node.parts:
            self.hand.note(f"{what} is split into {', '.join(one.id for one in node.parts)}{why}")
        elif node.worker:
            self.hand.note(f"{what} is simple: {node.worker} does it{why}")

    def failed(self, code: str, text: str) -> WorkFailed:
        return WorkFailed(
            Failure("logic", text), total(self.used), (Finding(code=code, place="subtasks", message=text),)
        )


def _tasks(root: _Node) -> tuple[Task, ...]:
    """The leaves, each after all leaves of what it, or what it is a part of, needs."""
    tasks: list[Task] = []

    def walk(node: _Node, needed: tuple[TaskId, ...]) -> None:
        more = tuple(TaskId(leaf.id) for one in node.after for leaf in one.leaves())
        needed = tuple(dict.fromkeys((*needed, *more)))
        if not node.parts:
            name = TaskId(node.id if node.above else "t1")
            tasks.append(Task(name, node.instruction, node.worker, after=needed))
        for one in node.parts:
            walk(one, needed)

    walk(root, ())
    return tuple(tasks)


def _same(text: str) -> str:
    return " ".join(text.split()).casefold()


# --- a split: what the model is asked for, and the parts in its reply


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


def read_subtasks(said: object) -> list[Subtask]:
    """The subtasks that say what to do; some models write only that."""
    listed = cast("list[object]", said) if isinstance(said, list) else []
    found: list[Subtask] = []
    for number, one in enumerate(listed, 1):
        body: Mapping[str, object] = cast("dict[str, object]", one) if isinstance(one, dict) else {"instruction": one}
        if text := instruction(body.get("instruction")):
            found.append(Subtask(number, text, body.get("worker"), _numbers(body.get("after"))))
    return found


def _numbers(said: object) -> tuple[int, ...]:
    listed = cast("list[object]", said) if isinstance(said, list) else []
    return tuple(one for one in listed if isinstance(one, int) and not isinstance(one, bool))
