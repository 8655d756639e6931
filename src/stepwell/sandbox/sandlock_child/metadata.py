"""Changes of modes, owners, times and attributes that the supervisor makes for a confined process.

Landlock does not restrict these calls, so without this a confined command could change the mode of
any file of its user. The supervisor makes the change on an open descriptor, and only beneath a
writable path. Imports little, to keep the start fast.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
MAX_PATH_BYTES = 4096
MAX_ATTRIBUTE_BYTES = 65536
TWO_TIMESPECS = 32
SETID_BITS = stat.S_ISUID | stat.S_ISGID
OWN_DESCRIPTORS = b"/proc/self/fd/"


class ConfinedMemory:
    """The memory of the process that made a call."""

    def text(self, address: int, limit: int) -> bytes:
        """Read the zero-terminated text at this address."""
        raise NotImplementedError

    def bytes_at(self, address: int, count: int) -> bytes:
        """Read this many bytes."""
        raise NotImplementedError


class MetadataCall:
    """One call of a confined process: reads its arguments and opens its target."""

    def __init__(
        self, thread: int, arguments: Sequence[int], memory: ConfinedMemory, roots: Sequence[bytes]
    ) -> None:
        self.thread = thread
        self.arguments = arguments
        self.memory = memory
        self.roots = roots

    def number(self, index: int) -> int:
        """Return an argument as a signed 32-bit number, as the kernel does."""
        return ctypes.c_int32(self.arguments[index]).value

    def unsigned_number(self, index: int) -> int:
        """Return an argument as an unsigned 32-bit number: a mode, an owner."""
        return self.arguments[index] & 0xFFFFFFFF

    def text(self, index: int) -> bytes:
        """Return the text that an argument points to."""
        return self.memory.text(self.arguments[index], MAX_PATH_BYTES)

    def open_path(self, path_index: int, *, base: int | None = None, flags: int = 0) -> int:
        """Open the target of a path if it may be changed; the caller closes the descriptor."""
        directory = AT_FDCWD if base is None else self.number(base)
        path = self.text(path_index) if self.arguments[path_index] else b""
        descriptor_name = path.removeprefix(OWN_DESCRIPTORS)
        if descriptor_name != path and descriptor_name.isdigit():
            # The C library changes modes through this path; here it would mean our own descriptors.
            return self.open_descriptor(int(descriptor_name))
        if not path:
            if self.arguments[path_index] and not flags & AT_EMPTY_PATH:
                raise FileNotFoundError(errno.ENOENT, "empty path")
            return self.open_descriptor(directory)
        follow = 0 if not flags & AT_SYMLINK_NOFOLLOW else os.O_NOFOLLOW
        start = self._open_as_is(directory)
        try:
            return self._check_writable(
                os.open(path, os.O_PATH | os.O_CLOEXEC | follow, dir_fd=start)
            )
        finally:
            os.close(start)

    def open_descriptor(self, number: int) -> int:
        """Open what the process has open under this number, if it may be changed."""
        return self._check_writable(self._open_as_is(number))

    def _open_as_is(self, number: int) -> int:
        name = "cwd" if number == AT_FDCWD else f"fd/{number}"
        try:
            return os.open(f"/proc/{self.thread}/{name}", os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(errno.EBADF, "no such descriptor") from None

    def _check_writable(self, descriptor: int) -> int:
        # The kernel reports the path of the open file, so a link or a swap can't mislead this.
        real_path = os.readlink(os.fsencode(f"/proc/self/fd/{descriptor}"))
        if any(real_path == root or real_path.startswith(root + b"/") for root in self.roots):
            return descriptor
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "outside the writable paths")


LIBC = ctypes.CDLL(None, use_errno=True)


def _check_result(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "the call failed")


def _descriptor_path(descriptor: int) -> bytes:
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        raise OSError(errno.EOPNOTSUPP, "not on a link")
    return b"/proc/self/fd/%d" % descriptor


def _change_mode(call: MetadataCall, descriptor: int, at: int) -> None:
    mode = call.unsigned_number(at) & 0o7777
    if mode & SETID_BITS and not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise PermissionError(errno.EPERM, "setuid and setgid files would work outside as well")
    _check_result(LIBC.chmod(_descriptor_path(descriptor), mode))


def _change_owner(call: MetadataCall, descriptor: int, at: int) -> None:
    owner, group = (ctypes.c_uint32(call.unsigned_number(at + offset)) for offset in (0, 1))
    _check_result(LIBC.fchownat(descriptor, b"", owner, group, AT_EMPTY_PATH))


def _change_times(call: MetadataCall, descriptor: int, at: int) -> None:
    address = call.arguments[at]
    times = call.memory.bytes_at(address, TWO_TIMESPECS) if address else None
    _check_result(LIBC.utimensat(descriptor, b"", times, AT_EMPTY_PATH))


def _set_attribute(call: MetadataCall, descriptor: int, at: int) -> None:
    size = call.arguments[at + 2]
    if size > MAX_ATTRIBUTE_BYTES:
        raise OSError(errno.E2BIG, "attribute too long")
    value = call.memory.bytes_at(call.arguments[at + 1], size)
    os.setxattr(_descriptor_path(descriptor), call.text(at), value, call.number(at + 3))


def _remove_attribute(call: MetadataCall, descriptor: int, at: int) -> None:
    os.removexattr(_descriptor_path(descriptor), call.text(at))


if TYPE_CHECKING:
    Change = Callable[[MetadataCall, int, int], None]
    Opener = Callable[[MetadataCall], int]


def _path(call: MetadataCall) -> int:
    return call.open_path(0)


def _link(call: MetadataCall) -> int:
    return call.open_path(0, flags=AT_SYMLINK_NOFOLLOW)


def _descriptor(call: MetadataCall) -> int:
    return call.open_descriptor(call.number(0))


def _at(call: MetadataCall) -> int:
    return call.open_path(1, base=0)


def _at_with_flags(index: int) -> Opener:
    return lambda call: call.open_path(1, base=0, flags=call.unsigned_number(index))


# Call -> how to open its target, the change, and the index of the change's first argument.
CALLS: dict[str, tuple[Opener, Change, int]] = {
    "chmod": (_path, _change_mode, 1),
    "fchmod": (_descriptor, _change_mode, 1),
    "fchmodat": (_at, _change_mode, 2),
    "fchmodat2": (_at_with_flags(3), _change_mode, 2),
    "chown": (_path, _change_owner, 1),
    "lchown": (_link, _change_owner, 1),
    "fchown": (_descriptor, _change_owner, 1),
    "fchownat": (_at_with_flags(4), _change_owner, 2),
    "utimensat": (_at_with_flags(3), _change_times, 2),
    "setxattr": (_path, _set_attribute, 1),
    "lsetxattr": (_link, _set_attribute, 1),
    "fsetxattr": (_descriptor, _set_attribute, 1),
    "removexattr": (_path, _remove_attribute, 1),
    "lremovexattr": (_link, _remove_attribute, 1),
    "fremovexattr": (_descriptor, _remove_attribute, 1),
}


def perform(name: str, call: MetadataCall) -> int:
    """Perform the call for the confined process. Return 0, or the error number for it."""
    opener, change, at = CALLS[name]
    try:
        descriptor = opener(call)
        try:
            change(call, descriptor, at)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno or errno.EPERM
    return 0
