"""What a command does after the answer is out: background workers look back on the turns they have not seen yet."""

import sys
from pathlib import Path

from chargehand.cli.console import Console, clean
from chargehand.cli.phrases import counted
from chargehand.cli.terminated import Termination
from chargehand.cli.verbs import Terminated
from chargehand.errors import ChargehandError
from chargehand.runtime.background import Rested, rest
from chargehand.stores.database import Durability
from chargehand.stores.sqlite import SqliteJournal
from chargehand.team import Supervisor


def look_back(team: Supervisor, journal: Path, durability: Durability, *, quiet: bool) -> None:
    """Do what is due. Whatever comes of it, the turn is over: it is said, and changes nothing else."""
    console = Console(sys.stderr)
    said: set[str] = set()

    def begun(worker: str) -> None:
        if not quiet and worker not in said:
            console.line(f"{clean(worker)} is tidying memory; Ctrl-C leaves it for the next time", "dim")
        said.add(worker)

    async def main() -> list[Rested]:
        opened = await SqliteJournal.open(journal, durability=durability)
        try:
            return await rest(team, opened, begun)
        finally:
            await opened.close()

    try:
        with Termination() as termination:
            found = termination.run(main())
    except KeyboardInterrupt as stop:
        console.line("memory is left for the next time", "warn")
        if isinstance(stop, Terminated):
            raise
        return
    except ChargehandError as error:
        console.line(f"memory was not tidied: {clean(str(error))}", "bad")
        return
    except Exception as error:  # noqa: BLE001 - tools and models of others: the turn is over, and keeps its exit code
        console.line(f"memory was not tidied: {type(error).__name__}: {clean(str(error))}", "bad")
        return
    for one in found:
        _tell(console, one)


def _tell(console: Console, one: Rested) -> None:
    """What went wrong; what went well is in the journal."""
    came = one.outcome
    if came.ending in ("complete", "partial"):
        return
    why = came.gaps[0].message if came.gaps else came.reason
    then = "it is tried again the next time" if one.again else f"{counted(len(one.covered), 'turn')} will be left out"
    if came.question is not None:
        then = "a person must answer first"
    console.line(f"{clean(one.worker)} did not get through ({clean(why)}); {then}; see run {clean(came.run)}", "bad")
