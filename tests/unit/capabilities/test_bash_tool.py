"""``UseBash`` with a sandbox that runs nothing: what it is asked for, and what the model sees."""

from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, AgentState, AgentStatus, ConfigurationError
from stepwell.capabilities.bash import BashPolicy, BashTool, UseBash
from stepwell.errors import NoSandboxError, SandboxError
from stepwell.events import ToolCallCompleted
from stepwell.sandbox import Ending, ExecutionPolicy, SandboxResult
from stepwell.sandbox.unconfined import UnconfinedSandbox
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import EventRecorder, ScriptedModel, call
from stepwell.testing.fake_sandbox import FakeSandbox, Queued
from stepwell.tools import ToolEffect

BASE = ExecutionPolicy(directory=Path("/base"))


def bash_in(sandbox: FakeSandbox, execution: ExecutionPolicy = BASE, **policy: Any) -> UseBash:
    return UseBash(policy=BashPolicy(**policy), execution=execution, sandbox=sandbox)


async def run_with(capability: UseBash, *calls: Any, **settings: Any) -> AgentState:
    model = ScriptedModel([[*calls], "Done."])
    return await Agent(model, capabilities=[capability], **settings).run("Go")


async def executed(result: Queued, **arguments: Any) -> ToolExecution:
    """What came of one command that ends like this."""
    asked = call("bash", **({"command": "make"} | arguments))
    state = await run_with(bash_in(FakeSandbox([result])), asked)
    assert state.status is AgentStatus.COMPLETED
    assert not state.had_errors
    return state.steps[0].step.tool_executions[0]


async def test_b244_what_a_command_says_is_the_result() -> None:
    execution = await executed("3 passed\n")

    assert execution.outcome is ToolOutcome.COMPLETED
    assert execution.text == "3 passed"


async def test_b244_a_silent_command_says_so() -> None:
    assert (await executed(SandboxResult(exit_code=0))).text == "(no output)"
    assert (await executed(SandboxResult(exit_code=0, stdout="\n\n"))).text == "(no output)"


async def test_b244_stderr_has_a_section_of_its_own() -> None:
    result = SandboxResult(exit_code=0, stdout="built\n", stderr="warning: old\n")

    assert (await executed(result)).text == "built\n\nstderr:\nwarning: old"


async def test_b244_stderr_alone_has_its_section_too() -> None:
    result = SandboxResult(exit_code=0, stderr="warning: old\n")

    assert (await executed(result)).text == "stderr:\nwarning: old"


async def test_b244_a_non_zero_exit_is_a_failure_with_the_exit_code_and_both_outputs() -> None:
    result = SandboxResult(exit_code=2, stdout="1 failed\n", stderr="oh no\n")
    execution = await executed(result)

    assert execution.text == "Error: exit code 2\n1 failed\n\nstderr:\noh no"
    assert execution.outcome is ToolOutcome.FAILED
    assert execution.error is None
    assert execution.value == {"exit_code": 2, "ending": "exited"}


async def test_b244_a_silent_failure_says_that_nothing_was_said() -> None:
    assert (await executed(SandboxResult(exit_code=1))).text == "Error: exit code 1\n(no output)"


@pytest.mark.parametrize(
    ("code", "words"), [(137, "137 (SIGKILL)"), (-9, "-9 (SIGKILL)"), (139, "139 (SIGSEGV)")]
)
async def test_the_signal_that_ended_a_command_is_named(code: int, words: str) -> None:
    execution = await executed(SandboxResult(exit_code=code))

    assert execution.text.startswith(f"Error: exit code {words}\n")


@pytest.mark.parametrize("code", [1, 127, 128, 255])
async def test_an_exit_code_that_is_no_signal_stands_alone(code: int) -> None:
    execution = await executed(SandboxResult(exit_code=code))

    assert execution.text.startswith(f"Error: exit code {code}\n")


