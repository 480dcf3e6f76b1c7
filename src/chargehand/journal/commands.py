"""Commands to runs: what one process asks of a run that another one drives.

A command is an event that a client asks for (`Commanded`), kept in the store until the process that drives the run has
carried it out or refused it. The event that it becomes has its id, so it is carried out once, whichever process dies
in between.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, structs

from chargehand.engine.events import Commanded, Event
from chargehand.engine.plan import Finding
from chargehand.errors import ChargehandError, PlanInvalid, Refused


class Command(Struct, frozen=True):
    """A command that was neither carried out nor refused yet. Its event has its id."""

    id: str
    event: Event


class CommandRefusal(Struct, frozen=True, omit_defaults=True):
    """Why a run did not do what a command asks for."""

    detail: str
    findings: tuple[Finding, ...] = ()
    """What is wrong with the plan that it came with."""

    def to_error(self) -> ChargehandError:
        return PlanInvalid(self.findings) if self.findings else Refused(self.detail)


def refusal_of(error: ChargehandError) -> CommandRefusal:
    complaints = error.findings if isinstance(error, PlanInvalid) else ()
    return CommandRefusal(str(error), tuple(finding for finding in complaints if isinstance(finding, Finding)))


class CommandStatus(Struct, frozen=True):
    """How a command stands, and the run it was sent to."""

    is_settled: bool
    refusal: CommandRefusal | None
    """Why it was refused; None if it was carried out, or is open."""
    has_ended: bool
    """The run has ended."""
    is_held: bool
    """A living process drives the run."""


class Commands(Protocol):
    """The commands to the runs of one journal."""

    async def send(self, run: str, event: Event) -> str:
        """Ask something of a run; the id of the command, which is durable. Refused if the run has ended."""
        ...

    async def open(self, run: str) -> list[Command]:
        """Those that wait, the oldest first."""
        ...

    async def settle(self, command: str, refusal: CommandRefusal | None = None) -> None:
        """Say that it was carried out or refused. What is said first counts."""
        ...

    async def status(self, command: str) -> CommandStatus | None:
        """None if the run was deleted."""
        ...

    def subscribe(self, run: str, on_command: Callable[[], None]) -> Callable[[], None]:
        """Have `on_command` called in this event loop when a run may have got a command; the result ends it."""
        ...

    def subscribe_settled(self, command: str, on_settled: Callable[[], None]) -> Callable[[], None]:
        """Have `on_settled` called in this event loop when a command may have been settled; the result ends it."""
        ...


def with_command(event: Event, command: str) -> Event:
    """The event of a command; Refused for one that may not be asked for."""
    if not isinstance(event, Commanded):
        raise Refused(f"{type(event).__name__} is decided by the run, never asked of it")
    return structs.replace(event, command=command)
