"""Runs a command under sandlock's Landlock rules and seccomp supervisor, through its C interface.

The wheel's Python interface is not used because it takes 100 ms to import.
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

    class NotificationPointer(Protocol):
        """A pointer to a notification."""

        @property
        def contents(self) -> Notification:
            """The notification."""
            ...


Pointer = ctypes.c_void_p
ENVIRONMENT_PREFIX = b"STEPWELL_COMMAND_"
KILL_ON_FAILURE = 0
OPEN_WITH_STRUCTURE = "openat2"
"""The filter can't see its mode argument. It is reported as missing, so programs use ``openat``."""
HIDDEN_PATHS = ("/proc/locks", "/proc/sysvipc", "/proc/keys", "/proc/key-users", "/proc/timer_list")
"""Files that reveal other processes."""
ANY_ENDPOINT = (b"*:*", b"icmp://*")
SIGNALED, KILLED = 1, 2


class Notification(ctypes.Structure):
    """A call intercepted by sandlock."""

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
    """A call and its handler."""

    _fields_ = (("number", ctypes.c_int64), ("handler", Pointer))


HANDLER = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, ctypes.POINTER(Notification), Pointer, Pointer)
DROP = ctypes.CFUNCTYPE(None, Pointer)


def _drop_nothing(_: object) -> None:
    pass


class SandlockMemory(ConfinedMemory):
    """The memory of a confined process, readable while its call is answered."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self._library = library
        self._handle = handle

    def text(self, address: int, limit: int) -> bytes:
        """Read the zero-terminated text at this address."""
        return self._read("sandlock_mem_read_cstr", address, limit)

    def bytes_at(self, address: int, count: int) -> bytes:
        """Read this many bytes."""
        return self._read("sandlock_mem_read", address, count) if count else b""

    def _read(self, function: str, address: int, count: int) -> bytes:
        content = ctypes.create_string_buffer(count)
        read = ctypes.c_size_t(0)
        position = ctypes.c_uint64(address)
        get = self._library[function]
        size = ctypes.c_size_t(count)
        if get(Pointer(self._handle), position, content, size, ctypes.byref(read)) != 0:
            raise OSError(errno.EFAULT, "bad address")
        return content.raw[: read.value]


class Confinement:
    """Builds the confinement for an order and runs its command in it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._library = ctypes.CDLL(order.one("--library"))
        self._roots = [os.fsencode(path) for path in order.all("--write")]
        self._references: list[object] = []

    def run(self) -> int:
        """Run the command and return its exit code, or 128 plus the number of the signal."""
        policy = self._policy()
        argv = self._order.argv
        words = (ctypes.c_char_p * len(argv))(*(os.fsencode(word) for word in argv))
        handlers = self._handlers()
        seccomp.install(self._number_of, network=bool(self._order.one("--network")))
        run = self._function("sandlock_run_interactive_with_handlers", Pointer)
        size = ctypes.c_size_t(len(handlers))
        # sandlock refuses concurrent runs with the same name.
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
            # Attribute access is cached by the library, index access is not.
            function = getattr(self._library, name)
        except AttributeError:
            raise Refused(f"this version of sandlock has no {name}; install sandlock 0.9") from None
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
        for path in filter(os.path.exists, HIDDEN_PATHS):
            add("fs_deny", os.fsencode(path))
        add("cwd", os.fsencode(order.one("--directory")))
        add("clean_env", ctypes.c_bool(True))
        for name, value in os.environb.items():
            if name.startswith(ENVIRONMENT_PREFIX):
                add("env_var", name.removeprefix(ENVIRONMENT_PREFIX), value)
        if order.one("--memory"):
            # sandlock's own limit counts reserved addresses and misses pages copied after a fork,
            # so a control group or the keeper limits memory. Memory behind a memfd belongs to no
            # process.
            add("extra_deny_syscalls", b"memfd_create")
        if order.one("--processes"):
            add("max_processes", ctypes.c_uint32(int(order.one("--processes"))))
        if order.one("--network"):
            for endpoint in ANY_ENDPOINT:
                add("net_allow", endpoint)
            add("net_allow_bind", b"*")
        return self._build(builder)

    def _build(self, builder: int) -> int:
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
        dropped = DROP(_drop_nothing)
        for position, (name, number) in enumerate(known.items()):
            answer = HANDLER(self._answer(name))
            self._references += [answer, dropped]
            registrations[position].number = number
            registrations[position].handler = new(
                answer, None, dropped, ctypes.c_uint32(KILL_ON_FAILURE)
            )
        return registrations

    def _answer(self, name: str) -> Callable[..., int]:
        fail = self._library["sandlock_action_set_errno"]
        succeed = self._library["sandlock_action_set_return_value"]

        def answer(_: object, notification: NotificationPointer, memory: int, out: int) -> int:
            if name == OPEN_WITH_STRUCTURE:
                fail(Pointer(out), ctypes.c_int32(errno.ENOSYS))
                return 0
            call = notification.contents
            read = SandlockMemory(self._library, memory)
            failure = perform(
                name, MetadataCall(call.thread, tuple(call.arguments), read, self._roots)
            )
            if failure:
                fail(Pointer(out), ctypes.c_int32(failure))
            else:
                succeed(Pointer(out), ctypes.c_int64(0))
            return 0

        return answer
