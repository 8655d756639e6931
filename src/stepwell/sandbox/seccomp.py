"""A seccomp filter against system calls that namespaces do not cover and no command needs.

It denies kernel keyrings, which have no namespace, nested user namespaces, sockets outside network
namespaces (such as those to the host of a virtual machine), setuid and setgid files, and rarely
used kernel interfaces. It is a second layer: the namespaces confine without it.
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
_COMMON_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into another terminal."""

_CREATE_FLAGS = 0x400040
"""O_CREAT and O_TMPFILE: without them the mode argument of an open has no meaning."""
_SETID_BITS = 0o6000
_MODE_ARGUMENTS = {
    "chmod": _SECOND_ARGUMENT,
    "fchmod": _SECOND_ARGUMENT,
    "creat": _SECOND_ARGUMENT,
    "mknod": _SECOND_ARGUMENT,
    "fchmodat": _THIRD_ARGUMENT,
    "fchmodat2": _THIRD_ARGUMENT,
    "mknodat": _THIRD_ARGUMENT,
}
_OPEN_ARGUMENTS = {
    "open": (_SECOND_ARGUMENT, _THIRD_ARGUMENT),
    "openat": (_THIRD_ARGUMENT, _FOURTH_ARGUMENT),
}
"""The arguments with the flags and the mode."""

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
    """Return the filter as BPF code, or None for an unsupported machine."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    architecture, numbers, denied = machine
    program = [_step(_LOAD, value=_ARCHITECTURE)]
    # Calls of another architecture, such as 32-bit calls, have other numbers.
    program += [_step(_JUMP_IF_EQUAL, 1, 0, architecture), _fail(errno.ENOSYS)]
    program += [_step(_LOAD, value=_NUMBER)]
    program += [_step(_JUMP_IF_AT_LEAST, 0, 1, _X32_BIT), _fail(errno.ENOSYS)]
    for number in denied:
        program += [_step(_JUMP_IF_EQUAL, 0, 1, number), _fail(errno.EPERM)]
    # Their arguments are behind a pointer, which a filter can't follow; programs fall back to the
    # older calls.
    for name in ("clone3", "openat2"):
        program += [_step(_JUMP_IF_EQUAL, 0, 1, numbers[name]), _fail(errno.ENOSYS)]
    for name in ("clone", "unshare"):
        program += _rule(numbers[name], _FIRST_ARGUMENT, _deny_bits(_NEW_USER_NAMESPACE))
    for name, mode in _MODE_ARGUMENTS.items():
        if name in numbers:
            program += _rule(numbers[name], mode, _deny_bits(_SETID_BITS))
    for name, (flags, mode) in _OPEN_ARGUMENTS.items():
        if name in numbers:
            program += _rule(numbers[name], flags, _deny_privileged_files(mode))
    program += _rule(numbers["socket"], _FIRST_ARGUMENT, _allow_common_sockets())
    program += _rule(numbers["ioctl"], _SECOND_ARGUMENT, _deny_terminal_input())
    return b"".join([*program, _step(_RETURN, value=_ALLOW)])


def _rule(number: int, argument: int, then: list[bytes]) -> list[bytes]:
    """For this call, load this argument and decide by it; ``then`` always returns."""
    body = [_step(_LOAD, value=argument), *then]
    return [_step(_JUMP_IF_EQUAL, 0, len(body), number), *body]


def _deny_bits(bits: int) -> list[bytes]:
    return [_step(_JUMP_IF_ANY, 0, 1, bits), _fail(errno.EPERM), _step(_RETURN, value=_ALLOW)]


def _deny_privileged_files(mode: int) -> list[bytes]:
    return [
        _step(_JUMP_IF_ANY, 1, 0, _CREATE_FLAGS),
        _step(_RETURN, value=_ALLOW),
        _step(_LOAD, value=mode),
        *_deny_bits(_SETID_BITS),
    ]


def _allow_common_sockets() -> list[bytes]:
    steps: list[bytes] = []
    for family in _COMMON_FAMILIES:
        steps += [_step(_JUMP_IF_EQUAL, 0, 1, family), _step(_RETURN, value=_ALLOW)]
    return [*steps, _fail(errno.EAFNOSUPPORT)]


def _deny_terminal_input() -> list[bytes]:
    steps: list[bytes] = []
    for request in _TERMINAL_INPUT:
        steps += [_step(_JUMP_IF_EQUAL, 0, 1, request), _fail(errno.EPERM)]
    return [*steps, _step(_RETURN, value=_ALLOW)]


def _fail(error: int) -> bytes:
    return _step(_RETURN, value=_FAIL | error)


def _step(code: int, if_true: int = 0, if_false: int = 0, value: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
