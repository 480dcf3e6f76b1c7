"""From the name of a team file to its parts, and to its memory alone. A team of them is made in `load`."""

from pathlib import Path

from msgspec import Struct

from chargehand.agents.worker import Worker
from chargehand.config.assemble import assemble
from chargehand.config.discover import find_team
from chargehand.config.environment import lookup_beside
from chargehand.config.findings import refuse
from chargehand.config.fit import fit
from chargehand.config.interpolate import Lookup
from chargehand.config.parts import Parts
from chargehand.config.source import read_source
from chargehand.memory.declared import Memory


class TeamMemory(Struct, frozen=True):
    """What it takes to open a team's memory without the team. `said` is whether the file speaks of memory at all."""

    team: str
    memory: Memory
    workers: tuple[Worker, ...]
    lookup: Lookup
    said: bool


def read_parts(
    path: Path | str | None,
    model: str = "",
    *,
    memory: Path | str | None = None,
    elsewhere: Path | str | None = None,
) -> Parts:
    """The parts of a file or folder, with whatever there is to say of them; Invalid for what has not even the shape."""
    file = find_team(path).file
    source = read_source(file)
    team, findings = fit(source)
    refuse(str(file), findings)
    assert team is not None, "a team without findings"
    return assemble(source, team, model, memory=memory, elsewhere=elsewhere)


def load_memory(
    path: Path | str | None = None, *, memory: Path | str | None = None, elsewhere: Path | str | None = None
) -> TeamMemory:
    """The memory of a team, for whoever looks into it without running anything. No model need be there.

    `memory` and `elsewhere` are as for `load_team`.
    """
    parts = read_parts(path, memory=memory, elsewhere=elsewhere)
    refuse(str(parts.source.file), parts.findings)
    found = parts.memory or Memory(elsewhere or memory)
    beside = lookup_beside(parts.source.file.resolve().parent)
    return TeamMemory(
        team=parts.team.name, memory=found, workers=tuple(parts.workers), lookup=beside, said=parts.memory is not None
    )
