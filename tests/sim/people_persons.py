"""The persons of one seed of `people`: what they answer to a question, and what they answer that must be refused."""

import random
from collections.abc import Sequence

from chargehand.engine import events as ev
from chargehand.engine.failure import PendingCall
from chargehand.runtime.approving import ApprovalRequest, PersonQuestion
from tests.sim.people_teams import Manner
from tests.sim.people_world import EFFECTS, World

Verdict = tuple[ev.CallWord, str, object]
"""The word, the reason and, of an effect that happened, its result."""


class Persons:
    """They say the same of the same call every time, and look into the books of the services before a repetition."""

    def __init__(self, seed: int, manner: Manner, world: World) -> None:
        self.chance = random.Random(f"persons/{seed}")
        self.manner = manner
        self._seed = seed
        self._world = world
        self.problems: list[tuple[int, str]] = []
        """What a question does not show that it should, each with the number of the property."""

    def late(self) -> float:
        """Return the time before an answer, in seconds."""
        return self.chance.uniform(0, self.manner.late)

    def allows(self, item: str) -> bool:
        """Return whether a call is allowed that happens for the first time."""
        return random.Random(f"allow/{self._seed}/{item}").random() < self.manner.yes

    def repeats(self, item: str) -> bool:
        """Return whether a call is allowed that happened already."""
        return random.Random(f"repeat/{self._seed}/{item}").random() < 0.3

    def says(self, text: str) -> str | int:
        """Return the answer to a question in words."""
        if text.startswith("How many"):
            return len(text)
        return random.Random(f"say/{self._seed}/{text}").choice(("left", "right"))

    # --- verdicts on calls

    def judge(self, what: str, call: PendingCall) -> Verdict:
        """Return what a person says of a call."""
        item = str(call.arguments.get("item", ""))
        if what == "effect":
            return self._judge_doubt(call, item)
        if call.because == "repeated":
            self._check_earlier(call, item)
            is_allowed = self.repeats(item) if self._world.happened(item) else self.allows(item)
        else:
            is_allowed = self.allows(item)
        return ("approve", "", None) if is_allowed else ("reject", f"no {item}", None)

    def _judge_doubt(self, call: PendingCall, item: str) -> Verdict:
        """Say what became of an effect, after a look at the book of the service."""
        if call.tool not in EFFECTS or not item or not call.key:
            self.problems.append((16, f"a question about an effect in doubt does not name the call: {call}"))
            return "fail", "", None
        if self._world.can_tell(item):
            self.problems.append((21, f"a person is asked what became of {call.tool} {item}"))
        if random.Random(f"fail/{self._seed}/{item}").random() < self.manner.fails:
            return "fail", "the task is not worth it", None
        made = self._world.by_key(call.key)
        if made is None and self._was_made_unrecorded(item, call.arguments.get("words")):
            self.problems.append((16, f"{call.tool} {item} is not known under the key {call.key!r}"))
        return ("again", "", None) if made is None else ("done", "", made.token)

    def _was_made_unrecorded(self, item: str, words: object) -> bool:
        """Return whether a call happened of which no journal has the result."""
        made = [call for call in self._world.calls if call.item == item and call.words == words and call.happened]
        recorded = b"".join(self._world.recorded)
        return any(call.token.encode() not in recorded for call in made)

    def _check_earlier(self, call: PendingCall, item: str) -> None:
        earlier = call.earlier
        if earlier is None and "time number" in call.text:
            return  # a second time in the same attempt
        if earlier is None or earlier.tool != call.tool:
            self.problems.append((8, f"a question about a repetition does not show the earlier call: {call}"))
        elif self._world.happened(item) and earlier.arguments.get("item") != item:
            self.problems.append((8, f"{call.tool} {item} would be repeated, and {earlier.arguments} is shown"))

    # --- answers as events

    def answer(self, asked: ev.InputRequested) -> ev.InputAnswered:
        """Return an answer that fits; where several calls wait, some may be left for the next question."""
        if asked.what == "question":
            return ev.InputAnswered(asked.number, "answer", result=self.says(asked.text))
        if asked.what == "plan":
            return ev.InputAnswered(asked.number, "approve")
        first, *others = asked.calls
        word, why, result = self.judge(asked.what, first)
        also: list[ev.CallVerdict] = []
        for call in others:
            if self.chance.random() < self.manner.part:
                continue
            verdict, reason, came = self.judge(asked.what, call)
            also.append(ev.CallVerdict(call.call, verdict, reason, came))
        return ev.InputAnswered(asked.number, word, why, result=result, also=tuple(also))

    def wrong_answers(self, asked: ev.InputRequested) -> list[ev.InputAnswered]:
        """Return answers that do not fit the question, at most one of a kind."""
        if self.chance.random() >= self.manner.wrong:
            return []
        right = self.answer(asked)
        answers = [_numbered(right, asked.number + self.chance.choice((-1, 1)))]
        if asked.what == "question":
            answers.append(ev.InputAnswered(asked.number, "answer", result="up"))
        if asked.what in ("tool", "effect"):
            other: ev.CallWord = "approve" if asked.what == "effect" else "again"
            answers.append(ev.InputAnswered(asked.number, other))
            unknown = ev.CallVerdict(99, right.verdict)  # pyright: ignore[reportArgumentType] - a word for a call
            answers.append(ev.InputAnswered(asked.number, right.verdict, result=right.result, also=(unknown,)))
        return [self.chance.choice(answers)]

    # --- answers in words

    def words(self, asked: ev.InputRequested) -> str | dict[int, str] | ev.InputAnswered:
        """Return the same answer as `resume` takes it in words; a number is no word."""
        if asked.what == "question":
            said = self.says(asked.text)
            return said if isinstance(said, str) else self.answer(asked)
        if asked.what == "plan":
            return "approve"
        verdicts = {call.call: _in_words(self.judge(asked.what, call)) for call in asked.calls}
        return next(iter(verdicts.values())) if len(verdicts) == 1 else verdicts

    # --- answers by functions

    def decide(self, request: ApprovalRequest, calls: Sequence[PendingCall]) -> str | None:
        """Return what `on_approval` returns; None leaves the question open."""
        if self.chance.random() < self.manner.looks:
            return None
        if request.what == "plan":
            return "approve"
        call = next((each for each in calls if each.arguments == request.arguments), None)
        if call is None:
            return "reject"
        return _in_words(self.judge("tool", call))

    def tell(self, question: PersonQuestion) -> str | int | None:
        """Return what `on_question` returns: the answer, one that does not fit, or None."""
        if self.chance.random() < self.manner.looks:
            return None
        return "up" if self.chance.random() < self.manner.wrong / 3 else self.says(question.text)


def _in_words(verdict: Verdict) -> str:
    word, why, result = verdict
    if word == "done":
        return f"done: {result}"
    return f"{word}: {why}" if why else word


def _numbered(answer: ev.InputAnswered, number: int) -> ev.InputAnswered:
    return ev.InputAnswered(number, answer.verdict, answer.feedback, result=answer.result, also=answer.also)
