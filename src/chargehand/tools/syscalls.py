"""Which system calls sandboxed code may not make, as the program that the kernel runs on each of them.

The namespaces already hide files, processes and the network. This takes away what could dig under them: new
namespaces, mounts, tracing, sockets of any family (some families ignore network namespaces), and large, seldom needed
parts of the kernel. It also takes away memory that no limit of a process counts (shared memory, memory files, message
queues, pages in pipes, watches) and new processes, so that the limit of the one process is the limit of all.
"""

import platform
import struct

from msgspec import Struct

# Classic BPF over `struct seccomp_data`: the number at offset 0, the architecture at 4, the first argument at 16.
LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
ANY_BIT = 0x45
RETURN = 0x06
ALLOW = 0x7FFF0000
KILL = 0x80000000
REFUSE = 0x00050000
NOT_PERMITTED = 1
NOT_IMPLEMENTED = 38
NEW_NAMESPACES = 0x7E020000
NEW_THREAD = 0x00010000
X32 = 0x40000000


class Machine(Struct, frozen=True):
    """`audit` is how the kernel calls the architecture; `refused` are numbers in its table of system calls."""

    audit: int
    clone: int
    refused: tuple[int, ...]


# From 424 on the numbers are the same everywhere: io_uring, the new mount interface, pidfd_getfd, mount_setattr,
# memfd_secret; landlock is left alone.
COMMON = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 447)
CLONE3 = 435  # its flags lie behind a pointer: "not implemented" makes the C library use clone

MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        56,
        (
            *(41, 101, 310, 311, 312),  # socket, ptrace, process_vm_readv and _writev, kcmp
            *(155, 161, 165, 166, 272, 308),  # pivot_root, chroot, mount, umount2, unshare, setns
            *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(303, 304),  # name_to_handle_at, open_by_handle_at
            *(175, 176, 313, 246, 320, 169),  # modules, kexec, reboot
            *(159, 164, 227, 305, 170, 171),  # clocks and names of the host
            *(135, 163, 167, 168, 172, 173, 179),  # personality, acct, swap, io ports, quotactl
            *(57, 58),  # fork, vfork
            *(29, 30, 31, 64, 68, 240, 319),  # shmget, shmat, shmctl, semget, msgget, mq_open, memfd_create
            *(275, 276, 278),  # splice, tee, vmsplice
            *(253, 254, 294, 300),  # inotify, fanotify
        ),
    ),
    "aarch64": Machine(
        0xC00000B7,
        220,
        (
            *(198, 117, 270, 271, 272),
            *(41, 51, 40, 39, 97, 268),
            *(241, 280, 282),
            *(217, 218, 219),
            *(264, 265),
            *(105, 106, 273, 104, 294, 142),
            *(171, 170, 112, 266, 161, 162),
            *(92, 89, 224, 225, 60),
            *(194, 195, 196, 190, 186, 180, 279),  # there is no fork but clone
            *(76, 77, 75),
            *(26, 27, 262),
        ),
    ),
}


def system_call_filter(machine: str = "") -> bytes:
    """The program for this machine; empty for one whose numbers we do not know."""
    kind = MACHINES.get(machine or platform.machine())
    if kind is None:
        return b""
    refused = kind.refused + COMMON
    body = [
        (AT_LEAST, X32, "refuse", ""),  # a second table of calls on x86; nothing lies there elsewhere
        (EQUAL, CLONE3, "missing", ""),
        *((EQUAL, number, "refuse", "") for number in refused),
        (EQUAL, kind.clone, "", "allow"),
        (LOAD, 16, "", ""),
        (ANY_BIT, NEW_NAMESPACES, "refuse", ""),
        (ANY_BIT, NEW_THREAD, "allow", "refuse"),
    ]
    head = [(LOAD, 4, "", ""), (EQUAL, kind.audit, "", "kill"), (LOAD, 0, "", "")]
    return assembled([*head, *body])


def assembled(steps: list[tuple[int, int, str, str]]) -> bytes:
    """Each step says where to go when true and when false; nowhere is the next step. The four verdicts come last."""
    verdicts = {"allow": ALLOW, "refuse": REFUSE | NOT_PERMITTED, "missing": REFUSE | NOT_IMPLEMENTED, "kill": KILL}
    places = {name: len(steps) + n for n, name in enumerate(verdicts)}

    def away(name: str, here: int) -> int:
        return places[name] - here - 1 if name else 0

    program = [struct.pack("<HBBI", code, away(yes, n), away(no, n), k) for n, (code, k, yes, no) in enumerate(steps)]
    return b"".join(program) + b"".join(struct.pack("<HBBI", RETURN, 0, 0, value) for value in verdicts.values())
