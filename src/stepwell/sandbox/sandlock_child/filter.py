"""A seccomp program that denies what sandlock allows: network families, other processes, metadata.

Allowed by sandlock 0.9: multipath TCP and TCP fast open without network, scheduling and limits of
other processes of the same user, watching directories, POSIX message queues, and the kernel's log.
"""

from __future__ import annotations

import ctypes
import errno
import os

from .order import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_CALLS = 0x40000000
AF_UNIX = 1
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, FAIL = 0x7FFF0000, 0x00050000
LOAD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, JUMP_IF_ANY, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16

DENIED = (
    # Old variants of calls that the supervisor performs; the C library uses the new ones.
    *("utime", "utimes", "futimesat", "setxattrat", "removexattrat", "file_setattr"),
    # Watching directories it may not read, and the kernel's log.
    *("inotify_init", "inotify_init1", "fanotify_init", "syslog"),
    # The memory of other processes of the same user.
    *("move_pages", "migrate_pages", "process_madvise", "process_mrelease", "memfd_secret"),
    # POSIX message queues, which Landlock does not cover.
    *("mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr"),
    *("chroot", "mount_setattr", "open_tree", "fsopen", "fspick", "move_mount"),
)
# Calls on any process, allowed only for the caller itself: argument -> required value.
ALLOWED_FOR_SELF = {
    "prlimit64": {0: 0},
    "sched_setaffinity": {0: 0},
    "sched_setscheduler": {0: 0},
    "sched_setparam": {0: 0},
    "sched_setattr": {0: 0},
    "setpriority": {0: 0, 1: 0},
    "ioprio_set": {0: 1, 1: 0},
}
# File flags through a read-only descriptor; terminal input and the console.
DENIED_CONTROLS = (0x40086602, 0x401C5820, 0x40087602, 0x5412, 0x541C)

# A setuid or setgid file would also work outside, where root may have run the command:
# call -> its argument with flags, if any, and the one with the mode.
CREATING_CALLS: dict[str, tuple[int | None, int]] = {
    "open": (1, 2),
    "openat": (2, 3),
    "creat": (None, 1),
    "mknod": (None, 1),
    "mknodat": (None, 2),
}
CREATE_FLAGS = 0o100 | 0o20000000
SETID_BITS = 0o6000


class Instruction(ctypes.Structure):
    """One instruction of a seccomp program."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class SeccompProgram(ctypes.Structure):
    """A seccomp program in the kernel's format."""

    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(Instruction)))


if TYPE_CHECKING:
    Step = tuple[int, int, int, int]


def program(number_of: Callable[[str], int], machine: str, *, network: bool) -> list[Step]:
    """Return the instructions for this machine; calls it does not have are left out."""
    refuse = (RETURN, 0, 0, FAIL | errno.EPERM)
    steps: list[Step] = [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        (JUMP_IF_EQUAL, 1, 0, ARCHITECTURES[machine]),
        refuse,
        (LOAD, 0, 0, NUMBER_OFFSET),
    ]
    if machine == "x86_64":
        steps += [(JUMP_IF_AT_LEAST, 0, 1, X32_CALLS), refuse]
    for name in DENIED:
        steps += _rule(number_of(name), [refuse])
    for name, expected in ALLOWED_FOR_SELF.items():
        steps += _rule(number_of(name), _unless_equal(expected.items(), refuse))
    controls: list[Step] = [(LOAD, 0, 0, ARGUMENTS_OFFSET + 8)]
    for control in DENIED_CONTROLS:
        controls += [(JUMP_IF_EQUAL, 0, 1, control), refuse]
    steps += _rule(number_of("ioctl"), [*controls, (RETURN, 0, 0, ALLOW)])
    for name, (flags, mode) in CREATING_CALLS.items():
        steps += _rule(number_of(name), _deny_setid_files(flags, mode, refuse))
    if not network:
        no_family = (RETURN, 0, 0, FAIL | errno.EACCES)
        steps += _rule(number_of("socket"), _unless_equal([(0, AF_UNIX)], no_family))
    return [*steps, (RETURN, 0, 0, ALLOW)]


def _unless_equal(expected: Iterable[tuple[int, int]], refuse: Step) -> list[Step]:
    steps: list[Step] = []
    for argument, value in expected:
        steps.append((LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * argument))
        steps += [(JUMP_IF_EQUAL, 1, 0, value), refuse]
    return [*steps, (RETURN, 0, 0, ALLOW)]


def _deny_setid_files(flags: int | None, mode: int, refuse: Step) -> list[Step]:
    steps: list[Step] = []
    if flags is not None:
        # Without these flags the mode is not an argument but whatever is in its register.
        steps.append((LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * flags))
        steps.append((JUMP_IF_ANY, 0, 3, CREATE_FLAGS))
    steps.append((LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * mode))
    return [*steps, (JUMP_IF_ANY, 0, 1, SETID_BITS), refuse, (RETURN, 0, 0, ALLOW)]


def _rule(number: int, body: list[Step]) -> list[Step]:
    # Every body ends in a return, so the call's number is still loaded after it.
    return [(JUMP_IF_EQUAL, 0, len(body), number), *body] if number >= 0 else []


def install(number_of: Callable[[str], int], *, network: bool) -> None:
    """Apply the program for this machine to this process and what it starts."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise Refused(f"system calls can't be filtered on {machine}")
    steps = program(number_of, machine, network=network)
    instructions = (Instruction * len(steps))(*steps)
    seccomp_program = SeccompProgram(len(steps), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(seccomp_program), 0, 0) != 0:
        raise Refused(f"seccomp filter: {os.strerror(ctypes.get_errno())}")
