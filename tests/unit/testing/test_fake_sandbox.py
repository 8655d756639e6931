"""The double of a sandbox."""

from pathlib import Path

import pytest

from stepwell import ConfigurationError, StepwellError
from stepwell.errors import NoSandboxError
from stepwell.sandbox import Channel, ExecutionPolicy, Sandbox, SandboxResult, proven
from stepwell.testing.fake_sandbox import FakeRun, FakeSandbox

POLICY = ExecutionPolicy(directory=Path("/base"))


async def test_b287_results_come_in_order() -> None:
    failed = SandboxResult(exit_code=1, stderr="no")
    sandbox: Sandbox = FakeSandbox(["first", failed])

    first = await sandbox.run(["one"], POLICY)
    assert (first.exit_code, first.stdout, first.stdout_bytes) == (0, "first", 5)
    assert await sandbox.run(["two"], POLICY) is failed


async def test_b287_both_channels_are_streamed() -> None:
    heard: list[tuple[Channel, str]] = []
    sandbox = FakeSandbox([SandboxResult(exit_code=0, stdout="a\nb", stderr="c\n")])
    await sandbox.run(["x"], POLICY, on_output=lambda channel, text: heard.append((channel, text)))

    assert heard == [(Channel.STDOUT, "a\n"), (Channel.STDOUT, "b"), (Channel.STDERR, "c\n")]


async def test_b287_without_a_queued_result_it_says_what_was_asked() -> None:
    sandbox = FakeSandbox(["only"])
    await sandbox.run(["one"], POLICY)

    with pytest.raises(StepwellError, match=r"has 1 results, and run 2 .*'two'.*enqueue"):
        await sandbox.run(["two"], POLICY)


async def test_it_remembers_what_it_was_asked() -> None:
    sandbox = FakeSandbox()
    sandbox.enqueue("ok", "ok")
    await sandbox.run(["cat"], POLICY, stdin=b"text")
    await sandbox.run(["ls", "-l"], POLICY)

    assert sandbox.runs == [
        FakeRun(argv=("cat",), policy=POLICY, stdin=b"text"),
        FakeRun(argv=("ls", "-l"), policy=POLICY, stdin=b""),
    ]


async def test_a_queued_exception_is_raised() -> None:
    sandbox = FakeSandbox([NoSandboxError("install one"), "next"])

    with pytest.raises(NoSandboxError, match="install one"):
        await sandbox.run(["x"], POLICY)
    assert (await sandbox.run(["x"], POLICY)).stdout == "next"


def test_a_text_alone_is_no_list_of_results() -> None:
    with pytest.raises(ConfigurationError, match=r"write FakeSandbox\(\['ok'\]\)"):
        FakeSandbox("ok")


def test_nobody_asks_it_for_a_proof() -> None:
    sandbox = FakeSandbox()

    assert proven(sandbox) is sandbox
