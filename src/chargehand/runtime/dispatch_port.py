"""What a runner needs in order to have runs driven elsewhere. Engines are in `dispatch/`."""

from typing import Protocol

from chargehand.engine.events import Event, RunRequested


class Dispatcher(Protocol):
    """Has runs of one tenant driven that are in its journal, by whichever process serves their queue.

    It is given names of runs and queues, never their content. Every call may be repeated, also by another process.
    """

    async def begin(self, run: str, *, queue: str) -> None:
        """Have a run driven until it has ended or needs a person; back when the engine has accepted that.

        Nothing happens where a job for the run is under way. Calls of one moment for one queue travel together.
        """
        ...

    async def tell(self, run: str, event: Event) -> None:
        """Send an event to the process that drives a run, and have the run driven if no process does.

        Durable on return. Refused, with the reason, if the driver refused it; also for a run that has ended.
        """
        ...

    async def wait(self, run: str) -> None:
        """Until a run has ended or needs a person; at once if it is so already."""
        ...


def queue_of(request: RunRequested) -> str:
    """The queue of a run; empty for one that no worker drives.

    That is a run inside another, which the process of that one drives, and a message to an agent, which a server does.
    """
    if request.queue:
        return request.queue
    if request.parent is not None:
        return ""
    return request.team
