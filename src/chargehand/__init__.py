"""A supervisor-worker system for LLM agents. The promised names, nothing else; importing it does nothing.

A name is fetched from its room when it is first asked for, so that `import chargehand` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chargehand.agents.crew import Crew, Done, Hand, Proposal, Refined, WorkFailed
    from chargehand.agents.scripted import Move, Script, ScriptedCrew
    from chargehand.core.owed import Brief
    from chargehand.errors import ChargehandError
    from chargehand.runtime.driver import Driver, Outcome
    from chargehand.stores.memory import MemoryJournal
    from chargehand.stores.sqlite import SqliteJournal
    from chargehand.terms.budget import Amount, Budget
    from chargehand.terms.events import RunRequested
    from chargehand.terms.failure import Failure
    from chargehand.terms.plan import Edge, Plan, Task
    from chargehand.terms.policy import Policy
    from chargehand.terms.roster import Agent, Match, Roster

__version__ = "0.1.0"

_ROOMS = {
    "agents.crew": ("Crew", "Done", "Hand", "Proposal", "Refined", "WorkFailed"),
    "agents.scripted": ("Move", "Script", "ScriptedCrew"),
    "core.owed": ("Brief",),
    "errors": ("ChargehandError",),
    "runtime.driver": ("Driver", "Outcome"),
    "stores.memory": ("MemoryJournal",),
    "stores.sqlite": ("SqliteJournal",),
    "terms.budget": ("Amount", "Budget"),
    "terms.events": ("RunRequested",),
    "terms.failure": ("Failure",),
    "terms.plan": ("Edge", "Plan", "Task"),
    "terms.policy": ("Policy",),
    "terms.roster": ("Agent", "Match", "Roster"),
}
_HOME = {name: f"chargehand.{room}" for room, names in _ROOMS.items() for name in names}

__all__ = [  # noqa: RUF022 - in the order of the rooms above
    "Crew", "Done", "Hand", "Proposal", "Refined", "WorkFailed", "Move", "Script", "ScriptedCrew", "Brief",
    "ChargehandError", "Driver", "Outcome", "MemoryJournal", "SqliteJournal", "Amount", "Budget", "RunRequested",
    "Failure", "Edge", "Plan", "Task", "Policy", "Agent", "Match", "Roster",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"chargehand has no name {name!r}; it promises {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
