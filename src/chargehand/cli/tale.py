"""A run told to people, entry by entry: the same words whether it is under way or long over.

It folds what it hears, so it knows what the run knows. A view that moves is drawn by `live`, from what is known here.
"""

from collections.abc import Iterable, Sequence

import msgspec

from chargehand.agents.levels import end_of
from chargehand.cli.console import Console, clean, clean_json, clean_lines, short, wrap_words
from chargehand.cli.measures import Measures
from chargehand.cli.memory_words import QUIET
from chargehand.cli.phrases import counted, gap, money
from chargehand.cli.question import question_lines
from chargehand.cli.render import forecast_lines, heading, seconds, tree
from chargehand.cli.timeline import LEGEND
from chargehand.cli.words import SUPERVISOR, said
from chargehand.core.fold import begin, fold
from chargehand.core.state import RunState
from chargehand.core.view import gaps, results
from chargehand.errors import Corrupt
from chargehand.terms import events as ev
from chargehand.terms.forecast import forecast
from chargehand.terms.plan import Plan
from chargehand.terms.policy import Seconds
from chargehand.terms.value import decode_value

_ROOM = 2000  # characters of a goal: that of a background run holds whole turns, and the journal has all of it
_LEAST_ROOM = 20  # columns beside the names, below which words are not wrapped
_BESIDE = " " * 14  # what stands under a line of the story