async def test_b248_a_timeout_says_after_how_long_and_what_was_said_until_then() -> None:
    result = SandboxResult(exit_code=137, stdout="part 1\n", ending=Ending.TIMED_OUT)
    execution = await executed(result, timeout=7)

    assert "timed out after 7 seconds" in execution.text
    assert execution.text.endswith("\npart 1")
    assert execution.outcome is ToolOutcome.FAILED
    assert execution.value == {"exit_code": 137, "ending": "timed_out"}


async def test_a_command_that_fell_silent_says_after_how_long() -> None:
    execution = ExecutionPolicy(directory=Path("/base"), idle_timeout=2.5)
    ended = SandboxResult(exit_code=137, stdout="part 1\n", ending=Ending.IDLE)
    state = await run_with(bash_in(FakeSandbox([ended]), execution), call("bash", command="wait"))

    text = state.steps[0].step.tool_executions[0].text
    assert "after 2.5 seconds without output" in text
    assert text.endswith("\npart 1")


async def test_b249_a_denied_command_is_refused_and_nothing_is_run() -> None:
    sandbox = FakeSandbox(["pushed"])
    state = await run_with(
        bash_in(sandbox, denied=("git push",)), call("bash", command="cd repo && git  push -f")
    )

    execution = state.steps[0].step.tool_executions[0]
    assert sandbox.runs == []
    assert execution.outcome is ToolOutcome.FAILED
    assert "refused, nothing was run" in execution.text
    assert "'git push'" in execution.text
    assert state.status is AgentStatus.COMPLETED


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("echo a\0b", "NUL"),
        ("echo \ud800", "half a character"),
        ("echo " + "ä" * 60_000, "120005 bytes"),
    ],
)
async def test_what_no_shell_can_take_is_refused(command: str, words: str) -> None:
    sandbox = FakeSandbox(["ran"])
    state = await run_with(bash_in(sandbox), call("bash", command=command))

    assert sandbox.runs == []
    assert words in state.steps[0].step.tool_executions[0].text
    assert not state.had_errors


async def test_b250_the_sandbox_is_given_bash_and_the_whole_policy() -> None:
    sandbox = FakeSandbox(["ok"])
    execution = ExecutionPolicy(
        directory=Path("/base"), timeout=30, network=True, environment={"CI": "1"}
    )
    command = "echo $CI | tr 1 2\nexit 0"
    await run_with(bash_in(sandbox, execution), call("bash", command=command))

    (run,) = sandbox.runs
    assert run.argv == ("bash", "-c", command)
    assert run.policy == execution
    assert run.stdin == b""


@pytest.mark.parametrize(
    ("asked", "usual", "most", "given"),
    [
        (None, 30.0, None, 30.0),
        (5, 30.0, None, 5),
        (90, 30.0, None, 30.0),
        (90, 30.0, 60.0, 60.0),
        (None, 30.0, 60.0, 30.0),
        (None, 30.0, 10.0, 10.0),
        (None, None, None, None),
        (None, None, 10.0, 10.0),
        (45, None, None, 45),
    ],
)
async def test_a_command_gets_the_shortest_of_its_times(
    asked: int | None, usual: float | None, most: float | None, given: float | None
) -> None:
    sandbox = FakeSandbox(["ok"])
    execution = ExecutionPolicy(directory=Path("/base"), timeout=usual)
    arguments = {} if asked is None else {"timeout": asked}
    await run_with(
        bash_in(sandbox, execution, max_timeout=most),
        call("bash", command="make", **arguments),
        timeout=None,
    )

    assert sandbox.runs[0].policy.timeout == given


async def test_a_command_gets_no_more_time_than_the_run_has_left() -> None:
    sandbox = FakeSandbox(["ok"])
    await run_with(bash_in(sandbox), call("bash", command="make", timeout=90), timeout=20)

    given = sandbox.runs[0].policy.timeout
    assert given is not None
    assert 15 < given <= 20


@pytest.mark.parametrize("asked", [0, -1, 10**9, 10**400])
async def test_a_timeout_that_makes_no_sense_is_refused(asked: int) -> None:
    execution = await executed("ok", timeout=asked)

    assert "timeout must be from 1 to 604800 seconds" in execution.text


