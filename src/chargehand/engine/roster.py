"""Who there is: agents as the scheduler sees them, and which of them may take a task."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import UNSET, Struct, UnsetType

from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid, Refused
from chargehand.text.words import stems

USUAL_SECONDS: Seconds = 10.0
"""What an attempt counts for, where tasks are put in order, if it is not stated how long it takes."""
_MATCHED_LENGTH = 4000
"""How many characters of a request are matched with the words of workers."""
_LEAST_FIT = 0.25
"""The share of a request's words that the worker that fits it best must have."""


class Agent(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker as the scheduler sees it."""

    name: str
    """The worker's name."""
    description: str = ""
    """What the planner reads of it."""
    tags: tuple[str, ...] = ()
    """Words by which a plan may ask for it."""
    tools: tuple[str, ...] = ()
    """Names of its tools."""
    model: str = ""
    """The handle of its model."""
    fallbacks: tuple[str, ...] = ()
    """Workers who step in when it has failed, in order."""
    concurrency: int = 0
    """How many attempts it makes at once; 0: as many as the run allows."""
    estimate: Amount = NOTHING
    """What is reserved for one attempt."""
    seconds: Seconds | None = None
    """How long one attempt is expected to take."""
    timeout: Seconds = 300.0
    """How long one attempt may take, in seconds."""
    spec: str = ""
    """A hash of persona, tools and model: a result is used again only while it is the same."""
    fallback_models: tuple[str, ...] = ()
    """The handles of the models that take over when its own fails."""
    queue: str | UnsetType = UNSET
    """The queue whose processes make its attempts, where an engine carries runs; left out: whatever drives the run."""


class Match(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tags a worker must carry: every one of `all`, and at least one of `some` (where given)."""

    all: tuple[str, ...] = ()
    """Tags of which none may be missing."""
    some: tuple[str, ...] = ()
    """Tags of which one suffices."""


class Roster(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The workers of one run, in order of preference, and what a call of their supervisor is expected to cost."""

    agents: tuple[Agent, ...] = ()
    """The workers."""
    supervision: Amount = NOTHING
    """What is reserved for one call of the supervisor."""
    planner: str = ""
    """The handle of the model that plans."""
    generalist: str = ""
    """The worker that gets the whole request when no plan can be made; empty: the one that fits it best."""

    def names(self) -> tuple[str, ...]:
        return tuple(agent.name for agent in self.agents)


@lru_cache(maxsize=64)
def check(roster: Roster) -> None:
    """Raise Invalid for a roster that no run could work with."""
    names = roster.names()
    for agent in roster.agents:
        if not agent.name or names.count(agent.name) > 1:
            raise Invalid(f"two workers are called {agent.name!r}" if agent.name else "a worker needs a name")
        if strangers := [name for name in agent.fallbacks if name not in names]:
            raise Invalid(f"worker {agent.name!r} falls back to {strangers[0]!r}, who is not on the roster")
        _check_numbers(agent)


def _check_numbers(agent: Agent) -> None:
    numbers = {
        "estimate.tokens": agent.estimate.tokens,
        "estimate.micros": agent.estimate.micros,
        "estimate.calls": agent.estimate.calls,
        "concurrency": agent.concurrency,
        "seconds": agent.seconds or 0.0,
    }
    for name, number in numbers.items():
        if not number >= 0:  # also what is no number
            raise Invalid(f"worker {agent.name!r}: {name} is {number}; write zero or more")
    if not agent.timeout > 0:
        raise Invalid(f"worker {agent.name!r}: timeout is {agent.timeout}; write more than zero")


class TeamMembers(Struct, frozen=True):
    """Who does the work of a team, background workers included."""

    team: str
    agents: Sequence[Agent]

    def check_recorded(self, run: str, recorded: Roster, next_step: str) -> None:
        """Raise Refused, before anything is written, for a run that counts on a worker or a tool the team lacks."""
        members = {agent.name: agent for agent in self.agents}
        absent = [agent.name for agent in recorded.agents if agent.name not in members]
        if absent:
            problem = f"counts on {', '.join(absent[:5])}, and team {self.team} has no worker of that name"
            raise Refused(f"run {run!r} {problem}; {next_step}")
        for agent in recorded.agents:
            tools = members[agent.name].tools
            lost = [tool for tool in agent.tools if tool not in tools]
            if lost:
                problem = f"counts on {', '.join(lost[:5])}, a tool that {agent.name} of team {self.team} does not have"
                raise Refused(f"run {run!r} {problem}; give it back to {agent.name}, or {next_step}")


def breaker_name(agent: Agent) -> str:
    """The line an agent depends on: that to its model, which others may share, or one of its own."""
    return model_breaker_name(agent.model) if agent.model else f"worker:{agent.name}"


def model_breaker_name(model: str) -> str:
    return f"model:{model}"


def best_fit(agents: Sequence[Agent], text: str) -> str:
    """The worker whose name, description, tags and tools share the most words with a text; empty: none shares enough.

    A word that all workers share says nothing about any of them.
    """
    words = {
        agent.name: set(stems(" ".join((agent.name, agent.description, *agent.tags, *agent.tools)))) for agent in agents
    }
    wanted = set(stems(text[:_MATCHED_LENGTH]))
    if len(agents) > 1:
        wanted -= {word for word in wanted if all(word in agent_words for agent_words in words.values())}
    best = ""
    best_score = 0
    for name, agent_words in words.items():
        score = len(wanted & agent_words)
        if score > best_score:
            best = name
            best_score = score
    return best if best_score >= _LEAST_FIT * len(wanted) else ""


def fits(match: Match, tags: Iterable[str]) -> bool:
    """Whether a worker with these tags fits the match."""
    carried = frozenset(tags)
    return carried.issuperset(match.all) and (not match.some or not carried.isdisjoint(match.some))