class Tale:
    """`console` is for the story, `data` for the answer, and for the entries where they are asked for (`jsonl`).

    Without `lines` only plans are told, not every event; without `models` nothing of what models were asked and said,
    and nothing of what memory was read for it.
    """

    def __init__(
        self, console: Console, data: Console, *, jsonl: bool, lines: bool = True, models: bool = True
    ) -> None:
        self._console = console
        self._data = data
        self._jsonl = jsonl
        self._lines = lines
        self._models = models
        self._state: RunState | None = None
        self._wide = 0
        self._resumes = False
        self.measures = Measures()

    @property
    def begun(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> RunState:
        assert self._state is not None, "a tale begins with its first entry"
        return self._state

    def hear(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Tell what was written."""
        if self._resumes:
            self._resumes = False
            goal = short(self.state.requested.goal, _ROOM)
            self._console.prose(f"going on with {clean(run)} after {self.state.seq} entries: {goal}", "bold")
        for entry in entries:
            if self._jsonl:
                self._data.line(clean_json(msgspec.json.encode(entry).decode()))
            self._tell(entry)

    def catch_up(self, entries: Iterable[ev.Entry]) -> None:
        """Take in what was told before; what is heard next goes on from there."""
        for entry in entries:
            self._take_in(entry)
        self._resumes = True

    def _tell(self, entry: ev.Entry) -> None:
        before, event = self._state, entry.event
        if isinstance(event, ev.RunRequested):
            self._take_in(entry)
            self._console.prose(f"goal: {short(event.goal, _ROOM)}", "bold")
            if event.plan is not None:
                self._show_plan(event.plan)
            return
        assert before is not None, "a run begins with its request"
        if self._lines and (self._models or not _in_between(before, event)):
            self._tell_event(before, entry)
        self._take_in(entry)
        if isinstance(event, ev.TasksAdded) and event.tasks:
            self._show_plan(Plan(event.tasks, self.state.combine))

    def _tell_event(self, before: RunState, entry: ev.Entry) -> None:
        words = said(before, entry, whole=self._models)
        task = f"{short(words.task, 20):{self._wide}}"
        who = f"{short(words.who, 12):{min(12, max(map(len, (*before.agents, SUPERVISOR))))}}"
        when = f"{entry.at - self.measures.began:8.2f} s"
        room = self._console.columns - len(f"{when}  {task}  {who}  ")
        first, *rest = wrap_words(words.text, room) if self._console.terminal and room > _LEAST_ROOM else [words.text]
        paint = self._console.paint
        self._console.line(f"{paint(when, 'dim')}  {task}  {who}  {paint(first, words.tone)}")
        for line in rest:
            self._console.line(f"{' ' * (self._console.columns - room)}{line.strip()}", words.tone)
        if isinstance(entry.event, ev.InputRequested):
            for line in question_lines(entry.event, self._console.columns - len(_BESIDE)):
                self._console.line(f"{_BESIDE}{line}")

    def _take_in(self, entry: ev.Entry) -> None:
        if self._state is None:
            if not isinstance(entry.event, ev.RunRequested):
                raise Corrupt("this run does not begin with its request; restore the journal from a backup")
            self._state = begin(entry)
        else:
            fold(self._state, entry)
        self.measures.hear(self._state, entry)
        if isinstance(entry.event, ev.RunRequested | ev.TasksAdded | ev.TaskExpanded | ev.InputAnswered):
            self._wide = min(20, max(map(len, self._state.tasks), default=0))

    def _show_plan(self, plan: Plan) -> None:
        requested = self.state.requested
        self._console.line()
        self._console.line(heading(plan), "bold")
        for line in tree(plan, self._console.columns):
            self._console.line(line)
        for line in forecast_lines(forecast(plan, requested.roster, requested.policy)):
            self._console.prose(line, "dim")
        self._console.line()

    def close(self) -> None:
        """The timeline, the answer, what is missing, what it cost, how long it took and how it ended."""
        self.show_timeline()
        self.show_answer()
        self.show_gaps()
        self.show_ending()

    def show_timeline(self) -> None:
        console = self._console
        console.line()
        console.line(f"timeline: {seconds(self._took())}   {LEGEND}", "bold")
        for line in self.measures.timeline.lines(console.columns):
            console.line(line)
        console.line()

    def _took(self) -> Seconds:
        return self.state.at - self.measures.began

    def show_gaps(self) -> None:
        """What is missing."""
        state, console = self.state, self._console
        end = end_of(state)
        missing = end.gaps if end is not None else gaps(state)
        if state.ended is not None:
            console.line(f"gaps: {len(missing) or 'none'}")
            for one in missing:
                console.prose(f"  {gap(one)}", "bad")
        elif missing:
            console.line(f"unfinished: {counted(len(missing), 'task')} of {len(state.tasks)}")

    def show_ending(self) -> None:
        """What it cost, how long it took and how it ended."""
        console = self._console
        console.line(f"cost: {money(self.state.ledger.spent)}")
        console.line(f"time: {seconds(self._took())}, with {seconds(self.measures.timeline.serial())} of work in it")
        console.line(f"ending: {ending(self.state)}", "bold")

    def show_summary(self) -> None:
        """The same in one line, for the end of a screen."""
        state = self.state
        came_to = f"{ending(state)} in" if state.ended is not None else "not finished after"
        if state.ended is None and state.input is not None:
            came_to = f"a person is asked {_ASKED[state.input.what]}, after"
        self._console.prose(f"{came_to} {seconds(self._took())}; cost: {money(state.ledger.spent)}", "bold")

    def show_answer(self) -> None:
        found = answer(self.state)
        if found is not None:
            self._console.line("answer:", "bold")
            # entries asked for: they hold the answer too, and nothing else belongs among them
            to = self._console if self._jsonl else self._data
            (to.markdown if is_prose(self.state) else to.line)(found)
            self._console.line()


def is_prose(state: RunState) -> bool:
    return state.answer is not None and isinstance(decode_value(state.answer), str)


def _in_between(state: RunState, event: ev.Event) -> bool:
    """Whether this is only what goes on between a worker, its model and its memory."""
    if isinstance(event, ev.StepStarted):
        return event.name in ("model", *QUIET)
    if isinstance(event, ev.StepFinished):
        steps = state.tasks[event.task].steps or {}
        return event.step in steps and steps[event.step].name in ("model", *QUIET)
    return isinstance(event, ev.PromptSent)


def answer(state: RunState) -> str | None:
    """The answer: text as it is, anything else as JSON. Where none is to be written, the results are the answer."""
    if state.answer is not None:
        found = decode_value(state.answer)
    elif state.combine == "none" and state.ended is not None:
        found = {one.task: decode_value(one.value) for one in results(state) if one.value is not None}
    else:
        return None
    if isinstance(found, str):
        return clean_lines(found)
    return clean_json(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


_ASKED = {"plan": "to approve the plan", "tool": "to approve a call", "effect": "what became of an effect"}


def ending(state: RunState) -> str:
    """How a run ended, or why it has not."""
    end = end_of(state)
    if end is not None:
        return end.ending if end.reason in ("done", end.ending) else f"{end.ending} ({end.reason})"
    if state.input is not None:
        return f"not yet: a person is asked {_ASKED[state.input.what]}"
    return "not yet"
