"""What the doctor says of files: whether they can be written, and whether a journal and a memory are in order."""

import os
import tempfile
from pathlib import Path
from shlex import quote

from chargehand.config.doctor_line import Line
from chargehand.stores.database import CATALOG, JOURNAL, FileKind
from chargehand.stores.examine import Examined, examine


def journal_file(path: Path) -> Line:
    return _store("journal", path, JOURNAL, "name another: --journal FILE")


def memory_file(path: Path) -> Line:
    return _store("memory", path, CATALOG, "name another: chargehand run --memory FILE")


def home_folder(path: Path) -> Line:
    return writable("home", path, "name another: export CHARGEHAND_HOME=FOLDER")


def writable(what: str, file: Path, other: str = "choose a folder that can be written") -> Line:
    """Whether a file can be written, or the nearest folder above it that exists. `other` is a way round it."""
    above = file.absolute().parents
    folder = next((path for path in above if path.exists()), above[-1])
    if file.exists() and not os.access(file, os.W_OK):
        todo = f"change its owner or mode: chmod u+w {quote(str(file))}; or {other}"
        return Line(what, "bad", f"{file} cannot be written", todo)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        todo = f"{other}; or make it writable: ls -ld {quote(str(folder))}"
        return Line(what, "bad", f"{folder} cannot be written: {error.strerror}", todo)
    return Line(what, "good", f"{file} ({'is there' if file.exists() else 'will be made'})")


def _store(what: str, path: Path, kind: FileKind, other: str) -> Line:
    if path.exists() and not path.is_file():  # SQLite takes some devices for empty files
        said = f"{path} is {'a folder' if path.is_dir() else 'no ordinary file'}"
        return Line(what, "bad", said, other)
    line = writable(what, path, other)
    if line.state == "bad" or not path.exists():
        return line
    found = examine(path, kind)
    if found.fault:
        return Line(what, "bad", found.said, _todo(found, path, other))
    return line


def _todo(found: Examined, path: Path, other: str) -> str:
    file = quote(str(path))
    # with all that lies beside it: SQLite would take an old log for that of the new file
    aside = f"move it away and begin anew: mkdir aside && mv {file}* aside/"
    if found.fault == "newer":
        return f"pip install --upgrade chargehand; or {other}"
    if found.fault == "damaged":
        return f"restore it from a backup; or {aside}"
    if found.fault == "foreign":
        return f"{other}; or {aside}"
    if found.fault == "locked":
        return f"close that program (who it is: fuser {file}); or {other}"
    return f"see who may do what: ls -l {file}*; or {other}"
