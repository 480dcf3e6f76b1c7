"""What an audit finds, and what it looks at: a trace, the state it comes to, and who was given what.

What is wrong with any of it is not known here.
"""

import re
from collections.abc import Iterator
from typing import cast

from msgspec import Struct, field

from chargehand.agents.inputs import told
from chargehand.core.owed import Brief
from chargehand.core.state import Progress, RunState, Status
from chargehand.core.view import Input, inputs
from chargehand.models.envelope import unwrap
from chargehand.runtime.audit_words import matter, said
from chargehand.runtime.traced import AttemptTrace, DutyTrace, StepTrace, TaskTrace, Trace
from chargehand.terms.plan import TaskId
from chargehand.terms.value import decode_value
from chargehand.terms.work import Work

MODES = {
    "1.1": "disobeys the task", "1.2": "disobeys its role", "1.3": "repeats steps", "1.4": "loses what came before",
    "1.5": "does not know when to stop", "2.1": "starts over", "2.2": "does not ask", "2.3": "leaves its task",
    "2.4": "holds something back", "2.5": "ignores its input", "2.6": "says what it did not do",
    "3.1": "ends too early", "3.2": "is not checked", "3.3": "is checked wrongly",
}  # fmt: skip
"""The ways in which crews fail, by their numbers in MAST. No detector ever reports 3.3."""
ENGINE = frozenset(("model", "memory", "remember", "summary", "make worker"))
"""Steps that are no tools."""
_SHOWN, _START = 200, 120
_HEADER = re.compile(r"<data [0-9a-f]* from \"(task [^\"\n]*)\">\n")


class AuditFinding(Struct, frozen=True, omit_defaults=True):
    """One way in which a run went wrong, or would have: `prevented` says that the engine did not let it happen.

    `task` is empty where it concerns the plan or the answer. `evidence` is what the journal says, cut to a line or two.
    """

    mode: str
    task: TaskId
    message: str
    evidence: str = ""
    prevented: bool = False


def found(mode: str, task: TaskId, message: str, evidence: str = "", *, prevented: bool = False) -> AuditFinding:
    shown = evidence.strip()
    return AuditFinding(
        mode, task, message, shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} …", prevented=prevented
    )


class Case(Struct):
    """A run to be looked into. What several detectors ask for is worked out once."""

    trace: Trace
    state: RunState
    shown: dict[TaskId, str] = field(default_factory=dict[TaskId, str])
    about: dict[TaskId, frozenset[str]] = field(default_factory=dict[TaskId, frozenset[str]])
    given: dict[TaskId, tuple[Input, ...]] = field(default_factory=dict[TaskId, tuple[Input, ...]])

    @property
    def over(self) -> bool:
        return self.state.ended is not None

    def attempts(self) -> Iterator[tuple[TaskTrace, AttemptTrace]]:
        for task in self.trace.tasks:
            for attempt in task.attempts:
                yield task, attempt

    def done(self) -> Iterator[tuple[TaskTrace, Progress]]:
        """Tasks that somebody did in this run and that have a result."""
        for task in self.trace.tasks:
            progress = self.state.tasks[task.id]
            if progress.status is Status.DONE and task.attempts and task.attempts[-1].ending == "succeeded":
                yield task, progress

    def inputs_of(self, task: TaskId) -> tuple[Input, ...]:
        """The results a task was given to work from."""
        if task not in self.given:
            every = inputs(self.state, self.state.tasks[task])
            self.given[task] = tuple(one for one in every if one.value is not None)
        return self.given[task]

    def matter_of(self, reader: TaskId, given: Input) -> frozenset[str]:
        """What an input is about."""
        assert given.value is not None, "gaps are not given"
        if self.state.tasks[reader].index >= 0:  # each is given another item of the same list
            return matter(said(decode_value(given.value)))
        if given.task not in self.about:
            self.about[given.task] = matter(said(decode_value(given.value)))
        return self.about[given.task]

    def opening_of(self, reader: TaskId, given: Input) -> str:
        """How an input begins, in the words in which models are shown it."""
        if reader and self.state.tasks[reader].index >= 0:
            return opening(given)
        if given.task not in self.shown:
            self.shown[given.task] = opening(given)
        return self.shown[given.task]


def opening(given: Input) -> str:
    bare = Input(given.task, given.value)  # its gaps are told apart from it
    envelope = unwrap(told(Brief(Work("attempt", given.task, 1), "", 0.0, inputs=(bare,)), "0").text)
    return "" if envelope is None else envelope[1][:_START]


def prompt_text(work: AttemptTrace | DutyTrace) -> str:
    """All that a model was first told for a piece of work; nothing if nobody recorded it."""
    told_so = [message for prompt in work.prompts for message in _messages(prompt.messages)]
    return "\n".join(told_so)


def _messages(messages: object) -> Iterator[str]:
    for one in cast("list[object]", messages) if isinstance(messages, list) else []:
        text = cast("dict[str, object]", one).get("text") if isinstance(one, dict) else None
        if isinstance(text, str):
            yield text


def enclosed(text: str) -> dict[str, list[str]]:
    """How the data in a prompt begin, by the task they come from; each part of the prompt is looked at once."""
    starts: dict[str, list[str]] = {}
    for header in _HEADER.finditer(text):
        origin = header[1].partition(", ")[0]
        starts.setdefault(origin, []).append(text[header.end() : header.end() + _START])
    return starts


def origin_of(task: TaskId) -> str:
    """What stands for a task in a prompt."""
    return f"task {task}".replace('"', "'").partition(", ")[0]


def replies(attempt: AttemptTrace) -> list[tuple[str, bool, str]]:
    """What a model said in turn: its text, whether it called tools, and why it stopped."""
    turns: list[tuple[str, bool, str]] = []
    for step in attempt.steps:
        if step.name == "model" and isinstance(step.result, dict):
            reply = cast("dict[str, object]", step.result)
            turns.append((str(reply.get("text", "")), bool(reply.get("calls")), str(reply.get("finish", "stop"))))
    return turns


def acted(step: StepTrace) -> bool:
    """Whether a call did something in the world, as far as its tool says of itself, and worked."""
    return step.effect != "read" and step.name not in ENGINE and went_well(step)


def went_well(step: StepTrace) -> bool:
    failed = isinstance(step.result, dict) and bool(cast("dict[str, object]", step.result).get("error"))
    return step.good and step.seconds is not None and not failed
