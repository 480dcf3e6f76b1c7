"""The strategy `route`: one task for the worker that fits best, or for the best two.

Rules come first, then the router of the strategy, or the best available. Routing by meaning compares vectors: the
embedding makes them, `routing.space` compares them.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import zip_longest
from math import isnan, nan
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta, Raw, Struct, structs

from chargehand.agents.inputs import today
from chargehand.agents.routing.decision import (
    MOST_SCORES,
    Decision,
    choose,
    is_out_of_order,
    load_text,
    no_worker,
    pool_equals,
    shift_by_load,
    with_confirmed,
)
from chargehand.agents.routing.words import Lexicon, by_rules, by_tags, by_words, worker_texts
from chargehand.agents.shape import choice_schema, encode_schema, one_line, read_reply, sent_back, text_schema
from chargehand.agents.strategies.base import StrategyBase, end_if_rejected, free_id
from chargehand.agents.supervision import Lead, ModelQuestion, SupervisorCalls, card_line
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.facts import RouteChosen
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, TaskId, digest
from chargehand.errors import Invalid, StoreUnavailable
from chargehand.extras import install_command
from chargehand.memory.archives import Embedding
from chargehand.models.embeddings import MultilingualEmbedding, find_embedding, has_multilingual
from chargehand.models.messages import new_nonce, wrap
from chargehand.models.request_facts import Routing, WorkerCard
from chargehand.models.resolve import Lookup
from chargehand.runtime.executor import Proposal, StepContext, WorkFailed
from chargehand.runtime.load import WorkerLoad
from chargehand.text.words import is_english
from chargehand.tools.calling import THREADS
from chargehand.tools.tool import ToolFailed

if TYPE_CHECKING:
    from chargehand.agents.routing.space import Reading, Space

_MOST_NOTED = 5  # scores in the note
_MOST_LISTED = 12  # workers that a refusal lists
_LONGEST_DESCRIPTION = 160


Router: TypeAlias = Literal["auto", "rules", "tags", "words", "meaning", "model", "hybrid"]


class Route(StrategyBase, frozen=True, tag="route"):
    """One task for the worker that fits best, or for the best two (`secondary`)."""

    router: Router = "auto"
    """How the worker is found; `hybrid` is meaning first, and the model where it is close."""
    rules: Mapping[str, str] = {}
    """Phrases and the worker each goes to, tried before all else."""
    secondary: bool = False
    """The second best gets it too."""
    generalist: str = ""
    """The worker for requests that fit no other; left out, such a request is refused in words."""
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    """How sure it must be; left out, as calibrated."""
    learn: bool = True
    """Whether what came of earlier routes shifts later ones, within bounds."""
    embed: str = "auto"
    """What compares meanings: `auto` (a small model on this machine if it is there, `local:multilingual` where workers
    are not described in English; else words), `words`, `local:minilm`, `local:multilingual`, or a handle such as
    `openai:text-embedding-3-small`.
    """

    async def propose(self, lead: Lead, brief: Brief, context: StepContext) -> Proposal:
        """One task for the chosen worker; the choice is noted. A replan chooses among workers that have not had it."""
        if brief.tasks and not brief.replan:
            return Proposal((), lead.combine or "forward", used=NOTHING)
        try:
            check_route(self, lead.names)
        except Invalid as error:
            raise WorkFailed(Failure("logic", str(error), permanent=True), NOTHING) from error
        had = {task.worker for task in brief.tasks}
        cards = [card for card in lead.cards if card.name != self.generalist and card.name not in had]
        store = context.route_examples if self.learn else None
        if store is not None:
            cards = await with_confirmed(cards, store)
        calls = SupervisorCalls(lead, context)
        decision = await decide(self, lead, calls, brief, cards)
        if decision.router not in ("model", "hybrid") and (rejected := end_if_rejected(lead, brief)):
            return rejected
        load = context.worker_loads()
        decision = decision if decision.router == "rules" else shift_by_load(decision, load)
        names, reason = _choose_workers(self, decision, had, load)
        context.expect_work(names)
        chosen = RouteChosen(names, decision.router, decision.confidence, decision.scores[:_MOST_NOTED])
        context.note(_decision_text(names, reason, decision, load), fact=chosen)
        used = calls.total()
        if names:
            return _propose_tasks(names[: max(1, lead.max_tasks)], lead, brief, used)
        # without a worker, what failed before is a gap already
        unserved = () if brief.tasks else (_unserved(reason, lead.cards),)
        return Proposal((), lead.combine or "forward", used=used, unserved=unserved)


def check_route(strategy: Route, names: Sequence[str]) -> None:
    """Raise Invalid for a worker that is not on the team, or settings that exclude each other."""
    if strategy.generalist and strategy.generalist not in names:
        raise Invalid(f"the generalist {strategy.generalist!r} is not on the team; there are {', '.join(names)}")
    if strange := next((name for name in strategy.rules.values() if name not in names), None):
        raise Invalid(f"a rule of the route names {strange!r}, which is not on the team; there are {', '.join(names)}")


def _choose_workers(
    strategy: Route, decision: Decision, had: set[str], load: Mapping[str, WorkerLoad]
) -> tuple[tuple[str, ...], str]:
    """The workers that get the request, and why: a fallback says that it is one. A rule holds whatever the load."""
    spare = strategy.generalist if strategy.generalist not in had else ""
    spare_works = spare and not load.get(spare, WorkerLoad()).shut
    if spare_works and decision.router != "rules" and is_out_of_order(decision, load):
        problem = f"{decision.worker} is out of order, and no other worker fits"
        return (spare,), f"the generalist gets it: {problem}: {decision.why}"
    least = LEAST[decision.router] if strategy.threshold is None else strategy.threshold
    sure = decision.router == "rules" or decision.confidence >= least
    pair = (decision.worker, decision.second) if strategy.secondary else (decision.worker,)
    names = tuple(name for name in pair if name is not None)
    if decision.worker is not None and (sure or len(names) > 1):
        return names, decision.why
    if decision.worker is None:
        reason = decision.why
    else:
        rival = f" or {decision.second}" if decision.second else ""
        confidence = f"confidence {decision.confidence:.2f}, needed {least:.2f}"
        reason = f"not clear enough whether {decision.worker}{rival} ({confidence}): {decision.why}"
    if spare:
        return (spare,), f"the generalist gets it: {reason}"
    return (), reason


def _decision_text(names: Sequence[str], reason: str, decision: Decision, load: Mapping[str, WorkerLoad]) -> str:
    best = dict(decision.scores[:_MOST_NOTED])
    scores = ", ".join(f"{name} {score:.2f}" for name, score in best.items()) or "none"
    who = " and ".join(names) or "no worker"
    busy = load_text([name for name in dict.fromkeys((*names, *best)) if name in load], load)
    details = f"scores: {scores}{f'; load: {busy}' if busy else ''}"
    return f"route to {who}, confidence {decision.confidence:.2f}, by {decision.router}: {reason} ({details})"


def _unserved(reason: str, cards: Sequence[WorkerCard]) -> str:
    able = "; ".join(f"{card.name}: {_capability(card)}" for card in cards[:_MOST_LISTED])
    more = f"; and {len(cards) - _MOST_LISTED} more" if len(cards) > _MOST_LISTED else ""
    return f"No worker on the team fits this request: {reason}. The team can do this: {able}{more}."


def _capability(card: WorkerCard) -> str:
    text = card.description or ", ".join(card.phrases) or ", ".join(card.tags) or "no description"
    return " ".join(text.split())[:_LONGEST_DESCRIPTION].rstrip(". ")


def _propose_tasks(names: Sequence[str], lead: Lead, brief: Brief, used: Amount | None) -> Proposal:
    gaps = [gap.task for gap in brief.gaps if any(task.id == gap.task for task in brief.tasks)]
    tasks: list[Task] = []
    for name, replaces in zip_longest(names, gaps[: len(names)], fillvalue=""):
        free = TaskId(free_id((*brief.tasks, *tasks)))
        tasks.append(Task(free, brief.goal, name, replaces=TaskId(replaces)))
    together = len(names) > 1 or any(task.id not in gaps for task in brief.tasks)
    return Proposal(tuple(tasks), lead.combine or ("merge" if together else "forward"), used=used)


# --- the decision


# Confidence below which no worker is chosen: each router has its own measure.
LEAST: dict[str, float] = {"rules": 0.0, "tags": 0.6, "words": 0.4, "meaning": 0.5, "model": 0.4, "hybrid": 0.4}
CLEAR = 0.75  # confidence from which no model is asked
_MARGIN = 0.2  # of shares, between the first two
_FEW = 4
# what a model sees of a card
_PHRASES = 12
_EXAMPLES = 3
_LONGEST = 300
_NO_NAMES = (None, "", "null", "none", "None")  # what models write for no worker


async def decide(
    strategy: Route,
    lead: Lead,
    calls: SupervisorCalls,
    brief: Brief,
    cards: Sequence[WorkerCard],
) -> Decision:
    """The decision among these workers."""
    if strategy.rules:
        free = {card.name for card in cards} | {strategy.generalist}
        decision = by_rules(brief.goal, {phrase: name for phrase, name in strategy.rules.items() if name in free})
        if decision.worker is not None:
            return decision
    if strategy.router == "rules":
        return no_worker("rules", "no rule matches" if strategy.rules else "there are no rules")
    if not cards:
        return no_worker(strategy.router, "there is no worker to choose from")
    router = best_router(lead) if strategy.router == "auto" else strategy.router
    if router == "tags":
        return by_tags(brief.goal, cards)
    if router == "words":
        return await by_words(brief.goal, cards)
    if router == "meaning":
        return await by_meaning(brief.goal, cards, lead.embedding)
    if router == "hybrid" and lead.embedding is not None:
        return await by_both(lead, calls, brief, cards)
    return await by_model(calls, brief, cards)


def best_router(lead: Lead) -> Router:
    """The best router with what is there. Small local models choose no better than meaning does, and take seconds."""
    if lead.embedding is None:
        return "model"
    return "meaning" if lead.model.card.in_process else "hybrid"


def find_route_embedding(strategy: Route, cards: Sequence[WorkerCard], lookup: Lookup) -> Embedding | None:
    """None for words. Raises Invalid where the team names an embedding that is not there."""
    if strategy.embed == "auto" and has_multilingual() and not is_english(_card_texts(cards)):
        return MultilingualEmbedding()
    return find_embedding(strategy.embed, lookup)


def _card_texts(cards: Sequence[WorkerCard]) -> list[str]:
    return [text for card in cards for text in (card.description, *card.phrases, *card.examples)]


# --- by meaning, and by a model where meaning is not clear


async def by_both(lead: Lead, calls: SupervisorCalls, brief: Brief, cards: Sequence[WorkerCard]) -> Decision:
    """By meaning, and by a model where that is not clear. A model that fails leaves it at what meaning says."""
    decision = await by_meaning(brief.goal, cards, lead.embedding)
    if is_clear(decision):
        return structs.replace(decision, router="hybrid")
    near = dict(decision.scores[:_FEW])
    few = [card for card in cards if card.name in near] or list(cards)
    handle = calls.model.card.handle
    try:
        model_decision = await by_model(calls, brief, few)
    except WorkFailed as error:
        why = f"{decision.why}; not clear, and {handle} was of no help: {error}"
        return structs.replace(decision, why=why, router="hybrid")
    names = ", ".join(card.name for card in few)
    why = f"{model_decision.why}; not clear by meaning ({decision.why}), so {handle} chose of {names}"
    scores = model_decision.scores or decision.scores
    return structs.replace(model_decision, why=why, scores=scores, router="hybrid")


def is_clear(decision: Decision) -> bool:
    """Whether it needs no second opinion."""
    if decision.worker is None or decision.confidence < CLEAR:
        return False
    shares = [share for _, share in decision.scores[:2]]
    return len(shares) < 2 or shares[0] - shares[1] >= _MARGIN


# --- by a model


async def by_model(calls: SupervisorCalls, brief: Brief, cards: Sequence[WorkerCard]) -> Decision:
    """What the model says. What is wrong with a reply goes back to it as findings."""
    names = tuple(card.name for card in cards)
    parts = [f"Request: {brief.goal}"]
    if (confirmed := _confirmed_requests(cards)) and not calls.context.request.scope:
        # what callers wrote: as data, and never to those whose runs are kept apart
        parts.append(wrap(new_nonce(), "confirmed requests", confirmed))
    if brief.findings:
        parts.append("Your last reply was of no use:\n" + sent_back(brief.findings))
    question = ModelQuestion(
        purpose="asking a model which worker should do it",
        prompt="route",
        parts=[*parts, today(brief)],
        subject=Routing(brief.goal, tuple(cards)),
        schema=route_schema(names),
        slots={"workers": list_cards(cards)},
        alone=not brief.tasks,
        code="no_route",
        place="route",
    )
    return await calls.ask(question, partial(read_decision, names=names))


@lru_cache(maxsize=64)
def route_schema(names: tuple[str, ...]) -> Raw:
    worker = choice_schema(names, or_null=True)
    return encode_schema(
        {
            "reason": text_schema(_LONGEST),
            "primary": worker,
            "secondary": worker,
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        }
    )


class RouteReply(Struct, frozen=True):
    """A route as a model chooses it; null: for no worker."""

    primary: str | None
    secondary: str | None = None
    reason: str | None = None
    confidence: float | str | None = None


def read_decision(text: str, names: Sequence[str]) -> Decision:
    """The decision in a reply; raises Invalid, in words for the model, where there is none."""
    reply = read_reply(text, RouteReply)
    worker, second = (None if name in _NO_NAMES else name for name in (reply.primary, reply.secondary))
    for name in (worker, second):
        if name is not None and name not in names:
            raise Invalid(f"there is no worker {name[:80]!r}; there are {', '.join(names)}")
    why = one_line(reply.reason, _LONGEST) or "the model gave no reason"
    if worker is None:
        return no_worker("model", why)
    confidence = read_confidence(reply.confidence)
    scores = [(worker, round(max(confidence, 0.01), 4))]
    if second is not None and second != worker:
        scores.append((second, round((1 - confidence) * 0.5, 4)))
    return choose("model", scores, confidence, why)


def read_confidence(written: float | str | None) -> float:
    """Return a confidence between 0 and 1, also from text (`0.9`, `90%`); 0.5 where none is given.

    Raises:
        Invalid: it is no number.
    """
    if written is None:
        return 0.5
    text = str(written).strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = nan
    if isnan(value):
        raise Invalid(f"the confidence is {text[:40]!r}; it is a number from 0 to 1")
    return min(1.0, max(0.0, value))


def list_cards(cards: Sequence[WorkerCard]) -> str:
    """Workers as a model chooses among them."""
    lines: list[str] = []
    for card in cards:
        lines.append(card_line(card))
        able = [*card.phrases, *(skill.name.replace("_", " ") for skill in card.skills)][:_PHRASES]
        lines.extend([f"  - can: {'; '.join(able)}"] if able else [])
        lines.extend(f"  - was asked: {example[:_LONGEST]}" for example in card.examples[:_EXAMPLES])
    return "\n".join(lines)


def _confirmed_requests(cards: Sequence[WorkerCard]) -> str:
    """Return the latest requests that were confirmed for each worker, one a line; empty where there are none."""
    lines: list[str] = []
    for card in cards:
        latest = list(reversed(card.confirmed))[: max(0, _EXAMPLES - len(card.examples))]
        lines.extend(f"{card.name} was asked: {one_line(request, _LONGEST)}" for request in latest)
    return "\n".join(lines)


# --- routing by meaning


_FIT_TIMEOUT = 600.0  # seconds for learning; the planner's own clock ends it long before
_MAX_SPACES = 8
_SPACES: "OrderedDict[str, Space]" = OrderedDict()
"""Fitted spaces by the digest of what they were fitted from."""
_MAX_VECTORS = 5000
_VECTORS: OrderedDict[tuple[str, str], bytes] = OrderedDict()
"""Vectors of texts by the handle of their embedding."""


class Meaning(Struct, frozen=True):
    """A team's space, and what makes vectors for it."""

    space: "Space"
    embedding: Embedding
    lexicon: Lexicon | None = None  # where descriptions are all there is, words tell more than nothing

    async def decide(self, text: str) -> Decision:
        (vector,) = await self.embedding.embed([text])
        reading: Reading = await THREADS.call(
            lambda: self.space.read(vector, MOST_SCORES, self.by_words(text)), {}, _FIT_TIMEOUT
        )
        return reading_decision(reading)

    def by_words(self, text: str) -> list[float]:
        """What the words of a request add to the logits of the workers."""
        return [] if self.lexicon is None else self.lexicon.log_shares(text)


