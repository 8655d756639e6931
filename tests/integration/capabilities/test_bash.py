"""``UseBash`` with real commands: in this machine's own sandbox, and in the unconfined one."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, AgentState, AgentStatus, Cancellation, StopReason
from stepwell.capabilities.bash import BashPolicy, UseBash
from stepwell.events import ToolCallProgressed, ToolCallStarted
from stepwell.sandbox import ExecutionPolicy, Sandbox, default_sandbox
from stepwell.sandbox.cgroups import _parent
from stepwell.sandbox.sandlock import SandlockSandbox
from stepwell.sandbox.unconfined import UnconfinedSandbox
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import EventRecorder, ScriptedModel, call
from stepwell.testing.fake_sandbox import FakeSandbox

SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "default": default_sandbox,
    "unconfined": UnconfinedSandbox,
}
FOREVER = "300"
# A limit after which a command must have begun; a busy machine may need the longer ones.
PATIENCE_SECONDS = (0.5, 2.0, 10.0, 40.0)


@pytest.fixture(params=SANDBOXES)
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    """Each sandbox, its proof done, so that no test measures it."""
    made = SANDBOXES[request.param]()
    await made.run(["true"], ExecutionPolicy.in_(tmp_path))
    return made


@pytest.fixture
async def confined(tmp_path: Path) -> Sandbox:
    """The machine's own sandbox, for what only a real one holds."""
    made = default_sandbox()
    await made.run(["true"], ExecutionPolicy.in_(tmp_path))
    return made


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The base directory, with something outside of it."""
    (tmp_path / "secret.txt").write_text("hush", encoding="utf-8")
    base = tmp_path / "base"
    base.mkdir()
    return base


@pytest.fixture
def marker(base: Path) -> str:
    """A long time to sleep that no other test sleeps, by which its processes are found."""
    return f"{FOREVER}.{base.stat().st_ino}"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Where somebody listens on this machine."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def run_with(capability: UseBash, *commands: str, **settings: Any) -> AgentState:
    calls = [call("bash", command=command) for command in commands]
    return await Agent(ScriptedModel([calls, "Done."]), capabilities=[capability], **settings).run(
        "Go"
    )


def executions(state: AgentState) -> tuple[ToolExecution, ...]:
    return state.steps[0].step.tool_executions


async def text_of(capability: UseBash, command: str) -> str:
    """What the model sees of a command."""
    state = await run_with(capability, command)
    assert state.status is AgentStatus.COMPLETED
    assert not state.had_errors
    return executions(state)[0].text


def running(marker: str) -> list[str]:
    """The command lines of living processes that contain this."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        if marker in line:
            found.append(line)
    return found


async def test_b250_pipes_variables_and_loops_work(sandbox: Sandbox, base: Path) -> None:
    command = 'word=well; for i in 1 2; do echo "$word $i"; done | tr w W | tail -n 1'

    assert await text_of(UseBash(base, sandbox=sandbox), command) == "Well 2"


async def test_b250_commands_work_in_the_base_directory(sandbox: Sandbox, base: Path) -> None:
    commands = ["echo hi > note.txt && cd / && ls note.txt", "cat note.txt", "pwd"]
    state = await run_with(UseBash(base, sandbox=sandbox), *commands)

    lost, read, place = executions(state)
    assert lost.outcome is ToolOutcome.FAILED
    assert (read.text, place.text) == ("hi", str(base))
    assert (base / "note.txt").read_text(encoding="utf-8") == "hi\n"


async def test_b244_output_errors_and_the_exit_code_are_shown(sandbox: Sandbox, base: Path) -> None:
    text = await text_of(UseBash(base, sandbox=sandbox), "echo out; echo err >&2; exit 3")

    assert text == "Error: exit code 3\nout\n\nstderr:\nerr"


async def test_b284_a_program_that_does_not_exist_is_told(sandbox: Sandbox, base: Path) -> None:
    text = await text_of(UseBash(base, sandbox=sandbox), "no-such-program")

    assert text.startswith("Error: exit code 127\n")
    assert "no-such-program" in text


