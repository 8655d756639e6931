"""One command under sandlock's Landlock rules and seccomp supervisor, by the wheel's C interface.

The wheel's Python interface takes 100 ms to import, so it is not used.
"""

from __future__ import annotations

import ctypes
import errno
import os

from . import filter as seccomp
from .metadata import CALLS, ConfinedMemory, MetadataCall, perform
from .order import Order, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Told(Protocol):
        """A pointer to a notification."""

        @property
        def contents(self) -> Notification:
            """What it points to."""
            ...


Pointer = ctypes.c_void_p
ENVIRONMENT_PREFIX = b"STEPWELL_COMMAND_"
KILL_ON_FAILURE = 0
OPEN_WITH_STRUCTURE = "openat2"
"""The filter can't see the mode in it; told that it does not exist, programs use ``openat``."""
HIDDEN = ("/proc/locks", "/proc/sysvipc", "/proc/keys", "/proc/key-users", "/proc/timer_list")
"""What tells of other processes, and is no process's own."""
ANY_ENDPOINT = (b"*:*", b"icmp://*")
SIGNALED, KILLED = 1, 2


class Notification(ctypes.Structure):
    """A call that sandlock intercepted."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("thread", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("number", ctypes.c_int32),
        ("architecture", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


class Registration(ctypes.Structure):
    """Which handler answers which call."""

    _fields_ = (("number", ctypes.c_int64), ("handler", Pointer))


HANDLER = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, ctypes.POINTER(Notification), Pointer, Pointer)
DROP = ctypes.CFUNCTYPE(None, Pointer)


def _nothing_to_drop(_: object) -> None:
    pass


class SandlockMemory(ConfinedMemory):
    """A confined process's memory, readable while its call is being answered."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self._library = library
        self._handle = handle

    def text(self, address: int, limit: int) -> bytes:
        """The zero-terminated text at this address."""
        return self._read("sandlock_mem_read_cstr", address, limit)

    def bytes_at(self, address: int, count: int) -> bytes:
        """This many bytes."""
        return self._read("sandlock_mem_read", address, count) if count else b""

    def _read(self, function: str, address: int, count: int) -> bytes:
        content = ctypes.create_string_buffer(count)
        read = ctypes.c_size_t(0)
        place = ctypes.c_uint64(address)
        get = self._library[function]
        size = ctypes.c_size_t(count)
        if get(Pointer(self._handle), place, content, size, ctypes.byref(read)) != 0:
            raise OSError(errno.EFAULT, "bad address")
        return content.raw[: read.value]


class Confinement:
    """Builds the confinement an order asks for and runs its command in it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._library = ctypes.CDLL(order.one("--library"))
        self._roots = [os.fsencode(path) for path in order.all("--write")]
        self._kept: list[object] = []

    def run(self) -> int:
        """Run it; its exit code, or 128 and the number of the signal that ended it."""
        policy = self._policy()
        argv = self._order.argv
        words = (ctypes.c_char_p * len(argv))(*(os.fsencode(word) for word in argv))
        handlers = self._handlers()
        seccomp.install(self._number_of, network=bool(self._order.one("--network")))
        run = self._function("sandlock_run_interactive_with_handlers", Pointer)
        size = ctypes.c_size_t(len(handlers))
        # Runs of the same name at the same time are refused.
        name = ctypes.c_char_p(b"sandbox-" + os.urandom(6).hex().encode())
        result = run(Pointer(policy), name, words, ctypes.c_uint(len(argv)), handlers, size)
        if not result:
            raise Refused("it could not start the command")
        reason = self._function("sandlock_result_reason", ctypes.c_uint32)(Pointer(result))
        if reason == SIGNALED:
            return 128 + self._function("sandlock_result_signal", ctypes.c_int)(Pointer(result))
        if reason == KILLED:
            return 137
        return self._function("sandlock_result_exit_code", ctypes.c_int)(Pointer(result))

    def _function(self, name: str, result: type[object] | None) -> Callable[..., int]:
        try:
            # By attribute the library looks for it once only; by index, each time.
            function = getattr(self._library, name)
        except AttributeError:
            raise Refused(f"this version of it has no {name}; install sandlock 0.9") from None
        function.restype = result
        return function

    def _number_of(self, call: str) -> int:
        return self._function("sandlock_syscall_nr", ctypes.c_int64)(call.encode())

    def _policy(self) -> int:
        order = self._order
        builder = self._function("sandlock_sandbox_builder_new", Pointer)()

        def add(setting: str, *values: object) -> None:
            nonlocal builder
            setter = self._function(f"sandlock_sandbox_builder_{setting}", Pointer)
            builder = setter(Pointer(builder), *values)

        for path in order.all("--read"):
            add("fs_read", os.fsencode(path))
        for path in (*order.all("--write"), *order.all("--device")):
            add("fs_write", os.fsencode(path))
        for path in filter(os.path.exists, HIDDEN):
            add("fs_deny", os.fsencode(path))
        add("cwd", os.fsencode(order.one("--directory")))
        add("clean_env", ctypes.c_bool(True))
        for name, value in os.environb.items():
            if name.startswith(ENVIRONMENT_PREFIX):
                add("env_var", name.removeprefix(ENVIRONMENT_PREFIX), value)
        if order.one("--memory"):
            # Its own limit counts reserved addresses, and misses pages copied after a fork, so a
            # control group or the keeper limits memory. What is behind such a descriptor is no
            # process's memory.
            add("extra_deny_syscalls", b"memfd_create")
        if order.one("--processes"):
            add("max_processes", ctypes.c_uint32(int(order.one("--processes"))))
        if order.one("--network"):
            for endpoint in ANY_ENDPOINT:
                add("net_allow", endpoint)
            add("net_allow_bind", b"*")
        return self._built(builder)

    def _built(self, builder: int) -> int:
        failure, message = ctypes.c_int(0), ctypes.c_char_p()
        build = self._function("sandlock_sandbox_build", Pointer)
        policy = build(Pointer(builder), ctypes.byref(failure), ctypes.byref(message))
        if not policy or failure.value:
            raise Refused((message.value or b"it gave no reason").decode(errors="replace"))
        return policy

    def _handlers(self) -> ctypes.Array[Registration]:
        numbers = {name: self._number_of(name) for name in (*CALLS, OPEN_WITH_STRUCTURE)}
        known = {name: number for name, number in numbers.items() if number >= 0}
        registrations = (Registration * len(known))()
        new = self._function("sandlock_handler_new", Pointer)
        dropped = DROP(_nothing_to_drop)
        for place, (name, number) in enumerate(known.items()):
            answer = HANDLER(self._answer(name))
            self._kept += [answer, dropped]
            registrations[place].number = number
            registrations[place].handler = new(
                answer, None, dropped, ctypes.c_uint32(KILL_ON_FAILURE)
            )
        return registrations

    def _answer(self, name: str) -> Callable[..., int]:
        fail = self._library["sandlock_action_set_errno"]
        give = self._library["sandlock_action_set_return_value"]

        def answer(_: object, notification: Told, memory: int, out: int) -> int:
            if name == OPEN_WITH_STRUCTURE:
                fail(Pointer(out), ctypes.c_int32(errno.ENOSYS))
                return 0
            asked = notification.contents
            read = SandlockMemory(self._library, memory)
            failure = perform(
                name, MetadataCall(asked.thread, tuple(asked.arguments), read, self._roots)
            )
            if failure:
                fail(Pointer(out), ctypes.c_int32(failure))
            else:
                give(Pointer(out), ctypes.c_int64(0))
            return 0

        return answer
