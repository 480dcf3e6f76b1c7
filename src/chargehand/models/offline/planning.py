"""A plan from a request and the workers' cards: clauses, who does each, and what each of them needs first.

What to do after some of a plan has failed is in `replanning`.
"""

import re

from chargehand.models.offline.ability import able, apart, instead, of_rows, put_together
from chargehand.models.offline.clauses import Clause, split
from chargehand.models.offline.currencies import without_currencies
from chargehand.models.offline.drafts import Draft, Proposed, combination
from chargehand.models.offline.forms import ABLE, unknown_form
from chargehand.models.offline.inheriting import inherited
from chargehand.models.offline.kinds import asked
from chargehand.models.offline.matching import Bench, Embedder, Profile, Score, content
from chargehand.models.offline.mistyped import planned
from chargehand.models.offline.reading import LONGEST, read_subject, unread_length
from chargehand.models.offline.references import Pointer, growth_of, object_of, pointers, subject_of
from chargehand.models.offline.remembering.plans import Remembering
from chargehand.models.offline.replanning import replan
from chargehand.models.offline.schemas import Need, filled, need
from chargehand.models.offline.spelling import narrow, spelled
from chargehand.models.offline.unknown_names import known_apart
from chargehand.models.offline.unspoken import unspoken
from chargehand.models.offline.vocabulary import ASKING, AUXILIARY, RELATIVE
from chargehand.models.offline.words import dates, stem, terms
from chargehand.models.subject import Planning

_SUPERLATIVE = re.compile(
    r"\b(?:about|for|of|on|to|with|in)\s+(?P<what>(?:the|our)\s+(?:[\w-]+\s+){0,3}?"
    r"(?:best|top|worst|most|least|highest|lowest|largest|biggest|smallest|busiest|cheapest|oldest|newest)\b[^,;?]*)",
    re.IGNORECASE,
)
_BREAKDOWN = re.compile(r"\s+(?:by|per|for each)\s+\w+(?:\s+and\s+(?:by\s+)?\w+)?\b")
_IN_MONEY = re.compile(
    r"\s+in(?:to)?\s+(EUR|USD|GBP|CHF|JPY|SEK|NOK|DKK|euros?|(?:US )?dollars?|pounds|francs|yen)\s*\??$"
)
_CONCLUDES = re.compile(r"(?:recommend|advise|suggest|propose|conclude|decide)\b", re.IGNORECASE)
_RATE = re.compile(r"\bexchange rates?\b|\brates? of\b.*\?$", re.IGNORECASE)
_WHY = re.compile(r"(?:explain\s+)?why\b", re.IGNORECASE)
_WHOLE = frozenset(("total", "sum", "average", "mean"))


def plan(subject: Planning, embedder: Embedder | None = None) -> str:
    """The plan as JSON: goal, tasks (each `after` earlier ones only), combine, assumptions, unserved."""
    unread = unread_length(subject.goal)
    subject = read_subject(subject)
    if subject.tasks:
        return replan(subject, Bench(subject.workers, embedder))
    subject, read = planned(subject)
    goal = " ".join(subject.goal.split())
    memory = Remembering(subject.goal, subject.workers)
    drafting = _Drafting(Bench(subject.workers, embedder), Proposed(goal[:500]), memory)
    drafting.proposed.assumptions += read
    asked_for = split(memory.rest) if memory.rest.strip() else []
    clauses = list({(clause.text.lower(), clause.scope): clause for clause in reversed(asked_for)}.values())
    clauses = known_apart(inherited(clauses[::-1], drafting.bench), drafting.bench)
    most = 2 * max(1, subject.most_tasks)
    for clause in clauses[:most]:
        drafting.take(clause)
    memory.keep(drafting)
    proposed = drafting.proposed
    if len(clauses) > most:
        proposed.unserved.append(
            f"{len(clauses) - most} more things are asked for: a plan may hold {subject.most_tasks}."
        )
    if unread:
        proposed.unserved.append(f"What follows the first {LONGEST:,} characters of the request: it was not read.")
    if not proposed.drafts and not proposed.unserved:
        proposed.unserved.append("The request does not say what is wanted.")
    if not proposed.drafts and subject.workers:
        does = "; ".join(
            f"{card.name}: {card.description.rstrip('. ')}" for card in subject.workers[:12] if card.description
        )
        proposed.assumptions.append(f"What this team does is this. {does[:1500]}.")
    proposed.check([card.name for card in subject.workers])
    proposed.heed(subject.findings)
    proposed.cut(subject.most_tasks)
    proposed.unserved += unspoken(clauses[:most], proposed.told()) if proposed.drafts else []
    proposed.renumber()
    proposed.combine = combination(subject.goal, len(proposed.drafts))
    return proposed.json()


