"""Plans where memory plays a part: who looks something up in it, and who keeps what, as part of a task or after others.

What the other clauses of a request become is decided in `planning`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from chargehand.models.offline.clauses import Clause, split
from chargehand.models.offline.drafts import Draft, Proposed, listed
from chargehand.models.offline.matching import Bench
from chargehand.models.offline.remembering.asks import ask
from chargehand.models.offline.remembering.family import (
    APPENDING,
    CONVERSATION,
    FAMILY,
    INSERT,
    REPLACING,
    RETHINK,
    SEARCH,
    ordinary,
    speaks_of_archives,
)
from chargehand.models.offline.remembering.places import Labels, tidy
from chargehand.models.offline.remembering.wishes import Keep, Part, Rewrite, Swap, wishes, without
from chargehand.models.offline.words import similarity, terms
from chargehand.models.subject import WorkerCard

_GUESS = Labels(guess=True)
_LIKE = 0.5
_SERVES = "Report "  # how a task begins that was put in for another one
_ENDS = " \t\n,.;:!?"


class Drafting(Protocol):
    """A plan in the making. `clauses` says which clause each task is for."""

    bench: Bench
    proposed: Proposed
    clauses: dict[str, Clause]

    def take(self, clause: Clause) -> None: ...


class Order(Struct, frozen=True):
    """Something to keep, and the clauses that stand before it."""

    wish: Keep | Swap | Rewrite
    text: str
    before: tuple[str, ...]
    last: bool


class Remembering:
    """What a request wants of memory. `rest` is the request without what is to be kept."""

    def __init__(self, goal: str, cards: Sequence[WorkerCard]) -> None:
        self._cards = cards
        self._filed = any(speaks_of_archives(one) for card in cards for one in ordinary(card.skills))
        plain = tidy(goal)
        parts = [one for one in wishes(plain, _GUESS) if self._meant(one)]
        self.rest = without(plain, parts) if parts else goal
        self.orders = [self._order(plain, parts, at) for at in range(len(parts))]

    def _meant(self, part: Part) -> bool:
        """Whether memory is meant, and not a tool of the team's own; without any memory only where it is named."""
        if self.holders(*FAMILY):
            return isinstance(part.wish, Keep | Swap) or bool(self.holders(RETHINK))
        named = isinstance(part.wish, Keep) and part.wish.plain and not part.wish.label
        return named and not self._filed

    def _order(self, goal: str, parts: list[Part], at: int) -> Order:
        part = parts[at]
        ahead = without(goal[: part.start], parts[:at])
        before = tuple(clause.text.lower() for clause in split(ahead)) if ahead.strip(_ENDS) else ()
        return Order(part.wish, goal[part.start : part.end].strip(_ENDS), before, not goal[part.end :].strip(_ENDS))

    def holders(self, *tools: str) -> list[str]:
        """Who has one of these tools."""
        return [card.name for card in self._cards if any(skill.name in tools for skill in card.skills)]

    # --- looking up

    def asked(self, text: str, bench: Bench) -> tuple[str, str]:
        """Who looks a clause up in memory, and what kind of task that is; nobody where it is not for memory."""
        if not self.holders(*FAMILY) or (wanted := ask(text, _GUESS)) is None:
            return "", ""
        if wanted.kind == "earlier":
            return self.choose(self.holders(CONVERSATION), text, bench), ""
        if wanted.kind == "archive":
            return (
                ("", "")
                if wanted.plain and self._filed
                else (self.choose(self.holders(SEARCH), text, bench), "documents")
            )
        if not wanted.plain and bench.best(text) is not None:
            return "", ""  # "our notes" may be documents; who has them before its eyes will see
        return self.choose(self.holders(*FAMILY), text, bench), ""

    def choose(self, names: Sequence[str], text: str, bench: Bench) -> str:
        """The one of these who knows most of the matter, else one who looks things up, else the first."""
        for score in bench.rank(text):
            if score.profile.name in names and score.serves and score.kind not in ("draw", "write"):
                return score.profile.name
        finder = [held.name for held in bench.profiles if "documents" in held.kinds and held.name in names]
        return next(iter([*finder, *names]), "")

    # --- keeping

    def keep(self, drafting: Drafting) -> None:
        """Add to the plan what is to be kept: with a task whose worker may keep things, else as a task of its own."""
        for order in self.orders:
            wish = order.wish
            holders = self.holders(*_needed(wish))
            if not holders:
                where = "an archive" if isinstance(wish, Keep) and not wish.label else "that block"
                verb = "add to" if isinstance(wish, Keep) else "change"
                drafting.proposed.unserved.append(f"{_capital(order.text)}: nobody on the team may {verb} {where}.")
            elif isinstance(wish, Keep) and not wish.said:
                self._found(drafting, order, wish, holders)
            else:
                text = _said(wish) if isinstance(wish, Keep) else order.text
                drafting.proposed.add(text, self.choose(holders, text, drafting.bench), "")

    def _found(self, drafting: Drafting, order: Order, wish: Keep, holders: Sequence[str]) -> None:
        drafts = self._meant_by(drafting, order, wish)
        if not drafts:
            return
        if all(draft.worker in holders and draft.kind != "draw" for draft in drafts):
            for draft in drafts:
                draft.notes = [*draft.notes, _order("what you find", wish)]
            return
        ids = [draft.id for draft in drafts]
        text = _order(f"the result{'s' if len(ids) > 1 else ''} of {listed(ids)}", wish)
        made = drafting.proposed.add(text, self.choose(holders, text, drafting.bench), "", ids)
        made.optional = ids[1:]

    def _meant_by(self, drafting: Drafting, order: Order, wish: Keep) -> list[Draft]:
        """The tasks whose results are to be kept; one is put in where something is named that nobody gets yet."""
        proposed = drafting.proposed
        own = {name: drafting.clauses[name].text.lower() for name in drafting.clauses}
        earlier = [draft for draft in proposed.drafts if own.get(draft.id) in order.before] if order.before else []
        if wish.about:
            return self._named(drafting, wish.about)
        if not earlier:
            if not order.before:
                proposed.unserved.append(f"{_capital(order.text)}: there is nothing to keep yet.")
            return []  # what it was for is not served, and that is said already
        if wish.whole and order.last:
            read = {name for draft in earlier for name in draft.after if draft.kind != "draw"}
            return [
                one for one in earlier if one.kind != "draw" and not (one.id in read and one.about.startswith(_SERVES))
            ]
        latest = [draft for draft in earlier if own.get(draft.id) == own.get(earlier[-1].id)]
        return latest[-1:]

    def _named(self, drafting: Drafting, about: str) -> list[Draft]:
        drafts = drafting.proposed.drafts
        scored = [
            (similarity(terms(about), terms(one.about)), at) for at, one in enumerate(drafts) if one.kind != "draw"
        ]
        best, at = max(scored, default=(0.0, 0))
        if best >= _LIKE:
            return [drafts[at]]
        count = len(drafts)
        drafting.take(Clause(about))
        return drafts[count:][-1:]


def _needed(wish: Keep | Swap | Rewrite) -> Iterable[str]:
    match wish:
        case Swap():
            return REPLACING
        case Rewrite():
            return (RETHINK,)
        case Keep():
            return APPENDING if wish.label else (INSERT,)


def _order(what: str, wish: Keep) -> str:
    """What is to be done, as the worker will read it."""
    return f"Add {what} to the block {wish.label}" if wish.label else f"Keep {what} in {_archive(wish)}"


def _said(wish: Keep) -> str:
    where = f"Add to the block {wish.label}" if wish.label else f"Keep in {_archive(wish)}"
    return f"{where}: \u201c{wish.said.rstrip('.')}\u201d"


def _archive(wish: Keep) -> str:
    name = f' "{wish.archive}"' if wish.archive else ""
    tags = [f'"{one}"' if " " in one else one for one in wish.tags]
    return f"the archive{name}" + (f", tagged {listed(tags)}" if tags else "")


def _capital(text: str) -> str:
    plain = re.sub(r"\A(?:(?:and|then|also|but)\b[\s,]*)+", "", text)
    return f"{plain[:1].upper()}{plain[1:]}"[:200]