@pytest.mark.parametrize("kind", [SandboxError, NoSandboxError])
async def test_b251_a_sandbox_that_refuses_is_told_to_the_model(kind: type[SandboxError]) -> None:
    execution = await executed(kind("no network can be kept away; install bubblewrap"))

    assert execution.outcome is ToolOutcome.FAILED
    assert execution.text == (
        "Error: nothing was run: no network can be kept away; install bubblewrap"
    )


async def test_commands_of_one_response_run_one_after_the_other() -> None:
    running: list[str] = []
    beside: list[list[str]] = []

    class Noting(FakeSandbox):
        async def run(self, argv: Any, policy: Any, **rest: Any) -> SandboxResult:
            running.append(argv[2])
            beside.append(list(running))
            result = await super().run(argv, policy, **rest)
            running.remove(argv[2])
            return result

    calls = [call("bash", command="one"), call("bash", command="two")]
    state = await run_with(bash_in(Noting(["1", "2"])), *calls)

    assert beside == [["one"], ["two"]]
    assert [e.text for e in state.steps[0].step.tool_executions] == ["1", "2"]


async def test_events_tell_a_failed_command_as_not_successful() -> None:
    recorder = EventRecorder()
    sandbox = FakeSandbox(["fine", SandboxResult(exit_code=1)])
    calls = [call("bash", command="one"), call("bash", command="two")]
    agent = Agent(ScriptedModel([calls, "Done."]), capabilities=[bash_in(sandbox)])
    agent.wiretap(recorder)
    await agent.run("Go")

    told = recorder.of(ToolCallCompleted)
    assert [event.success for event in told] == [True, False]
    assert told[1].value == {"exit_code": 1, "ending": "exited"}


def test_the_model_is_told_the_rules_and_the_limits() -> None:
    schema = BashTool(execution=BASE).schema

    assert schema.name == "bash"
    for words in ("base directory", "no network", "120 seconds", "50000 characters"):
        assert words in schema.description
    assert schema.parameters["required"] == ["command"]
    assert set(schema.parameters["properties"]) == {"command", "timeout"}


def test_the_model_is_told_what_was_allowed() -> None:
    execution = ExecutionPolicy(
        directory=Path("/base"), network=True, writable=(Path("/out"),), timeout=60
    )
    told = BashTool(execution=execution, policy=BashPolicy(max_timeout=600)).schema.description

    assert "can use the network" in told
    assert "It can write in the base directory and /out only." in told
    assert "after 60 seconds; you can set a timeout of up to 600" in told


def test_the_model_is_told_when_nothing_is_confined() -> None:
    told = BashTool(execution=BASE, sandbox=UnconfinedSandbox()).schema.description

    assert "It is not confined: it can change all files of this user and use the network" in told
    assert "no network" not in told
    assert "base directory only" not in told


def test_a_command_is_external_and_runs_alone() -> None:
    tool = BashTool(execution=BASE)

    assert tool.effect is ToolEffect.EXTERNAL
    assert tool.parallel is False


def test_an_execution_policy_in_the_wrong_place_is_named() -> None:
    with pytest.raises(ConfigurationError, match="pass an ExecutionPolicy as execution="):
        UseBash(policy=BASE)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy": {"head_chars": 1}}, "write policy=BashPolicy"),
        ({"execution": "/base"}, r"write execution=ExecutionPolicy\.in_"),
        ({"execution": BASE, "base_dir": "/other"}, "set only one"),
        ({"execution": BASE, "sandbox": "bubblewrap"}, "is not a sandbox"),
        ({"execution": BASE, "sandbox": FakeSandbox}, "is not a sandbox"),
    ],
)
def test_what_does_not_fit_is_refused_at_construction(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        UseBash(**settings)


async def test_the_developer_is_told_that_nothing_can_be_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    none = NoSandboxError("nothing here can confine commands")
    state = await run_with(bash_in(FakeSandbox([none])), call("bash", command="ls"))

    assert state.messages[2].text == f"Error: nothing was run: {none}"
    assert f"the bash tool can't run commands: {none}" in caplog.text
