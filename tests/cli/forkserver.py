"""Forks real processes for `tests.cli.forked`, from one that has imported everything that commands import.

`python -m tests.cli.forkserver SOCKET` serves until its standard input is closed. A request is four open files: what
is to be run, and its standard streams. The reply is the process id, and then how it ended.
"""

import atexit
import ctypes
import gc
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import NamedTuple, cast

import msgspec

_NOT_IMPORTED = (
    "chargehand.__main__",
    "chargehand.tools.inside",
    "chargehand.tools.query_process",
)
_STARTS_THREADS = ("numpy", "onnxruntime", "xllamacpp")  # as soon as they are imported: they cannot be forked


class Command(msgspec.Struct):
    """The words after `chargehand`, or Python code; where, and with which environment. `first` is run before both."""

    words: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    code: str | None
    first: str


def serve(path: str) -> Command:
    """Come back in a forked process, with the command it is to run."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(16)
    gc.collect()
    gc.freeze()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    os.write(1, b"!")
    while True:
        for key, _ in selector.select():
            if isinstance(key.data, _Child):
                selector.unregister(key.fd)
                key.data.report()
            elif key.fd == 0:
                _close(selector)
                rmtree(Path(path).parent)
                sys.exit(0)
            else:
                connection, _ = listener.accept()
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
                if not descriptors:  # the other side has ended
                    connection.close()
                    continue
                file, *streams = descriptors
                pid = os.fork()
                if pid == 0:
                    _die_with_parent()
                    connection.close()
                    _close(selector)
                    return _take_over(file, streams)
                for number in (file, *streams):
                    os.close(number)
                child = _Child(pid, os.pidfd_open(pid), connection)
                with suppress(OSError):
                    connection.send(str(pid).encode())
                selector.register(child.pidfd, selectors.EVENT_READ, child)


class _Child(NamedTuple):
    """A command under way, and who waits for its end."""

    pid: int
    pidfd: int
    connection: socket.socket

    def report(self) -> None:
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.pidfd)
        with self.connection, suppress(OSError):
            self.connection.send(str(status).encode())


def _close(selector: selectors.BaseSelector) -> None:
    """Close all that the server has open, but its standard streams."""
    for key in tuple(selector.get_map().values()):
        if isinstance(key.data, _Child):
            key.data.connection.close()
        if key.fd:
            os.close(key.fd) if isinstance(key.fileobj, int) else cast("socket.socket", key.fileobj).close()
    selector.close()


def _take_over(file: int, streams: Sequence[int]) -> Command:
    """Read the command of this process, and use its streams."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with os.fdopen(file, "rb") as sent:
        return msgspec.convert(json.load(sent), Command)


def _die_with_parent() -> None:
    """Be killed when the parent ends, so that no command outlives the tests, however they end."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG


def _import_commands() -> None:
    """Import what commands import, but for what needs a library that cannot be forked."""
    import chargehand

    for name in _STARTS_THREADS:
        sys.modules[name] = cast("ModuleType", None)  # nobody can import it now
    for module in pkgutil.walk_packages(chargehand.__path__, "chargehand."):
        if not module.name.startswith(_NOT_IMPORTED):
            with suppress(ModuleNotFoundError):
                import_module(module.name)
    for name in _STARTS_THREADS:
        del sys.modules[name]


def _run(command: Command) -> None:
    """As a new interpreter would, but it is not taken to pieces at the end, which takes 0.1 s."""
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(command.environment)
    sys.stdin = TextIOWrapper(BufferedReader(FileIO(0, "r", closefd=False)), "utf-8", "surrogateescape")
    sys.stdout = TextIOWrapper(
        BufferedWriter(FileIO(1, "w", closefd=False)), "utf-8", "surrogateescape", line_buffering=os.isatty(1)
    )
    sys.stderr = TextIOWrapper(
        BufferedWriter(FileIO(2, "w", closefd=False)), "utf-8", "backslashreplace", line_buffering=True
    )
    sys.path[0] = command.folder
    warnings.simplefilter("error")
    codes = [1]  # that of an exception which nobody caught
    atexit.register(lambda: _end(codes[-1]))  # called after all that are registered later
    try:
        if command.first:
            _python(command.first)
        codes.append(_chargehand(command.words) if command.code is None else _python(command.code))
    except SystemExit as end:
        codes.append(end.code if isinstance(end.code, int) else 0)


def _chargehand(words: Sequence[str]) -> int:
    from chargehand.cli import main as entry

    sys.argv = [str(Path(entry.__file__).parents[1] / "__main__.py"), *words]
    return entry.main()


def _python(code: str) -> int:
    module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), module.__dict__)
    return 0


def _end(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _import_commands()
    _run(serve(sys.argv[1]))
