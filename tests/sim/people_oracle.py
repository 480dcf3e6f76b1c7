"""What must be true of a seed of `people`: payments on a yes, nothing twice unasked, no step lost, no question ended.

It knows the programs and the books of the services, and reads what was asked and answered off the journals.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from chargehand.engine import events as ev
from chargehand.engine.failure import PendingCall
from chargehand.engine.fold import replay
from chargehand.engine.value import decode_value
from tests.sim.nested import Violation
from tests.sim.people_teams import Cast, Scenario
from tests.sim.people_world import EFFECTS, MadeCall, Operation, World, question_text

PROPERTIES = {
    1: "a call that needs a yes is made once for each yes and never after a no",
    2: "an answer reaches the question that its giver has seen",
    3: "an open question ends by an answer or a cancel",
    4: "the time of a person counts for nobody",
    5: "an answer that does not fit is refused",
    6: "a finished call is not made again",
    7: "a refused call is a gap",
    8: "an effect is repeated only after a question that shows it",
    9: "a later attempt is told what earlier ones did",
    10: "a failure of the line loses no finished step",
    11: "a line of a block stands once",
    12: "results and answers of a run are taken over",
    13: "an effect in doubt at the end is a gap",
    14: "a run ends for the reason of the run inside it",
    15: "a complete run left nothing out",
    16: "a question about an effect in doubt names its call",
    17: "one question lists all effects in doubt",
    18: "equal calls of a task have one key",
    19: "the ledger has the calls that were made",
    20: "what can be finished is finished",
    21: "a tool that can look a call up is asked before a person",
}
"""What is judged, by number."""
Runs = Mapping[str, Sequence[ev.Entry]]
_TIMES = ("deadline", "timeout")
_OPEN_ENDINGS = ("cancelled", "needs_input")


class Evidence(Struct):
    """All that is known of a seed when it is over."""

    seed: int
    scenario: Scenario
    cast: Cast
    world: World
    runs: Runs = {}
    died: dict[int, str] = {}
    """Lives that ended in the middle, by number: `crash` or `stop`."""
    stops: list[Runs] = []
    """What was written at each orderly stop."""
    block: str = ""


class Decision(Struct, frozen=True):
    """What a person said of a call."""

    call: PendingCall
    what: str
    word: str
    at: float
    run: str
    """The outermost run."""
    task: str
    """Its task that asked."""

    @property
    def item(self) -> str:
        """Return what the call is about."""
        return str(self.call.arguments.get("item", ""))


def judge(evidence: Evidence) -> list[str]:
    """Raise Violation for what is not true of a seed; return its facts, the same for the same seed."""
    _Judge(evidence).judge()
    calls = [f"{call.at:.3f} {call.kind} {call.item} {call.words} {call.happened}" for call in evidence.world.calls]
    events = [
        f"{run} {entry.at:.3f} {type(entry.event).__name__} {ev.task_of(entry.event)}"
        for run, entries in sorted(evidence.runs.items())
        for entry in entries
    ]
    return [*calls, *events]


def violation(seed: int, number: int, text: str) -> Violation:
    """Return the error for a property that does not hold."""
    return Violation(f"seed {seed}: property {number} ({PROPERTIES[number]}): {text}")


class _Judge:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._scenario = evidence.scenario
        self._world = evidence.world
        self._runs = evidence.runs
        self._tops = {run: entries for run, entries in evidence.runs.items() if run in ("r", "r2")}
        self._decisions = [each for run, entries in self._tops.items() for each in decisions(run, entries)]
        self._ends = {
            run: entries[-1].event for run, entries in self._runs.items() if isinstance(entries[-1].event, ev.RunEnded)
        }
        self._programs = evidence.cast.programs
        self._recorded = recorded_results(self._runs)

    def judge(self) -> None:
        for run in self._tops:
            self._require(run in self._ends, 3, f"{run} has not ended")
        self._judge_payments()
        self._judge_repetitions()
        self._judge_questions()
        self._judge_time()
        self._judge_refusals()
        self._judge_completeness()
        self._judge_keys()
        self._judge_model_calls()
        self._judge_reads()
        self._judge_told()
        self._judge_doubts()
        self._judge_ends()
        self._judge_block()
        self._judge_reuse()
        self._judge_ledger()

    def _require(self, truth: object, number: int, text: str) -> None:
        if not truth:
            raise violation(self._evidence.seed, number, text)

    # --- 1: a yes is needed, and good for one call

    def _judge_payments(self) -> None:
        """Compare the book of the payments with what persons allowed."""
        for run in self._tops:
            allowed = Counter(_words(each.call.arguments) for each in self._said(run, "approve"))
            again = Counter(_words(each.call.arguments) for each in self._said(run, "again"))
            made = [call for call in self._world.calls if call.kind == "pay" and root_of(call.run) == run]
            for call in made:
                self._require(allowed[call.words], 1, f"{run}: {call.words!r} was paid without a yes")
            absent = self._absent(run)
            for words, count in Counter(call.words for call in made).items():
                most = allowed[words] + again[words] + absent[words]
                self._require(count <= most, 1, f"{run}: {words!r} was called {count} times, {most} allowed")
        for no in self._decisions:
            if no.word == "reject" and no.what == "tool":
                self._judge_refused_call(no)

    def _absent(self, run: str) -> Counter[str]:
        """Return how often a service said of a call that it did not happen, by words."""
        absent: Counter[str] = Counter()
        for inside, entries in self._runs.items():
            words: dict[tuple[str, int], str] = {}
            for event in (entry.event for entry in entries if root_of(inside) == run):
                if isinstance(event, ev.StepStarted) and event.arguments != ev.NULL:
                    words[event.task, event.step] = _words(msgspec.json.decode(event.arguments, type=dict[str, object]))
                elif isinstance(event, ev.StepLookedUp) and event.outcome == "absent":
                    absent[words[event.task, event.step]] += 1
        return absent

    def _said(self, run: str, word: str) -> list[Decision]:
        return [each for each in self._decisions if each.run == run and each.word == word]

    def _judge_refused_call(self, no: Decision) -> None:
        """Check that a refused call was not made after it was refused."""
        words = no.call.arguments.get("words")
        for call in self._world.calls:
            if call.item != no.item or call.words != words or call.at < no.at or root_of(call.run) != no.run:
                continue
            later = [
                each
                for each in self._decisions
                if each.item == no.item and each.word in ("approve", "again") and each.at >= no.at
            ]
            self._require(later, 1, f"{no.run}: {call.kind} {words!r} was made after it was refused")

    # --- 8: nothing twice without a question that shows the earlier call

    def _judge_repetitions(self) -> None:
        """Check that each repetition of an effect was asked about, with the earlier call."""
        for item, calls in self._effects().items():
            happened = [call for call in calls if call.happened]
            if len(happened) < 2:
                continue
            shown = [
                each
                for each in self._decisions
                if each.item == item and each.word == "approve" and _shows_earlier(each)
            ]
            again = [each for each in self._decisions if each.item == item and each.word == "again"]
            places = ", ".join(f"{call.run} {call.task} attempt {call.attempt} {call.words!r}" for call in happened)
            most = 1 + len(shown) + len(again)
            text = f"{calls[0].kind} {item} happened {len(happened)} times, {most} allowed: {places}"
            self._require(len(happened) <= most, 8, text)

    def _effects(self) -> dict[str, list[MadeCall]]:
        """Return the calls with an effect, by item."""
        calls: dict[str, list[MadeCall]] = defaultdict(list)
        for call in self._world.calls:
            if call.kind in EFFECTS:
                calls[call.item].append(call)
        return calls

    # --- 2, 3: questions

    def _judge_questions(self) -> None:
        """Check that each question ended by an answer to its number or by a cancel."""
        for run, entries in self._runs.items():
            asked: ev.InputRequested | None = None
            is_cancelled = False
            for entry in entries:
                event = entry.event
                if isinstance(event, ev.InputRequested):
                    asked = event
                elif isinstance(event, ev.InputAnswered):
                    text = f"{run}: {event} answers {asked}"
                    self._require(asked is not None and asked.number == event.number, 2, text)
                    asked = None
                elif isinstance(event, ev.CancelRequested):
                    is_cancelled = True
                elif isinstance(event, ev.RunEnded):
                    self._require(asked is None or is_cancelled, 3, f"{run} ended ({event.reason}) and asked {asked}")

    # --- 4: the time of a person is nobody's

    def _judge_time(self) -> None:
        """Check that no time runs out that was spent waiting for persons."""
        late = {run for run, ended in self._ends.items() if ended.reason == "deadline"}
        for run in late:
            entries = self._runs[run]
            first = entries[0]
            has_inner = any(each.startswith(f"{run}/") for each in late)
            has_reused = any(isinstance(entry.event, ev.ResultReused) for entry in entries)
            if not isinstance(first.event, ev.RunRequested) or has_inner or has_reused:
                continue
            time = first.event.deadline - first.at
            active = active_time(entries)
            self._require(active >= 0.7 * time, 4, f"{run} had {time:.1f} s and ended after {active:.1f} s of its own")
        if not self._scenario.calm:
            return
        for run, entries in self._runs.items():
            for entry in entries:
                if isinstance(entry.event, ev.AttemptFailed):
                    kind = entry.event.failure.kind
                    self._require(kind != "deadline", 4, f"{run} {entry.event.task}: {entry.event.failure.message}")
                    is_own = kind != "timeout" or "it did not work out" in entry.event.failure.message
                    self._require(is_own, 4, f"{run} {entry.event.task}: {entry.event.failure.message}")

    # --- 7: a refused call is a gap

    def _judge_refusals(self) -> None:
        """Check that a refused call stands in the end of its run, unless a later one did it."""
        for no in self._decisions:
            ended = self._ends[no.run]
            if no.word != "reject" or no.what != "tool" or ended.ending in _OPEN_ENDINGS or self._scenario.replans:
                continue
            # what a team inside left out is not known where it was cancelled while it wrote its answer
            if self._world.happened(no.item) or self._is_cut_inside(no.run):
                continue
            gaps = [gap for gap in ended.gaps if gap.status == "refused"]
            found = [gap for gap in gaps if gap.tool == no.call.tool and gap.arguments == no.call.arguments]
            text = f"{no.run} ended {ended.ending}: {no.call.tool} {no.call.arguments} was refused; gaps: {ended.gaps}"
            self._require(found and ended.ending != "complete", 7, text)
            self._require(found and f"no {no.item}" in found[0].message, 7, f"the gap has no reason: {found}")

    def _is_cut_inside(self, run: str) -> bool:
        inside = [ended for name, ended in self._ends.items() if name.startswith(f"{run}/")]
        return any(ended.ending == "cancelled" for ended in inside)

    # --- 15, 20: what was not done is not told as complete

    def _judge_completeness(self) -> None:
        """Check that a complete run did every call of its programs, and that a calm one is complete."""
        for run in self._tops:
            if self._ends[run].ending == "complete":
                for name, program in self._programs.items():
                    for calls in program:
                        for call in calls:
                            self._require(self._is_done(call), 15, f"{run}: {name} left out {call.text}")
            elif self._must_complete():
                text = f"{run} ended {self._ends[run].ending} ({self._ends[run].reason}): {self._ends[run].gaps}"
                self._require(False, 20, text)

    def _is_done(self, call: Operation) -> bool:
        if call.kind == "append":
            return f"line {call.item};" in self._evidence.block
        if call.kind == "ask":
            asked = question_text(call.item)
            return any(each.what == "question" and each.call.text == asked for each in self._decisions)
        return call.repeat or self._world.happened(call.item) > 0

    def _must_complete(self) -> bool:
        """Return whether nothing happened for which a part may be missing."""
        scenario = self._scenario
        refused = any(each.word in ("reject", "fail") for each in self._decisions)
        return scenario.calm and not refused and not self._world.spoiled and scenario.policy.uncertain == "ask"

    # --- 18: keys

    def _judge_keys(self) -> None:
        """Check that equal calls of a task have one key, whatever attempt makes them."""
        repeated = {
            call.item for program in self._programs.values() for calls in program for call in calls if call.repeat
        }
        repeated |= self._world.declined
        keys: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for call in self._world.calls:
            if call.kind != "look" and call.item not in repeated and self._allowed_again(call.item) == 0:
                keys[call.run, call.task, call.kind, call.item, call.words].add(call.key)
        for which, found in keys.items():
            self._require(len(found) == 1, 18, f"{which} was called under {len(found)} keys")

    def _allowed_again(self, item: str) -> int:
        said = [each for each in self._decisions if each.item == item and each.word == "approve"]
        return sum(each.call.because == "repeated" for each in said)

    # --- 6, 10: finished calls are not made again

    def _judge_model_calls(self) -> None:
        """Count the replies of the model: no recorded one is asked for again, none is lost but by a death."""
        serials = recorded_replies(self._runs)
        replies = [asked for asked in self._world.asked if asked.name and asked.outcome == "reply"]
        if self._ends["r"].ending != "cancelled" and self._scenario.calm:
            for asked in replies:
                is_known = asked.number in serials or asked.life in self._evidence.died
                self._require(is_known, 6, f"reply {asked.number} for {asked.name} was not recorded")
        if self._world.spoiled or self._scenario.replans or not self._scenario.calm:
            return
        if self._scenario.policy.uncertain == "fail" and self._evidence.died:
            return
        counts = Counter((asked.phase, asked.name) for asked in replies if asked.number in serials)
        for (phase, name), count in counts.items():
            if phase == 2:
                continue  # what a task did before it is done again is known to persons, and some calls are refused
            needed = len(self._programs.get(name, ())) + 1
            self._require(count <= needed, self._lost_by, f"{count} replies were recorded for {name}, {needed} needed")

    @property
    def _lost_by(self) -> int:
        """Return the property that is broken where a finished call is made again."""
        return 10 if any(asked.outcome == "failed" for asked in self._world.asked) else 6

    def _judge_reads(self) -> None:
        """Check that a finished read is not made again."""
        if self._world.spoiled or self._scenario.replans or not self._scenario.calm:
            return
        finished = Counter(
            call.item for call in self._world.calls if call.kind == "look" and call.token.encode() in self._recorded
        )
        for item, count in finished.items():
            most = len(self._tops) if self._evidence.died or len(self._tops) > 1 else 1
            self._require(count <= most, self._lost_by, f"look {item} was finished {count} times")

    # --- 9: later attempts are told

    def _judge_told(self) -> None:
        """Check that a later attempt was told what earlier ones did."""
        untold = self._world.untold
        self._require(not untold, 9, f"a later attempt was not told: {'; '.join(untold[:3])}")

    # --- 16, 17, 13: effects in doubt

    def _judge_doubts(self) -> None:
        """Check that a question about effects lists all that are in doubt at that moment."""
        for run, entries in self._tops.items():
            doubts = OpenEffects()
            for entry in entries:
                event = entry.event
                if isinstance(event, ev.InputRequested) and event.what == "effect":
                    self._judge_doubt_question(run, event, doubts)
                doubts.feed(event)
        for rows in self._evidence.stops:
            for run, entries in rows.items():
                top = rows.get(root_of(run), entries)
                if any(isinstance(entry.event, ev.CancelRequested | ev.TimeRanOut) for entry in (*top, *entries)):
                    continue  # a cancel and a deadline wait for no call
                if last_taken_up(entries) < last_taken_up(top):
                    continue  # the process that was stopped had not come to this run yet
                effects = OpenEffects()
                for entry in entries:
                    effects.feed(entry.event)
                self._require(not effects.running, 13, f"{run} was stopped in order and cut {effects.running}")

    def _judge_doubt_question(self, run: str, asked: ev.InputRequested, doubts: "OpenEffects") -> None:
        calls = asked.calls
        for call in calls:
            is_named = call.tool in EFFECTS and call.arguments.get("item") and call.key
            self._require(is_named, 16, f"{run} asks about an effect, and not which: {asked}")
        if asked.question is not None and asked.question.run:
            return  # the effects of a run inside are in the journal of that run
        named = {call.task for call in calls} | doubts.looked_up
        missing = [name for name in doubts.failed if name[0] not in named]
        self._require(not missing, 17, f"{run}: question {asked.number} leaves out {missing}: {calls}")

    def _judge_ends(self) -> None:
        """Check that an effect that is in doubt at the end is a gap, and that all runs tell the same reason."""
        for run in self._tops:
            ended = self._ends[run]
            shown = [gap for gap in ended.gaps if gap.reason == "uncertain"]
            for inside, entries in self._runs.items():
                if root_of(inside) != run:
                    continue
                self._judge_doubt_at_end(inside, entries, shown)
                inner = self._ends.get(inside)
                is_for_time = all(gap.reason in _TIMES for gap in ended.gaps if gap.status == "failed")
                if inner is not None and inner.reason == "deadline" and ended.reason == "no_results" and is_for_time:
                    self._require(False, 14, f"{inside} ended ({inner.reason}) and {run} ended ({ended.reason})")

    def _judge_doubt_at_end(self, run: str, entries: Sequence[ev.Entry], shown: Sequence[ev.Gap]) -> None:
        doubts = OpenEffects()
        for entry in entries:
            doubts.feed(entry.event)
        for step in doubts.open():
            made = [call for call in self._world.calls if call.run == run and call.task == step.task and call.key]
            arguments = decode_value(step.arguments) if step.arguments != ev.NULL else None
            named = [gap for gap in shown if gap.tool == step.name and gap.arguments == arguments]
            if any(call.kind == step.name for call in made) and not self._is_decided(step):
                text = f"{run} {step.task}: {step.name} is in doubt and no gap says so: {shown}"
                self._require(named, 13, text)

    def _is_decided(self, step: ev.StepStarted) -> bool:
        """Return whether a person said what became of a call. A yes to another call that may repeat it says nothing."""
        return any(each.what == "effect" and each.call.key == step.key for each in self._decisions)

    # --- 11: a line of a block stands once

    def _judge_block(self) -> None:
        """Count the lines of the block; a second plan has tasks, and lines, of its own."""
        if self._scenario.replans:
            return
        for name, program in self._programs.items():
            for call in (call for calls in program for call in calls if call.kind == "append"):
                count = self._evidence.block.count(f"line {call.item};")
                self._require(count <= 1, 11, f"the line of {name} {call.item} stands {count} times in the block")

    # --- 12, 19: results and answers are taken over

    def _judge_reuse(self) -> None:
        """Check what the second run took over from the first."""
        if "r2" not in self._tops:
            return
        first, second = self._tops["r"], self._tops["r2"]
        begun = {entry.event.task for entry in second if isinstance(entry.event, ev.AttemptStarted)}
        refused = {each.call.task for each in self._said("r", "reject")} | {
            each.task for each in self._said("r", "reject")
        }
        for task in unaffected_tasks(first, self._ends["r"]) - refused:
            self._require(task not in begun, 12, f"r2 did {task} again, which r finished")
        answered = {text for run in self._runs if root_of(run) == "r" for text in answered_questions(self._runs[run])}
        asked = [each.call.text for each in self._decisions if each.what == "question" and each.run == "r2"]
        again = [text for text in asked if text in answered and not self._scenario.replans]
        self._require(not again, 12, f"r2 asked again: {again}")

    def _judge_ledger(self) -> None:
        """Compare the calls in a ledger with those that were made."""
        if self._evidence.died or self._scenario.cancel or not self._scenario.calm:
            return
        for phase, (run, entries) in enumerate(self._tops.items(), 1):
            made = [asked for asked in self._world.asked if asked.phase == phase]
            least = sum(asked.outcome == "reply" for asked in made)
            spent = replay(entries).ledger.calls
            self._require(least <= spent <= len(made), 19, f"{run} booked {spent} calls; {least} to {len(made)} made")


# --- what journals say


def _shows_earlier(yes: Decision) -> bool:
    """Return whether a question shows the call that would be repeated; of the same attempt it says how often."""
    earlier = yes.call.earlier
    if earlier is None:
        return "time number" in yes.call.text
    return yes.call.because == "repeated" and earlier.arguments.get("item") == yes.item


def _words(arguments: Mapping[str, object]) -> str:
    return str(arguments.get("words"))


def root_of(run: str) -> str:
    """Return the outermost run of a run."""
    return run.partition("/")[0]


def decisions(run: str, entries: Sequence[ev.Entry]) -> Iterator[Decision]:
    """Yield what persons said of each call and question of an outermost run."""
    asked: ev.InputRequested | None = None
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.InputRequested):
            asked = event
        if not isinstance(event, ev.InputAnswered) or asked is None:
            continue
        if asked.what == "question":
            yield Decision(
                PendingCall(1, asked.text, "ask_person"), "question", event.verdict, entry.at, run, asked.task
            )
            continue
        calls = {call.call: call for call in asked.calls}
        if not calls:
            continue
        first = next(iter(calls.values()))
        yield Decision(first, asked.what, event.verdict, entry.at, run, asked.task)
        for verdict in event.also:
            if verdict.call in calls:
                yield Decision(calls[verdict.call], asked.what, verdict.verdict, entry.at, run, asked.task)


def answered_questions(entries: Sequence[ev.Entry]) -> Iterator[str]:
    """Yield the questions in words that a run asked itself and that were answered there."""
    asked: ev.InputRequested | None = None
    for entry in entries:
        if isinstance(entry.event, ev.InputRequested):
            asked = entry.event
        elif isinstance(entry.event, ev.InputAnswered) and asked is not None and asked.what == "question":
            is_own = asked.question is None or not asked.question.run
            yield from (asked.text,) if is_own else ()


def active_time(entries: Sequence[ev.Entry]) -> float:
    """Return for how many seconds a run had no open question."""
    total = 0.0
    last = entries[0].at
    is_open = False
    for entry in entries:
        if not is_open:
            total += entry.at - last
        last = entry.at
        if isinstance(entry.event, ev.InputRequested):
            is_open = True
        elif isinstance(entry.event, ev.InputAnswered):
            is_open = False
    return total


def recorded_results(runs: Runs) -> bytes:
    """Return the results of all steps."""
    return b"".join(
        bytes(entry.event.result)
        for entries in runs.values()
        for entry in entries
        if isinstance(entry.event, ev.StepFinished)
    )


class _Usage(Struct):
    input: int = 0


class _Reply(Struct):
    usage: _Usage | None = None


def recorded_replies(runs: Runs) -> set[int]:
    """Return the numbers of the model's replies that are in the journals."""
    numbers: set[int] = set()
    for entries in runs.values():
        for entry in entries:
            if isinstance(entry.event, ev.StepFinished) and b'"usage"' in bytes(entry.event.result):
                try:
                    reply = msgspec.json.decode(entry.event.result, type=_Reply)
                except msgspec.ValidationError:
                    continue
                if reply.usage is not None:
                    numbers.add(reply.usage.input)
    return numbers


