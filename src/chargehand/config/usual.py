"""What holds where a team file says nothing and the shape has no default, by path. Nothing is decided here."""

from chargehand.agents.factory import Factory
from chargehand.agents.hedging import Hedge
from chargehand.agents.ways import Dynamic, Loop, Recursive, Route
from chargehand.agents.worker import Worker
from chargehand.config.load import OFFLINE, SECONDS
from chargehand.memory.blocks import LIMIT
from chargehand.terms.policy import Limits, Retry
from chargehand.tools.tool import CAP


def always() -> dict[str, object]:
    """In sections that every team has."""
    worker, retry, limits = Worker(""), Retry(), Limits()
    return {
        "defaults.model": OFFLINE,
        "defaults.timeout": f"{worker.timeout:g}s",
        "defaults.steps": worker.steps,
        "defaults.retry.attempts": retry.attempts,
        "defaults.retry.fallback_attempts": retry.fallback_attempts,
        "defaults.retry.backoff": f"{retry.base:g}s..{retry.ceiling:g}s",
        "defaults.retry.obey_retry_after": f"{retry.obey_retry_after:g}s",
        "timeout": f"{SECONDS:g}s",
        "supervisor.plan.max_tasks": limits.tasks,
        "supervisor.plan.max_depth": limits.depth,
        "supervisor.plan.max_nesting": limits.nesting,
    }


def usual() -> dict[str, object]:
    """The same, and in sections that a team may have."""
    loop, recursive, factory = Loop(), Recursive(), Factory()
    return {
        **always(),
        "hedge.share": Hedge().share,
        "supervisor.way.route.samples": Route().samples,
        "supervisor.way.loop.most_turns": loop.most_turns,
        "supervisor.way.loop.stalls": loop.stalls,
        "supervisor.way.loop.fresh_starts": loop.fresh_starts,
        "supervisor.way.dynamic.token": Dynamic().token,
        "supervisor.way.recursive.depth": recursive.depth,
        "supervisor.way.recursive.breadth": recursive.breadth,
        "tools.*.cap": f"{CAP // 1024}KiB",
        "factory.most_tools": factory.most_tools,
        "factory.capacity": factory.capacity,
        "factory.steps": factory.steps,
        "memory.blocks.*.limit": LIMIT,
    }
