"""Tasks while a plan is being made: how their instructions are worded, and the plan put right after a check.

Which tasks there are is decided in planning.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from chargehand.models.offline.kinds import BY_NAME, OTHERWISE
from chargehand.models.offline.text_to_sql import RANKED_WHOLE
from chargehand.models.offline.vocabulary import ASKING, AUXILIARY, RELATIVE
from chargehand.models.offline.words import dates, names, numbers
from chargehand.terms.lint import lint
from chargehand.terms.plan import Task, TaskId
from chargehand.terms.policy import Limits
from chargehand.terms.roster import Agent, Roster

_LONGEST = 1500  # characters of an instruction
_NAMED = re.compile(r"'(t\d+)'")
_INDIRECT = re.compile(
    r"(?:what|why|when|where|who|how(?:\s+(?:many|much)\s+\w+)?)\s+(?:the|our|my|their|its|this|these|a|an)\b",
    re.IGNORECASE,
)
_SHORT = re.compile(
    r"\b(?:briefly|in brief|in one sentence|in a sentence|short answer|tl;?dr|in a nutshell)\b", re.IGNORECASE
)
_SELECT = re.compile(r"\b(?:pick|choose|select) the best (?:answer|result|version|draft|proposal)\b", re.IGNORECASE)
_FIRST = re.compile(
    r"(?:which|what|who)\b.*\b(?:the\s+)?(?:most|least|best|worst|fewest|\w{3,}est)\b", re.IGNORECASE | re.DOTALL
)
_ALLOWED = re.compile(r"(\d+) are allowed")


class Draft(Struct):
    """A task to be. `after` holds ids; `about` is the clause in words of its own, before anything is added to it."""

    id: str
    about: str
    worker: str
    kind: str
    after: list[str]
    optional: list[str] = []
    notes: list[str] = []
    replaces: str = ""

    @property
    def instruction(self) -> str:
        unnamed = [name for name in self.after if not re.search(rf"\b{re.escape(name)}\b", self.about)]
        said = [sentence(self.about), *map(sentence, self.notes)]
        if unnamed:
            said.append(f"Use the result{'s' if len(unnamed) > 1 else ''} of {listed(unnamed)}.")
        returns = BY_NAME[self.kind].returns if self.kind in BY_NAME else OTHERWISE
        if self.kind == "write" and not self.after:
            returns = "Return the text."
        return f"{' '.join(said)[:_LONGEST]} {returns}"


def sentence(text: str) -> str:
    """A clause as a sentence that begins and ends like one."""
    plain = " ".join(text.split()).strip(" ,;:")
    if _INDIRECT.match(plain):
        plain = f"Find out {plain[0].lower()}{plain[1:].rstrip('?')}"
    first = plain.partition(" ")[0].lower()
    asks = plain.endswith("?") or first in ASKING or first in RELATIVE or first in AUXILIARY
    return f"{plain[:1].upper()}{plain[1:].rstrip('.?! ')}{'?' if asks else '.'}"


def _details(text: str) -> set[str]:
    return {dated.normal for dated in dates(text)} | set(numbers(text)) | set(names(text))


def listed(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{', '.join(ids[:-1])} and {ids[-1]}"


def without_returns(instruction: str) -> str:
    """An instruction without its last sentence that says what to hand back."""
    return re.sub(r"\s*Return (?:the|short|what)\b[^.]*\.\s*$", "", instruction)


def combination(goal: str, tasks: int) -> str:
    """How the results become one answer, as far as the request says it."""
    if tasks <= 1:
        return "forward"
    if _SELECT.search(goal):
        return "select"
    return "reduce" if _SHORT.search(goal) else "merge"


class Proposed(Struct):
    """A plan in the making, and what it leaves out and takes for granted."""

    goal: str
    drafts: list[Draft] = []
    assumptions: list[str] = []
    unserved: list[str] = []
    combine: str = "merge"

    def add(self, about: str, worker: str, kind: str, after: Sequence[str] = ()) -> Draft:
        draft = Draft(f"t{len(self.drafts) + 1}", about, worker, kind, list(dict.fromkeys(after)))
        self.drafts.append(draft)
        return draft

    def rank_whole(self, ids: Sequence[str]) -> None:
        """What is drawn is the whole ranking: a single bar would show that one is first, and of what."""
        for draft in self.drafts:
            if draft.id in ids and draft.kind == "data" and _FIRST.match(draft.about) and not numbers(draft.about):
                draft.notes.append(RANKED_WHOLE)

    def told(self) -> list[str]:
        """All that the plan says: what is to be done, with what is said beside it, what is not, and what is assumed."""
        tasks = [text for draft in self.drafts for text in (draft.about, *draft.notes)]
        return [*tasks, *self.unserved, *self.assumptions]

    def draft(self, name: str) -> Draft:
        return next(draft for draft in self.drafts if draft.id == name)

    def drop(self, name: str, instead: str = "") -> None:
        """Take a task out; who waited for it waits for what it waited for, or for the one `instead`."""
        gone = next((draft for draft in self.drafts if draft.id == name), None)
        if gone is None:
            return
        self.drafts.remove(gone)
        for draft in self.drafts:
            if name in draft.after:
                given = [instead] if instead else gone.after
                draft.after = list(dict.fromkeys([*(one for one in draft.after if one != name), *given]))
            draft.about = re.sub(rf"\b{name}\b", instead or name, draft.about)
            draft.optional = [one for one in draft.optional if one in draft.after]

    def heed(self, findings: Sequence[str]) -> None:
        """Change what a check of the last proposal complained of. Proposals repeat, so the ids are the same."""
        for finding in findings:
            named = _NAMED.findall(finding)
            if (most := _ALLOWED.search(finding)) and "tasks" in finding:
                self.cut(int(most[1]) if "longest chain" not in finding else len(self.drafts))
                if "longest chain" in finding:
                    self.flatten()
            elif named and "asks the same" in finding and len(named) > 1:
                self.drop(named[0], named[1])
            elif named and "does not seem to use" in finding and len(named) > 1:
                self.loosen(named[0], named[1])
            elif named and ("is vague" in finding or "who does not exist" in finding or "no instruction" in finding):
                self.give_up(named[0], "it is not clear what is wanted")

    def give_up(self, name: str, reason: str) -> None:
        for draft in [draft for draft in self.drafts if draft.id == name]:
            self.unserved.append(f"{draft.about.rstrip('.?')}: {reason}.")
        self.drop(name)

    def loosen(self, reader: str, read: str) -> None:
        for draft in self.drafts:
            if draft.id == reader:
                draft.after = [name for name in draft.after if name != read]
                draft.optional = [name for name in draft.optional if name != read]

    def flatten(self) -> None:
        for draft in self.drafts:
            draft.after = draft.after[:1]
            draft.optional = [name for name in draft.optional if name in draft.after]

    def cut(self, most: int) -> None:
        while len(self.drafts) > max(1, most):
            self.give_up(self.drafts[-1].id, f"a plan may hold {most} tasks")

    def renumber(self, first: int = 1) -> None:
        """Ids in a row again, from t`first`, so that each waits only for earlier ones."""
        new = {draft.id: f"t{first + at}" for at, draft in enumerate(self.drafts)}
        for draft in self.drafts:
            draft.id = new[draft.id]
            draft.after = [new.get(name, name) for name in draft.after]
            draft.optional = [new.get(name, name) for name in draft.optional]
            draft.about = re.sub(r"\bt\d+\b", lambda found: new.get(found[0], found[0]), draft.about)

    def check(self, workers: Sequence[str]) -> None:
        """Merge tasks that the plan's own check would call the same."""
        roster = Roster(tuple(Agent(name) for name in dict.fromkeys(workers)))
        for _ in range(2 * len(self.drafts)):
            tasks = [
                Task(TaskId(d.id), d.instruction, d.worker, after=tuple(map(TaskId, d.after))) for d in self.drafts
            ]
            found = [one.message for one in lint(tasks, roster, Limits()).findings if one.code == "overlapping_tasks"]
            if not found:
                return
            one, other = (next(d for d in self.drafts if d.id == name) for name in _NAMED.findall(found[0])[:2])
            longer = one if len(one.about) >= len(other.about) else other
            if _details(one.about) != _details(other.about) and not longer.about.endswith(" only"):
                longer.about = f"{longer.about.rstrip('?. ')} only"  # which tells a part from the whole
            else:
                self.heed(found[:1])

    def json(self) -> str:
        tasks = {
            draft.id: {
                "instruction": draft.instruction,
                "worker": draft.worker,
                "after": draft.after,
                "optional": draft.optional,
                **({"replaces": draft.replaces} if draft.replaces else {}),
            }
            for draft in self.drafts
        }
        plan = {
            "goal": self.goal,
            "tasks": tasks,
            "combine": self.combine,
            "assumptions": list(dict.fromkeys(self.assumptions)),
            "unserved": list(dict.fromkeys(self.unserved)),
        }
        return msgspec.json.encode(plan).decode()