def reading_decision(reading: "Reading") -> Decision:
    """A reading in words."""
    (worker, share), *rest = reading.shares
    second = rest[0][0] if rest else None
    if reading.scope < reading.threshold:
        why = f"it is like nothing that a worker says or was asked (nearest: {worker}, {_measure(reading)})"
        return no_worker("meaning", why, reading.shares)
    beside = f", {second} {rest[0][1]:.0%}" if second else ""
    why = f"its meaning is nearest to {worker} ({share:.0%}{beside}; {_measure(reading)})"
    return choose("meaning", reading.shares, reading.confidence, why)


def _measure(reading: "Reading") -> str:
    return f"likeness {reading.scope:.2f}, needed {reading.threshold:.2f}"


async def fit_meaning(cards: Sequence[WorkerCard], embedding: Embedding) -> Meaning:
    """A team is fitted once in a process: the same texts and the same embedding have the same space."""
    from chargehand.agents.routing import space as spaces  # noqa: PLC0415 - numpy is in an extra

    texts_by_worker = worker_texts(cards)
    parts: list[str] = []
    for texts in texts_by_worker:
        parts += [texts.worker, *texts.phrases, "", *texts.clauses, "", *texts.examples, ""]
    key = digest(embedding.handle, str(embedding.width), *parts)
    if (space := _SPACES.get(key)) is None:
        vectors = await _embed(spaces.texts_of(texts_by_worker), embedding)
        space = _SPACES[key] = await THREADS.call(lambda: spaces.build(texts_by_worker, vectors), {}, _FIT_TIMEOUT)
        while len(_SPACES) > _MAX_SPACES:
            _SPACES.popitem(last=False)
    lexicon = Lexicon(cards) if all(texts.described for texts in texts_by_worker) else None
    return Meaning(space, embedding, lexicon)