class _Drafting:
    def __init__(self, bench: Bench, proposed: Proposed, memory: Remembering) -> None:
        self.bench = bench
        self.proposed = proposed
        self.memory = memory
        self.clauses: dict[str, Clause] = {}

    def take(self, clause: Clause) -> None:
        """Add the tasks a clause needs, or say why it has none."""
        before = len(self.proposed.drafts)
        drafts = self.proposed.drafts
        found = pointers(clause.text, frozenset(terms(drafts[-1].about))) if drafts else []
        knows, kind = self.memory.asked(clause.text, self.bench)
        if knows:
            after = [self.meant(pointer, kind) for pointer in found]
            self.proposed.add(spelled(self.proposed, clause.text, found, after), knows, kind, after)
            self.settle(clause, before)
            return
        score = self.bench.best(clause.text) or self.looked_up(clause, found)
        if score is None and clause.given:
            score = self.bench.best(f"{clause.text} {clause.given}")
        if score is not None and (not found or clause.scope):
            score = self.fitting(f"{clause.text} {clause.scope}".strip(), score)
        form = unknown_form(clause.text)
        if form and not any(stem(form) in held.terms for held in self.bench.profiles):
            self.refuse(clause, f"nobody here can write a {form}: {ABLE}")
        elif put_together(clause.text, found, score) and self.writes(clause, found, score):
            pass
        elif score is None or (not content(clause.text) and not found and not asked(clause.text)):
            self.refuse(clause)
        else:
            self.assign(clause, found, score)
        self.settle(clause, before)

    def settle(self, clause: Clause, before: int) -> None:
        for draft in self.proposed.drafts[before:]:
            self.clauses[draft.id] = clause
            narrow(self.proposed, draft, clause, self.clauses)

    def fitting(self, text: str, score: Score, without: str = "") -> Score:
        """Somebody else where the tools of the best could not be called with this."""
        better = instead(self.bench, text, score, without)
        if better is None:
            return score
        self.proposed.assumptions.append(
            f"The tools of {score.profile.name} do not cover {text!r}: {better.profile.name} looks for it."
        )
        return better

    def assign(self, clause: Clause, found: list[Pointer], score: Score) -> None:
        after = [self.meant(pointer, score.kind) for pointer in found]
        text = spelled(self.proposed, clause.text, found, after)
        finder = of_rows(self.bench, text, found, [self.proposed.draft(name) for name in after], score)
        if finder is not score:
            told = self.proposed.assumptions  # who was thought of before is of no interest
            score, told[:] = finder, [one for one in told if repr(clause.text) not in one]
        wants = need(clause.text, score.profile.card, writes="write" in score.profile.kinds)
        if wants == "words" and score.kind in ("currency", "units") and not _RATE.search(clause.text):
            wants = "values"  # whatever the tool takes: there is nothing to convert without an amount
        inputs = list(dict.fromkeys(after))
        if _WHY.match(clause.text) and not inputs and len(content(clause.text)) < 2 and self.proposed.drafts:
            inputs = [self.latest("")]
            text = f"{text} (in view of {subject_of(self.proposed.draft(inputs[0]).about) or inputs[0]})"
        given = f"{clause.text} {clause.given}"
        if not inputs and not filled(given, wants, frozenset(content(without_currencies(given)))):
            phrase = growth_of(clause.text) if score.kind == "calculate" else ""
            inputs = self.gathered(phrase or object_of(clause.text), score.profile, score.kind)
            if not inputs and wants == "series":
                self.refuse(clause, f"nobody here can get {object_of(clause.text)!r} to work from")
                return
        elif not inputs and wants == "words" and (nested := _SUPERLATIVE.search(clause.text)):
            inputs = self.nested(nested["what"], score.profile)
        draft = self.proposed.add(text, score.profile.name, score.kind, inputs)
        if score.kind == "draw":
            self.proposed.rank_whole(inputs)
        if _WHY.match(clause.text) and not inputs:
            self.both_sides(clause, score)
        elif (money := _IN_MONEY.search(text)) and score.kind not in ("currency", "write"):
            self.converted(draft, money, score.profile)

    def writes(self, clause: Clause, found: list[Pointer], score: Score | None) -> bool:
        """Prose about results. Without a writer, or where one worker can compare by themselves, nothing special."""
        writer = self.bench.writer()
        strong = asked(clause.text).get("write", 0) >= 0.9
        drafts = self.proposed.drafts
        rests = found or not content(object_of(clause.text)) or _CONCLUDES.match(clause.text)
        earlier = [draft.id for draft in drafts] if rests else []
        fresh = [] if earlier else self.gathered(object_of(clause.text), writer, "write", reuse=strong)
        if writer is None or (not strong and len(earlier or fresh) < 2):
            return self.unwritten(clause, found, earlier, fresh, score)
        after = earlier or fresh or [draft.id for draft in drafts]
        if not after and content(object_of(clause.text)):
            self.refuse(clause, f"nobody here can get {object_of(clause.text)!r} to write from")
            return True
        named = [after[0]] * len(found) if len(after) == 1 else []
        text = spelled(self.proposed, clause.text, found if named else [], named)
        draft = self.proposed.add(text, writer.name, "write", after)
        draws = {other.id for other in self.proposed.drafts if other.kind == "draw"}
        solid = [name for name in after if name not in draws]
        draft.optional = [name for name in after if name not in solid[:1]] if len(after) > 1 else []
        return True

    def unwritten(
        self, clause: Clause, found: list[Pointer], earlier: list[str], fresh: list[str], score: Score | None
    ) -> bool:
        if earlier and (not score or score.kind == "write" or not content(clause.text) or len(found) == 0):
            self.proposed.assumptions.append(f"The answer itself has to do this, from the results: {clause.text}.")
            return True
        if len(fresh) == 1 and self.proposed.drafts[-1].id == fresh[0]:
            made = self.proposed.drafts[-1]
            made.about = clause.text  # one worker is enough: let it have the clause as it was put
        return bool(fresh)

    def gathered(self, phrase: str, consumer: Profile | None, kind: str, *, reuse: bool = True) -> list[str]:
        """Tasks that get what a phrase names, for somebody who cannot get it themselves."""
        phrase = re.sub(r"^(?:of|about|for|from)\s+", "", phrase)
        if not content(phrase):
            return [self.latest(kind)] if self.proposed.drafts else []
        pieces = apart(self.bench, phrase, kind)
        found = [self.gather(piece, consumer, reuse=reuse) for piece in pieces] if len(pieces) > 1 else []
        workers = {self.proposed.draft(name).worker for name in found if name}
        if len(workers) > 1 or (kind == "calculate" and all(found) and len(set(found)) > 1):
            return [name for name in found if name]
        for name in found:
            if name and name not in self.clauses:
                self.proposed.drop(name)
        whole = self.gather(phrase, consumer, reuse=reuse)
        return [whole] if whole else []

    def gather(self, phrase: str, consumer: Profile | None, *, reuse: bool = True) -> str:
        subject = content(phrase)
        if not subject:
            return ""
        for draft in reversed(self.proposed.drafts) if reuse else ():
            known = content(draft.about)
            days = {one.normal for one in dates(phrase)} - {one.normal for one in dates(draft.about)}
            if draft.kind not in ("draw", "write") and subject.keys() <= known.keys() and not days:
                return draft.id
        score = self.bench.best(phrase, [consumer.name] if consumer else [])
        score = self.fitting(phrase, score, consumer.name if consumer else "") if score is not None else None
        if score is None or "write" in score.profile.kinds:
            return ""
        wants: Need = need(phrase, score.profile.card, writes=False)
        if wants in ("series", "values") and not filled(phrase, wants, frozenset(subject)):
            return ""
        opening = "Find what is said about" if score.kind == "documents" else "Report"
        return self.proposed.add(f"{opening} {phrase}", score.profile.name, score.kind).id

    def nested(self, phrase: str, finder: Profile) -> list[str]:
        """What a superlative stands for is looked up first, where somebody else knows it."""
        score = self.bench.best(phrase, [finder.name])
        if score is None or score.kind != "data" or score.content < 0.3 or "data" in finder.kinds:
            return []
        return [self.proposed.add(f"Report {phrase}", score.profile.name, score.kind).id]

    def both_sides(self, clause: Clause, score: Score) -> None:
        """A "why" is looked for in the figures and in the documents."""
        for other in self.bench.rank(clause.text, [score.profile.name]):
            said = other.kind == "documents" or able(other.profile.card.skills, growth_of(clause.text) or clause.text)
            if other.serves and said and {score.kind, other.kind} == {"data", "documents"}:
                self.proposed.add(clause.text, other.profile.name, other.kind)
                break
        for draft in self.proposed.drafts:
            if draft.about == clause.text and draft.kind == "data" and (figures := growth_of(clause.text)):
                draft.about = f"Report {figures}"

    def converted(self, draft: Draft, money: re.Match[str], source: Profile) -> None:
        """What is wanted "in USD" is converted by who converts, unless the figures are in that money already."""
        banker = self.bench.of_kind("currency")
        if banker is None or banker.name == source.name or stem(money[1].lower()) in source.terms:
            return
        draft.about = draft.about[: money.start()]
        phrase = subject_of(draft.about)
        stands = f"{phrase} (the result of {draft.id})" if phrase else f"the result of {draft.id}"
        self.proposed.add(f"Convert {stands} to {money[1]}", banker.name, "currency", [draft.id])

    def looked_up(self, clause: Clause, found: list[Pointer]) -> Score | None:
        """A question nobody is meant for, but in words of the team, may be answered by its documents."""
        first = clause.text.partition(" ")[0].lower()
        if first not in ASKING | RELATIVE | AUXILIARY or ("data" in asked(clause.text) and not found):
            return None
        earlier = " ".join(draft.about for draft in self.proposed.drafts) if found else ""
        if score := self.bench.finder(f"{clause.text} {earlier}", always="data" not in asked(clause.text)):
            self.proposed.assumptions.append(f"Nobody is meant for {clause.text!r}: the documents are searched for it.")
        return score

    def meant(self, pointer: Pointer, kind: str) -> str:
        """The task a word points at: the last one that speaks of the noun beside it, else the last one."""
        if pointer.noun in _WHOLE and kind != "draw":
            return self.whole(pointer.noun)
        noun = stem(pointer.noun)
        for draft in reversed(self.proposed.drafts) if noun else ():
            if noun in terms(draft.about) and draft.kind != "draw":
                return draft.id
        return self.latest(kind)

    def whole(self, noun: str) -> str:
        """The total of a breakdown is asked for anew; else it is in the last result with numbers."""
        name = self.latest("")
        source = self.proposed.draft(name)
        phrase = subject_of(source.about)
        if phrase and _BREAKDOWN.search(phrase) and stem(noun) not in terms(phrase):
            about = f"Report the {noun} {re.sub(r'^the ', '', _BREAKDOWN.sub('', phrase, count=1))}"
            made = self.proposed.add(about, source.worker, source.kind, source.after)
            return made.id
        return name

    def latest(self, kind: str) -> str:
        drafts = self.proposed.drafts
        plain = [draft for draft in drafts if draft.kind not in ("draw", "write")]
        return (plain or drafts)[-1].id if kind != "write" else drafts[-1].id

    def refuse(self, clause: Clause, reason: str = "") -> None:
        said = clause.text.rstrip("?. ")[:200]
        vague = "nothing here tells the reasons" if _WHY.match(clause.text) else "it does not say what is wanted"
        why = reason or ("nobody on the team is meant for this" if content(clause.text) else vague)
        self.proposed.unserved.append(f"{said[:1].upper()}{said[1:]}: {why}.")
