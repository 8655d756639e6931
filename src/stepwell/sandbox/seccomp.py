"""A filter of system calls for commands: what the namespaces do not cover and no command needs.

It keeps commands from kernel keyrings, which are not confined, from nested user namespaces, from
sockets that a network namespace does not hold (such as those to the host of a virtual machine),
from leaving programs behind that run with their owner's rights, and from rarely used doors into the
kernel. It is a second wall: the namespaces confine without it.
"""

import errno
import platform
import struct
from functools import cache

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW = 0x7FFF0000
_FAIL = 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16, 24, 32, 40
_NEW_USER_NAMESPACE = 0x10000000
_X32_BIT = 0x40000000
_ORDINARY_SOCKETS = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into the terminal of others."""

_CREATES = 0x400040
"""O_CREAT and O_TMPFILE: without them the mode that is given to an open has no meaning."""
_OWNERS_RIGHTS = 0o6000
_GIVES_MODE = {
    "chmod": _SECOND_ARGUMENT,
    "fchmod": _SECOND_ARGUMENT,
    "creat": _SECOND_ARGUMENT,
    "mknod": _SECOND_ARGUMENT,
    "fchmodat": _THIRD_ARGUMENT,
    "fchmodat2": _THIRD_ARGUMENT,
    "mknodat": _THIRD_ARGUMENT,
}
_OPENS = {
    "open": (_SECOND_ARGUMENT, _THIRD_ARGUMENT),
    "openat": (_THIRD_ARGUMENT, _FOURTH_ARGUMENT),
}
"""Where the flags and where the mode are."""

_MACHINES = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41,
            "clone": 56,
            "unshare": 272,
            "clone3": 435,
            "ioctl": 16,
            "chmod": 90,
            "fchmod": 91,
            "fchmodat": 268,
            "fchmodat2": 452,
            "creat": 85,
            "mknod": 133,
            "mknodat": 259,
            "open": 2,
            "openat": 257,
            "openat2": 437,
        },
        # add_key request_key keyctl bpf userfaultfd perf_event_open io_uring x3, mount and its new
        # siblings, umount2 pivot_root setns swapon swapoff reboot quotactl name_to_handle_at
        # open_by_handle_at kexec x2, modules x3, acct syslog lookup_dcookie iopl ioperm
        (
            *(248, 249, 250, 321, 323, 298, 425, 426, 427, 165, 428, 429, 430, 431, 432, 433, 442),
            *(166, 155, 308, 167, 168, 169, 179, 303, 304, 246, 320, 175, 313, 176, 163, 103, 212),
            *(172, 173),
        ),
    ),
    "aarch64": (
        0xC00000B7,
        {
            "socket": 198,
            "clone": 220,
            "unshare": 97,
            "clone3": 435,
            "ioctl": 29,
            "fchmod": 52,
            "fchmodat": 53,
            "fchmodat2": 452,
            "mknodat": 33,
            "openat": 56,
            "openat2": 437,
        },
        (
            *(217, 218, 219, 280, 282, 241, 425, 426, 427, 40, 428, 429, 430, 431, 432, 433, 442),
            *(39, 41, 268, 224, 225, 142, 60, 264, 265, 104, 294, 105, 273, 106, 89, 116, 18),
        ),
    ),
}


@cache
def syscall_filter() -> bytes | None:
    """The filter as the kernel wants it, None for a machine it is not written for."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    architecture, numbers, denied = machine
    program = [_step(_LOAD, value=_ARCHITECTURE)]
    # Another architecture's calls, such as 32 bit ones, have other numbers.
    program += [_step(_JUMP_IF_EQUAL, 1, 0, architecture), _fail(errno.ENOSYS)]
    program += [_step(_LOAD, value=_NUMBER)]
    program += [_step(_JUMP_IF_AT_LEAST, 0, 1, _X32_BIT), _fail(errno.ENOSYS)]
    for number in denied:
        program += [_step(_JUMP_IF_EQUAL, 0, 1, number), _fail(errno.EPERM)]
    # What they are to do is behind a pointer, which a filter can't follow; programs then use the
    # older calls.
    for name in ("clone3", "openat2"):
        program += [_step(_JUMP_IF_EQUAL, 0, 1, numbers[name]), _fail(errno.ENOSYS)]
    for name in ("clone", "unshare"):
        program += _when(numbers[name], _FIRST_ARGUMENT, _none_of(_NEW_USER_NAMESPACE))
    for name, mode in _GIVES_MODE.items():
        if name in numbers:
            program += _when(numbers[name], mode, _none_of(_OWNERS_RIGHTS))
    for name, (flags, mode) in _OPENS.items():
        if name in numbers:
            program += _when(numbers[name], flags, _new_files_with(mode))
    program += _when(numbers["socket"], _FIRST_ARGUMENT, _only_ordinary_sockets())
    program += _when(numbers["ioctl"], _SECOND_ARGUMENT, _no_terminal_input())
    return b"".join([*program, _step(_RETURN, value=_ALLOW)])


def _when(number: int, argument: int, then: list[bytes]) -> list[bytes]:
    """For that call, load that argument and decide by it; ``then`` always returns."""
    body = [_step(_LOAD, value=argument), *then]
    return [_step(_JUMP_IF_EQUAL, 0, len(body), number), *body]


def _none_of(bits: int) -> list[bytes]:
    return [_step(_JUMP_IF_ANY, 0, 1, bits), _fail(errno.EPERM), _step(_RETURN, value=_ALLOW)]


def _new_files_with(mode: int) -> list[bytes]:
    return [
        _step(_JUMP_IF_ANY, 1, 0, _CREATES),
        _step(_RETURN, value=_ALLOW),
        _step(_LOAD, value=mode),
        *_none_of(_OWNERS_RIGHTS),
    ]


def _only_ordinary_sockets() -> list[bytes]:
    steps: list[bytes] = []
    for family in _ORDINARY_SOCKETS:
        steps += [_step(_JUMP_IF_EQUAL, 0, 1, family), _step(_RETURN, value=_ALLOW)]
    return [*steps, _fail(errno.EAFNOSUPPORT)]


def _no_terminal_input() -> list[bytes]:
    steps: list[bytes] = []
    for request in _TERMINAL_INPUT:
        steps += [_step(_JUMP_IF_EQUAL, 0, 1, request), _fail(errno.EPERM)]
    return [*steps, _step(_RETURN, value=_ALLOW)]


def _fail(error: int) -> bytes:
    return _step(_RETURN, value=_FAIL | error)


def _step(code: int, if_true: int = 0, if_false: int = 0, value: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
