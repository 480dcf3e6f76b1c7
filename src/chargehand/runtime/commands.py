"""Commands between processes: received by the one that drives a run, sent by any other."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager

from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, Refused, RunBusy, RunUnknown, StoreError
from chargehand.journal.commands import Command, CommandRefusal, Commands, CommandStatus, refusal_of
from chargehand.journal.protocol import Journal
from chargehand.runtime.run_loop import NoLongerDriven, RunLoop

logger = logging.getLogger(__name__)
_PATIENCE: Seconds = 45.0
"""How long a sender waits: longer than a frozen process keeps its runs."""
_LOOK: Seconds = 1.0


# --- in the process that drives the run


@asynccontextmanager
async def receiving_commands(journal: Journal, drive: RunLoop) -> AsyncGenerator[None]:
    """While a run is driven, hand its loop what other processes ask of it: what waits already comes first."""
    commands = journal.commands
    if commands is None:
        yield
        return
    async with BareTaskGroup() as jobs:
        receiver = _Receiver(commands, drive, jobs)
        unsubscribe = commands.subscribe(drive.run, receiver.hear)
        try:
            if not drive.is_new:
                await receiver.look()
            yield
        finally:
            unsubscribe()
            receiver.close()


class _Receiver:
    """Receives the commands of one run. A command that the run has recorded counts as carried out."""

    def __init__(self, commands: Commands, drive: RunLoop, jobs: asyncio.TaskGroup) -> None:
        self._commands = commands
        self._drive = drive
        self._jobs = jobs
        self._in_hand: set[str] = set()
        self._refused: dict[str, CommandRefusal] = {}
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def hear(self) -> None:
        """The run may have got a command."""
        if not self._closed:
            self._jobs.create_task(self.look())

    async def look(self) -> None:
        """Hand over every command that waits."""
        try:
            waiting = await self._commands.open(self._drive.run)
        except StoreError as error:  # it is asked again soon
            logger.warning("commands to run %s cannot be read: %s", self._drive.run, error)
            return
        for command in waiting:
            if not self._closed and command.id not in self._in_hand:
                self._in_hand.add(command.id)
                self._jobs.create_task(self._finish(command, self._hand_over(command)))

    def _hand_over(self, command: Command) -> "asyncio.Future[None] | None":
        """In the order of sending. None if it was handed over before, and only its settling was lost."""
        if command.id in self._drive.state.commands or command.id in self._refused:
            return None
        try:
            return self._drive.post(command.event)
        except ChargehandError as error:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def _finish(self, command: Command, handed_over: "asyncio.Future[None] | None") -> None:
        """Settle a command once it is on disk or refused; one that came too late is left to the next driver."""
        try:
            if handed_over is not None:
                await handed_over
        except NoLongerDriven:
            return
        except ChargehandError as error:
            self._refused[command.id] = refusal_of(error)
        try:
            await self._commands.settle(command.id, self._refused.get(command.id))
        except StoreError as error:  # it stays open, so the next look tries again
            logger.warning("a command to run %s was not settled: %s", self._drive.run, error)
        finally:
            self._in_hand.discard(command.id)


# --- in any other process


async def send_command(journal: Journal, run: str, event: ev.Event, resume: Callable[[], Awaitable[object]]) -> None:
    """Have the process that drives a run handle an event; back when it is on disk.

    Raises what that process raises. `resume` is called if no process drives the run; the one that then drives it finds
    the command first. RunBusy if nothing came of it in time; it stays and is handled when it can be.
    """
    commands = journal.commands
    if commands is None:
        raise Refused(
            f"run {run!r} is driven by another process, and this store carries no commands; speak to that one"
        )
    command = await commands.send(run, event)
    changed = asyncio.Event()
    with ExitStack() as stack:
        stack.callback(commands.subscribe_settled(command, changed.set))
        if journal.notices is not None:  # the run may end first
            stack.callback(journal.notices.subscribe(run, changed.set))
        clock = asyncio.get_running_loop().time
        until = clock() + _PATIENCE
        while not await _is_done(journal, run, command, resume):
            if clock() >= until:
                raise RunBusy(await _why_unanswered(commands, run, command))
            try:
                async with asyncio.timeout_at(min(clock() + _LOOK, until)):
                    await changed.wait()
            except TimeoutError:
                continue
            finally:
                changed.clear()


async def _why_unanswered(commands: Commands, run: str, command: str) -> str:
    status = await commands.status(command)
    if status is None or status.is_held:
        problem = f"the process that drives run {run!r} has not answered for {_PATIENCE:.0f} s"
    else:
        problem = f"no process drives run {run!r}: start a worker of its queue (chargehand doctor --cluster names it)"
    return f"{problem}; what you asked is kept, and is handled as soon as a process drives the run"


async def _is_done(journal: Journal, run: str, command: str, resume: Callable[[], Awaitable[object]]) -> bool:
    """Whether it was carried out; raises if it was refused."""
    commands = journal.commands
    assert commands is not None, "it was sent with them"
    status = await commands.status(command)
    if status is None:
        raise RunUnknown(run)
    if status.is_settled:
        return _accepted(status)
    if status.has_ended:
        return await _is_done_at_end(journal, commands, run, command)
    if not status.is_held:
        await _resume(commands, command, resume)
    return False


def _accepted(status: CommandStatus) -> bool:
    if status.refusal is not None:
        raise status.refusal.to_error()
    return True


async def _is_done_at_end(journal: Journal, commands: Commands, run: str, command: str) -> bool:
    """The process that drove the run may have died, or ended the run, before it settled the command."""
    events = [entry.event for entry in await journal.read(run)]
    if any(isinstance(event, ev.Commanded) and event.command == command for event in events):
        await commands.settle(command)
    else:
        await commands.settle(command, CommandRefusal(f"run {run!r} has ended"))
    status = await commands.status(command)  # what was said first counts
    return status is None or _accepted(status)


async def _resume(commands: Commands, command: str, resume: Callable[[], Awaitable[object]]) -> None:
    try:
        await resume()
    except RunBusy:
        return  # another process was faster
    except Exception as error:  # the caller hears that nothing was done, so nothing may be done later
        await commands.settle(command, CommandRefusal(str(error)))
        raise
