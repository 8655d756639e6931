"""The proof that a sandbox confines, and the choice of the first that gives it."""

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from stepwell.errors import NoSandboxError, SandboxError
from stepwell.sandbox import ExecutionPolicy, OutputListener, Sandbox, SandboxResult, proven
from stepwell.sandbox import choice as choice_module
from stepwell.sandbox.bubblewrap import BubblewrapSandbox
from stepwell.sandbox.choice import Once, default_sandbox, first_proven
from stepwell.sandbox.proof import prove
from stepwell.sandbox.sandbox import Ending
from stepwell.sandbox.unconfined import UnconfinedSandbox

pytestmark = pytest.mark.usefixtures("nothing_left")


class Wrapped:
    """A sandbox around another, which counts its runs."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.runs = 0

    @property
    def name(self) -> str:
        return "wrapped"

    def unavailable(self) -> str | None:
        return None

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        self.runs += 1
        return await self.sandbox.run(argv, policy, stdin=stdin, on_output=on_output)


class Networked(Wrapped):
    """Forgets that there should be no network."""

    async def run(
        self, argv: Sequence[str], policy: ExecutionPolicy, **others: object
    ) -> SandboxResult:
        open_policy = ExecutionPolicy.in_(policy.directory, network=True, timeout=policy.timeout)
        return await self.sandbox.run(argv, open_policy)


class Wide(Wrapped):
    """Opens more than it should."""

    async def run(
        self, argv: Sequence[str], policy: ExecutionPolicy, **others: object
    ) -> SandboxResult:
        wide = ExecutionPolicy.in_(
            policy.directory, writable=[policy.directory.parent], timeout=policy.timeout
        )
        return await self.sandbox.run(argv, wide)


class Telling(Wrapped):
    """Passes a variable on that it was not told to."""

    async def run(
        self, argv: Sequence[str], policy: ExecutionPolicy, **others: object
    ) -> SandboxResult:
        telling = ExecutionPolicy.in_(
            policy.directory, inherited_environment=["CANARY"], timeout=policy.timeout
        )
        return await self.sandbox.run(argv, telling)


class Careless(Wrapped):
    """Ends the command itself, and nothing that it started."""

    async def run(
        self, argv: Sequence[str], policy: ExecutionPolicy, **others: object
    ) -> SandboxResult:
        with tempfile.TemporaryFile() as output:
            process = await asyncio.create_subprocess_exec(
                *argv, cwd=policy.directory, env={"PATH": "/usr/bin:/bin"}, stdout=output
            )
            said = b""
            while b"all was tried" not in said:
                await asyncio.sleep(0.01)
                output.seek(0)
                said = output.read()
            process.kill()
            await process.wait()
        return SandboxResult(exit_code=137, stdout=said.decode(), ending=Ending.TIMED_OUT)


def end_survivors(place: Path) -> None:
    """End whoever works in a folder below this one, be it removed or not."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(f"{place}/"):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


async def test_bubblewrap_confines(bubblewrap: BubblewrapSandbox) -> None:
    await prove(bubblewrap)


async def test_what_is_unconfined_fails_with_all_that_it_let_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SandboxError) as refusal:
        await prove(UnconfinedSandbox())
    text = str(refusal.value)
    assert "it read a file outside" in text
    assert "it wrote a file outside" in text
    assert "it opened a connection" in text
    assert "outlived" not in text


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (Networked, "it opened a connection though it has no network"),
        (Wide, "it read a file outside; it wrote a file outside"),
        (Telling, "among its own variables it saw CANARY"),
    ],
)
async def test_each_hole_is_found(
    bubblewrap: BubblewrapSandbox,
    kind: type[Wrapped],
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "the secret value")
    with pytest.raises(SandboxError) as refusal:
        await prove(kind(bubblewrap))
    assert fault in str(refusal.value)
    assert "the secret value" not in str(refusal.value)


async def test_survivors_are_found(tmp_path: Path) -> None:
    try:
        with pytest.raises(SandboxError, match="what it started outlived the timeout"):
            await prove(Careless(UnconfinedSandbox()))
    finally:
        end_survivors(tmp_path)


async def test_a_sandbox_that_does_not_work_is_no_sandbox() -> None:
    class Broken(Wrapped):
        async def run(self, *given: object, **others: object) -> SandboxResult:
            return SandboxResult(exit_code=1, stderr="bad luck")

    with pytest.raises(SandboxError, match="does not work here: bad luck"):
        await prove(Broken(UnconfinedSandbox()))


async def test_the_first_that_proves_itself_is_taken(bubblewrap: BubblewrapSandbox) -> None:
    networked, good = Networked(bubblewrap), Wrapped(bubblewrap)
    assert await first_proven([networked, good]) is good
    with pytest.raises(NoSandboxError, match="- wrapped: wrapped does not confine here: it opened"):
        await first_proven([networked])


async def test_many_first_runs_prove_once(bubblewrap: BubblewrapSandbox, place: Path) -> None:
    counted = Wrapped(bubblewrap)
    sandbox = proven(counted)
    policy = ExecutionPolicy.in_(place)
    results = await asyncio.gather(*(sandbox.run(["echo", "hi"], policy) for _ in range(8)))
    assert [result.stdout for result in results] == ["hi\n"] * 8
    # A busy machine may take two tries for the proof.
    assert 1 <= counted.runs - 8 <= 2


async def test_what_fails_its_proof_runs_nothing(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    sandbox = proven(Networked(bubblewrap))
    with pytest.raises(SandboxError, match="does not confine"):
        await sandbox.run(["touch", "ran"], ExecutionPolicy.in_(place))
    assert os.listdir(place) == []


def test_the_choice_is_made_once_for_all_threads(
    bubblewrap: BubblewrapSandbox, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Wrapped(bubblewrap)

    async def choose() -> Sandbox:
        return await first_proven([counted])

    monkeypatch.setattr(choice_module, "_confinement", Once(choose))
    policy = ExecutionPolicy.in_(place)
    results: list[SandboxResult] = []

    def work() -> None:
        results.append(asyncio.run(default_sandbox().run(["echo", "hi"], policy)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.stdout for result in results] == ["hi\n"] * 4
    assert 1 <= counted.runs - 4 <= 2


async def test_by_default_commands_are_confined(place: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    result = await default_sandbox().run(
        ["sh", "-c", "echo works; cat ../secret"], ExecutionPolicy.in_(place)
    )
    assert result.stdout == "works\n"