class OpenEffects:
    """Effects that were begun and have no outcome, from the events of a run in their order."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int, int], ev.StepStarted] = {}
        self.failed: dict[tuple[str, int], None] = {}
        """Attempts that failed and left an effect in doubt, by task and number."""
        self._begun_here: set[tuple[str, int, int]] = set()
        """The steps that were begun by the process which drives the run now."""
        self._given_up: set[tuple[str, int]] = set()
        """Attempts whose task a person declared as failed: they are not asked about again."""
        self.looked_up: set[str] = set()
        """Tasks whose retry first asks the tool what became of the call: nobody is asked before it has."""
        self._asked: ev.InputRequested | None = None

    @property
    def running(self) -> list[str]:
        """Return the effects that this process began and that are open, in words."""
        open_here = [step for place, step in self._steps.items() if place in self._begun_here]
        return [f"{step.task} {step.name}" for step in open_here if (step.task, step.attempt) not in self.failed]

    def open(self) -> list[ev.StepStarted]:
        """Return the steps that are open."""
        return list(self._steps.values())

    def feed(self, event: ev.Event) -> None:
        """Take the next event of the run."""
        match event:
            case ev.StepStarted(effect="effect", kind="tool"):
                place = event.task, event.attempt, event.step
                self._steps[place] = event
                self._begun_here.add(place)
            case ev.StepFinished():
                self._close(event.task, event.attempt, event.step)
            case ev.AttemptFailed() if event.failure.kind == "uncertain":
                if any(task == event.task for task, _, _ in self._steps):  # else it is in doubt in a run inside
                    self.failed[event.task, event.attempt] = None
            case ev.RetryScheduled() | ev.StepLookedUp():
                self._looks_up(event)
            case ev.RunResumed():
                self._begun_here.clear()
                settled = {place[:2] for place, step in self._steps.items() if step.look} | self._given_up
                self.failed |= {place[:2]: None for place in self._steps if place[:2] not in settled}
            case ev.InputRequested():
                self._asked = event
            case ev.InputAnswered() if self._asked is not None and self._asked.what == "effect":
                self._answered(self._asked.calls, event)
            case _:
                pass

    def _looks_up(self, event: ev.RetryScheduled | ev.StepLookedUp) -> None:
        if isinstance(event, ev.StepLookedUp):
            self.looked_up.discard(event.task)
            if event.outcome == "absent":
                self._close(event.task, event.attempt, event.step)
        elif event.keep and any(task == event.task for task, _ in self.failed):
            self.looked_up.add(event.task)

    def _close(self, task: str, attempt: int, step: int) -> None:
        """Close a step, which an earlier attempt may have begun that this one goes on from."""
        begun = [place for place in self._steps if place[0] == task and place[2] == step and place[1] <= attempt]
        if begun:
            del self._steps[max(begun)]
        if not any(place[0] == task for place in self._steps):
            self.failed = {failed: None for failed in self.failed if failed[0] != task}

    def _answered(self, calls: Sequence[PendingCall], answer: ev.InputAnswered) -> None:
        said = {verdict.call: verdict.verdict for verdict in answer.also} | {calls[0].call: answer.verdict}
        over = {call.key for call in calls if said.get(call.call) in ("done", "again")}
        self._steps = {place: step for place, step in self._steps.items() if step.key not in over}
        self._given_up |= {(call.task, call.attempt) for call in calls if said.get(call.call) == "fail"}
        decided = {(call.task, call.attempt) for call in calls if call.call in said}
        # an effect that was looked up in vain is asked about by a later attempt than the one that began it
        self.failed = {
            (task, attempt): None
            for task, attempt in self.failed
            if not any(task == asked and attempt <= number for asked, number in decided)
        }


def last_taken_up(entries: Sequence[ev.Entry]) -> float:
    """Return when a process last began to drive a run."""
    return max(entry.at for entry in entries if isinstance(entry.event, ev.RunRequested | ev.RunResumed))


def unaffected_tasks(entries: Sequence[ev.Entry], ended: ev.RunEnded) -> set[str]:
    """Return the tasks of a run that are done, with all that they read, and of which nothing is missing."""
    tasks: dict[str, ev.Task] = {}
    done: set[str] = set()
    changed: set[str] = {gap.task for gap in ended.gaps} | {gap.inner for gap in ended.gaps}
    for entry in entries:
        match entry.event:
            case ev.RunRequested(plan=plan) if plan is not None:
                tasks |= {task.id: task for task in plan.tasks}
            case ev.TasksAdded(tasks=added):
                tasks |= {task.id: task for task in added}
            case ev.AttemptSucceeded(task=task, missing=missing):
                done.add(task)
                if missing is not None:
                    changed.add(task)
            case ev.TaskRefined(task=task) | ev.TaskReassigned(task=task):
                changed.add(task)
            case _:
                pass
    good = {task for task in done if task in tasks and task not in changed}
    while True:
        bad = {task for task in good if not _inputs(tasks[task]) <= good}
        if not bad:
            return good
        good -= bad


def _inputs(task: ev.Task) -> set[str]:
    edges = {edge if isinstance(edge, str) else edge.task for edge in task.after}
    return edges | ({task.for_each} if task.for_each else set())
