"""`serve --reload`: teams are loaded anew when their files change. Runs that are under way keep the team they have.

Files are looked at every half second. An edit that cannot be loaded is said, and the earlier team goes on taking
requests.
"""

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from chargehand.config.python_objects import is_python_name
from chargehand.config.source import find_team
from chargehand.errors import ChargehandError
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenants
from chargehand.team import Team

_MAX_FILES = 5000
_SUFFIXES = frozenset((".py", ".yaml", ".yml", ".toml", ".md", ".txt", ".json", ".csv", ".lock"))
_SKIPPED = frozenset(("__pycache__", "node_modules"))
Stamps: TypeAlias = Mapping[Path, tuple[int, int]]
"""When each file was changed, and its size."""


class Reloader:
    """Watches the files of the teams of a server. `say` is told what was loaded anew, and what could not be."""

    def __init__(self, tenants: Tenants, say: Callable[[str], None]) -> None:
        self._tenants = tenants
        self._say = say
        self._look_every = tenants.settings.reload_every
        sources = tenants.settings.teams or (None,)
        self._watched = {source: _stamps(source) for source in sources if not isinstance(source, Team)}
        sys.dont_write_bytecode = True  # compiled files tell edits within one second not apart

    async def watch(self) -> None:
        """Look for changes until it is cancelled."""
        while True:
            await asyncio.sleep(self._look_every)
            for source, before in self._watched.items():
                now = await asyncio.to_thread(_stamps, source)
                if now != before:
                    self._watched[source] = now
                    changed = {path for path, _ in set(now.items()) ^ set(before.items())}
                    await self._reload(source, sorted(path.name for path in changed))
            for tenant in self._tenants.open:
                await tenant.part(Teams).close_retired()

    async def _reload(self, source: Path | str | None, changed: list[str]) -> None:
        removed = _remove_modules(source)
        names = f"{', '.join(changed[:3])}{', ...' if len(changed) > 3 else ''}"
        try:
            for tenant in self._tenants.open:
                team = await tenant.part(Teams).reload(source)
                if tenant is self._tenants.open[0]:
                    self._say(f"reloaded team {team.name}: {names} changed")
        except ChargehandError as error:
            sys.modules.update(removed)  # what is served goes on with the modules it was made of
            self._say(f"not reloaded, the earlier team goes on: {error}")


def _root(source: Path | str | None) -> Path:
    """The folder that a team is made of: that of its file, or of the top package or module it is imported from."""
    if not is_python_name(source):
        return find_team(source).file.resolve().parent
    top = str(source).partition(":")[0].partition(".")[0]
    module = sys.modules.get(top)
    places = [] if module is None else [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
    return next((Path(place).resolve().parent for place in places if place), Path.cwd())


def _stamps(source: Path | str | None) -> Stamps:
    try:
        return dict(_files(_root(source)))
    except ChargehandError:  # its file is gone for now: loading it will say so
        return {}


def _files(root: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    count = 0
    for folder, folders, names in os.walk(root):
        hidden = [name for name in folders if name.startswith(".") or name in _SKIPPED]
        folders[:] = [] if "pyvenv.cfg" in names else [name for name in folders if name not in hidden]
        for name in names:
            path = Path(folder, name)
            if path.suffix not in _SUFFIXES:
                continue
            count += 1
            if count > _MAX_FILES:
                return
            try:
                stat = path.stat()
            except OSError:  # an editor replaces it just now
                continue
            yield path, (stat.st_mtime_ns, stat.st_size)


def _remove_modules(source: Path | str | None) -> dict[str, ModuleType]:
    """Have the modules below the folder of a team imported anew when it is loaded; those that were there."""
    root = _root(source)
    removed: dict[str, ModuleType] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_ours = name == "__main__" or name.partition(".")[0] == "chargehand"
        if file and not is_ours and Path(file).resolve().is_relative_to(root) and "site-packages" not in file:
            removed[name] = sys.modules.pop(name)
    importlib.invalidate_caches()
    return removed