async def _embed(texts: Sequence[str], embedding: Embedding) -> list[bytes]:
    """The vectors of texts; those embedded before come from the cache."""
    handle = embedding.handle
    vectors = {text: vector for text in texts if (vector := _VECTORS.get((handle, text))) is not None}
    if missing := [text for text in dict.fromkeys(texts) if text not in vectors]:
        vectors.update(zip(missing, await embedding.embed(missing), strict=True))
        _VECTORS.update({(handle, text): vectors[text] for text in missing})
    while len(_VECTORS) > _MAX_VECTORS:
        _VECTORS.popitem(last=False)
    return [vectors[text] for text in texts]


async def by_meaning(text: str, cards: Sequence[WorkerCard], embedding: Embedding | None) -> Decision:
    """By words, and saying so, where there is no embedding."""
    if embedding is None:
        return await _by_words(text, cards, "there is no embedding")
    if find_spec("numpy") is None:
        return await _by_words(text, cards, f"numpy is not installed ({install_command('local')})")
    try:
        decision = await (await fit_meaning(cards, embedding)).decide(text)
    except (StoreUnavailable, ToolFailed) as error:  # no server there; or vectors that are none
        return await _by_words(text, cards, str(error))
    texts = {each.worker: structs.replace(each, worker="") for each in worker_texts(cards)}
    return pool_equals(decision, {name for name, each in texts.items() if each == texts.get(decision.worker or "")})


async def _by_words(text: str, cards: Sequence[WorkerCard], reason: str) -> Decision:
    decision = await by_words(text, cards)
    return structs.replace(decision, why=f"{decision.why} (by words: {reason})")