async def test_a_command_gets_no_input(sandbox: Sandbox, base: Path) -> None:
    assert await text_of(UseBash(base, sandbox=sandbox), "cat; echo over") == "over"


async def test_b252_secrets_of_the_environment_are_not_visible(
    sandbox: Sandbox, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_CANARY", "canary-1")
    monkeypatch.setenv("OPENAI_API_KEY", "canary-2")
    execution = ExecutionPolicy.in_(base, environment={"GIVEN": "yes"})
    text = await text_of(UseBash(execution=execution, sandbox=sandbox), "env; echo $GIVEN $HOME")

    assert "GIVEN=yes" in text
    assert "canary" not in text


async def test_b251_nothing_outside_can_be_read_or_written(confined: Sandbox, base: Path) -> None:
    capability = UseBash(base, sandbox=confined)
    read = await text_of(capability, "cat ../secret.txt")
    await text_of(capability, "echo x > ../written.txt; echo x > ../secret.txt")

    assert read.startswith("Error: exit code")
    assert "hush" not in read
    assert not (base.parent / "written.txt").exists()
    assert (base.parent / "secret.txt").read_text(encoding="utf-8") == "hush"


async def test_b251_more_can_be_allowed(confined: Sandbox, base: Path) -> None:
    out = base.parent / "out"
    out.mkdir()
    secret = base.parent / "secret.txt"
    execution = ExecutionPolicy.in_(base, readable=[secret], writable=[out])
    capability = UseBash(execution=execution, sandbox=confined)
    read = await text_of(capability, f"cat {secret} | tee {out}/copy.txt")
    written = await text_of(capability, f"echo x > {secret}")

    assert read == "hush"
    assert (out / "copy.txt").read_text(encoding="utf-8") == "hush"
    assert written.startswith("Error: exit code")
    assert secret.read_text(encoding="utf-8") == "hush"


async def test_b251_the_network_is_off_by_default(confined: Sandbox, base: Path, port: int) -> None:
    command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
    text = await text_of(UseBash(base, sandbox=confined), command)

    assert text.startswith("Error: exit code")
    assert "\nconnected" not in text


async def test_b251_the_network_can_be_allowed(confined: Sandbox, base: Path, port: int) -> None:
    online = ExecutionPolicy.in_(base, network=True)
    command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"

    assert await text_of(UseBash(execution=online, sandbox=confined), command) == "connected"


async def test_b248_a_timeout_ends_all_and_shows_what_was_said(
    sandbox: Sandbox, base: Path, marker: str
) -> None:
    command = f"echo begun; setsid nohup sleep {marker} & sleep {marker}"
    text = ""
    for seconds in PATIENCE_SECONDS:
        execution = ExecutionPolicy.in_(base, timeout=seconds)
        text = await text_of(UseBash(execution=execution, sandbox=sandbox), command)
        assert f"timed out after {seconds:g} seconds" in text
        assert running(marker) == []
        if "begun" in text:
            break
    assert "\nbegun" in text


async def test_the_model_can_ask_for_less_time(sandbox: Sandbox, base: Path) -> None:
    asked = call("bash", command=f"sleep {FOREVER}", timeout=1)
    agent = Agent(ScriptedModel([asked, "Done."]), capabilities=[UseBash(base, sandbox=sandbox)])

    assert "timed out after 1 seconds" in executions(await agent.run("Go"))[0].text


async def test_a_command_that_falls_silent_is_ended(sandbox: Sandbox, base: Path) -> None:
    text = ""
    for seconds in PATIENCE_SECONDS:
        quiet = UseBash(execution=ExecutionPolicy.in_(base, idle_timeout=seconds), sandbox=sandbox)
        text = await text_of(quiet, f"echo begun; sleep {FOREVER}")
        assert f"after {seconds:g} seconds without output" in text
        if "begun" in text:
            break
    assert text.endswith("\nbegun")


async def test_a_cancellation_leaves_no_process(sandbox: Sandbox, base: Path, marker: str) -> None:
    cancellation = Cancellation()
    seen: list[str] = []

    def cancel(event: ToolCallProgressed) -> None:
        seen.extend(running(marker))
        cancellation.request("enough")

    command = f"echo begun; setsid nohup sleep {marker} & sleep {marker}"
    agent = Agent(
        ScriptedModel([call("bash", command=command)]),
        capabilities=[UseBash(base, sandbox=sandbox)],
    )
    agent.on_event(ToolCallProgressed, cancel)
    state = await agent.run("Go", cancellation=cancellation)

    assert state.status is AgentStatus.CANCELLED
    assert executions(state)[0].outcome is ToolOutcome.CANCELLED
    assert seen
    assert running(marker) == []


async def test_the_deadline_of_a_run_leaves_no_process(
    sandbox: Sandbox, base: Path, marker: str
) -> None:
    command = f"touch begun; setsid nohup sleep {marker} & sleep {marker}"
    for seconds in PATIENCE_SECONDS:
        state = await run_with(UseBash(base, sandbox=sandbox), command, timeout=seconds)
        assert state.stop is not None
        assert state.stop.stop_reason is StopReason.TIME_LIMIT
        assert running(marker) == []
        if (base / "begun").exists():
            assert executions(state)[0].outcome is ToolOutcome.CANCELLED
            break
    assert (base / "begun").exists()


async def test_a_command_that_begins_at_the_deadline_is_no_error(base: Path) -> None:
    agent = Agent(
        ScriptedModel([call("bash", command="make")]),
        capabilities=[UseBash(base, sandbox=FakeSandbox(["made"]))],
        timeout=0.1,
    )
    # Blocks the event loop until the deadline passed, between the last check and the command.
    agent.on_event(ToolCallStarted, lambda event: time.sleep(0.15))
    state = await agent.run("Go")

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert not state.had_errors


async def test_what_a_long_command_says_is_told_while_it_runs(sandbox: Sandbox, base: Path) -> None:
    recorder = EventRecorder()
    # It goes on only when somebody was told, however busy the machine is.
    command = "; ".join(
        f"{say}; until [ -e {word} ]; do sleep 0.01; done"
        for word, say in (("one", "echo one"), ("two", "echo two >&2"))
    )
    asked = call("bash", command=command, id="c1")
    capability = UseBash(execution=ExecutionPolicy.in_(base, timeout=20), sandbox=sandbox)
    agent = Agent(ScriptedModel([asked, "Done."]), capabilities=[capability])
    agent.wiretap(recorder)
    agent.on_event(ToolCallProgressed, lambda event: (base / event.message).touch())
    state = await agent.run("Go")

    assert not executions(state)[0].text.startswith("Error")  # it was not left waiting
    told = recorder.of(ToolCallProgressed)
    assert {event.call_id for event in told} == {"c1"}
    assert [event.message for event in told][:2] == ["one", "two"]


async def test_a_flood_is_told_in_few_and_small_events(sandbox: Sandbox, base: Path) -> None:
    recorder = EventRecorder()
    command = "for i in 1 2 3; do seq 1 20000; sleep 0.3; done"
    agent = Agent(
        ScriptedModel([call("bash", command=command), "Done."]),
        capabilities=[UseBash(base, sandbox=sandbox)],
    )
    agent.wiretap(recorder)
    await agent.run("Go")

    told = recorder.of(ToolCallProgressed)
    assert 1 <= len(told) <= 12
    assert max(len(event.message) for event in told) <= 2003


async def test_b245_a_long_output_is_sampled(sandbox: Sandbox, base: Path) -> None:
    policy = BashPolicy(max_output_chars=200, head_chars=20, tail_chars=100)
    text = await text_of(UseBash(base, policy=policy, sandbox=sandbox), "seq 1 20000")

    assert "\n1\n2\n3\n" in text
    assert "\n19999\n20000\n" in text
    assert "108893 characters were captured" in text
    assert len(text) < 500


async def test_b247_beyond_the_capture_cap_the_end_is_kept(sandbox: Sandbox, base: Path) -> None:
    execution = ExecutionPolicy.in_(base, max_output=1000)
    text = await text_of(UseBash(execution=execution, sandbox=sandbox), "seq 1 100000")

    assert "588895 bytes were written, and the cap is 1000 bytes" in text
    assert "\n99999\n100000\n" in text
    assert "\n1\n2\n" not in text
    assert len(text) < 1500


async def test_characters_of_several_bytes_survive_any_cut(sandbox: Sandbox, base: Path) -> None:
    execution = ExecutionPolicy.in_(base, max_output=1000)
    command = "for i in $(seq 5000); do printf 語; done"
    text = await text_of(UseBash(execution=execution, sandbox=sandbox), command)

    kept = text.split("\n")[1]
    assert set(kept) <= {"語", "\ufffd"}
    assert kept.count("語") >= 332


async def test_output_that_is_no_text_does_no_harm(sandbox: Sandbox, base: Path) -> None:
    text = await text_of(UseBash(base, sandbox=sandbox), r"printf 'a\xff\xfe\x00b\033[31mc'")

    assert text == "a\ufffd\ufffdbc"


async def test_two_agents_work_at_the_same_time(sandbox: Sandbox, base: Path) -> None:
    places = [base / "one", base / "two"]
    for place in places:
        place.mkdir()
    command = "pwd > here; for i in 1 2 3 4 5; do echo $i; sleep 0.05; done; cat here"
    states = await asyncio.gather(
        *(run_with(UseBash(place, sandbox=sandbox), command) for place in places)
    )

    for place, state in zip(places, states, strict=True):
        assert executions(state)[0].text == f"1\n2\n3\n4\n5\n{place}"


async def test_several_commands_at_once_are_all_run_by_sandlock(base: Path) -> None:
    sandbox = SandlockSandbox()
    if reason := sandbox.unavailable():
        pytest.skip(reason)
    capability = UseBash(base, sandbox=sandbox)
    texts = await asyncio.gather(*(text_of(capability, f"echo {number}") for number in range(6)))

    assert texts == [str(number) for number in range(6)]


class Pretender(UnconfinedSandbox):
    """Says that it confines, and does not."""

    confines = True
    name = "pretender"

    def unavailable(self) -> str | None:
        return None


async def test_b251_a_driver_that_does_not_confine_runs_nothing(base: Path) -> None:
    text = await text_of(UseBash(base, sandbox=Pretender()), "touch ran")

    assert text.startswith("Error: nothing was run: ")
    assert not (base / "ran").exists()


async def test_the_model_is_told_that_memory_ran_out(tmp_path: Path) -> None:
    execution = ExecutionPolicy.in_(tmp_path, max_memory=64 * 1024 * 1024)
    command = "head -c 300000000 /dev/zero | tail"
    model = ScriptedModel([call("bash", command=command), "Done."])
    state = await Agent(model, capabilities=[UseBash(execution=execution)]).run("Go")

    text = state.messages[2].text
    assert "memory" in text.lower()
    assert "It may use 64 MiB of memory." in model.requests[0].tools[0].description


async def test_the_model_is_told_that_memory_ran_out_within_a_pipeline(tmp_path: Path) -> None:
    if _parent("memory") is None:
        pytest.skip("no control groups can be made here")
    execution = ExecutionPolicy.in_(tmp_path, max_memory=64 * 1024 * 1024)
    text = await text_of(UseBash(execution=execution), "head -c 300000000 /dev/zero | tail | wc -c")

    assert text.startswith("Error: exit code 0; a process was killed for using more than 64 MiB")


@pytest.mark.parametrize("sandbox", [None, SandlockSandbox()], ids=["default", "sandlock"])
async def test_git_works_in_a_sandbox(tmp_path: Path, sandbox: Any) -> None:
    command = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    model = ScriptedModel([call("bash", command=f"{command} && git log --oneline"), "Done."])
    state = await Agent(model, capabilities=[UseBash(tmp_path, sandbox=sandbox)]).run("Go")

    assert state.messages[2].text.endswith(" x")
