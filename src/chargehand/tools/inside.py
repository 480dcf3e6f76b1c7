"""Runs in the sandbox before the code does: limits itself, tries every wall, and becomes the code.

Nothing imports it. Its text is handed to the interpreter in there, so it stands alone and stays short. What it says on
the descriptor it was given is the only proof that the walls stand: silence counts as no.
"""

import os
import resource
import sys
from collections.abc import Callable

READY = b"ready"


def limit(resource_number: int, most: int) -> None:
    hard = resource.getrlimit(resource_number)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource_number, (value, value))


def become(user: int) -> None:
    """Give up root for good: limits on the number of processes do not hold for it."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def gap() -> str:
    """The first wall that does not stand, or nothing."""
    import _socket  # noqa: PLC0415 - only the C part: the rest of `socket` takes 5 ms to import

    if 0 in os.getresuid() or 0 in os.getresgid():
        return "it still runs as root"
    if os.getpid() != 1:
        return "it sees the processes of the host"
    if not os.statvfs("/").f_flag & os.ST_RDONLY or not os.access(".", os.W_OK):
        return "its files are not the workspace alone"
    if not refused(lambda: os.setuid(0)):
        return "it can become root again"
    if not refused(lambda: _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM).close()):
        return "it can open sockets: the filter of system calls is missing"
    if not refused(lambda: os.close(os.memfd_create("wall"))):
        return "it can hold memory that no limit counts: the filter of system calls is not ours"
    return ""


def refused(attempt: Callable[[], None]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


def main(report: int, user: int, limits: list[int], command: list[str]) -> None:
    os.set_inheritable(report, False)  # noqa: FBT003 - its only form; the code must never hold this
    try:
        processor, memory, file, threads = limits
        if user:
            become(user)
        limit(resource.RLIMIT_CPU, processor)
        limit(resource.RLIMIT_AS, memory)
        limit(resource.RLIMIT_FSIZE, file)
        limit(resource.RLIMIT_NPROC, threads)
        limit(resource.RLIMIT_NOFILE, 64)
        limit(resource.RLIMIT_SIGPENDING, 64)  # signals and timers that wait
        limit(resource.RLIMIT_MSGQUEUE, 0)
        limit(resource.RLIMIT_CORE, 0)
        missing = gap()
        os.write(report, missing.encode() or READY)
        if not missing:
            os.execv(command[0], command)  # noqa: S606 - no shell is the point
    except (OSError, ValueError) as error:
        os.write(report, f"; {type(error).__name__}: {error}".encode())
    sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), [int(text) for text in sys.argv[3:7]], sys.argv[7:])
