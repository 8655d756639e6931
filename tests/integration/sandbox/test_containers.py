"""Containers: what docker and podman are told, with a program in their place that writes it down,
and real containers where a service answers.
"""

import asyncio
import json
import os
import stat
from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox.containers import ContainerProgram, ContainerSandbox
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandbox import Ending, SandboxResult
from tests.integration.sandbox.watching import Marker, patiently, until

# Mimics the program: notes each command line, runs the command on the host, and keeps a file for
# each container that lives, so that one that nobody ends can be seen.
STAND_IN = """#!/usr/bin/python3
import json, os, subprocess, sys
state = {state!r}
words = sys.argv[1:]
with open(f"{{state}}/calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
def option(name):
    return words[words.index(name) + 1]
order = words[0]
if order == "info":
    print({info!r}, end="")
    sys.exit({info_code})
container = f"{{state}}/container-{{words[-1]}}"
if order in ("kill", "rm"):
    if not os.path.exists(container):
        sys.exit("Error response from daemon: No such container: " + words[-1])
    pid = int(open(container).read() or 0)
    if order == "kill":
        os.killpg(pid, 9)
    else:
        os.unlink(container)
    sys.exit(0)
if {failure!r}:
    sys.stderr.write({failure!r})
    sys.exit(125)
at = words.index({image!r})
open(option("--cidfile"), "w").write("an id")
variables = dict(line.split("=", 1) for line in open(option("--env-file")).read().splitlines())
os.rename(option("--env-file"), f"{{state}}/variables")
container = f"{{state}}/container-{{option('--name')}}"
def note_container():
    with open(f"{{state}}/unfinished", "w") as note:
        note.write(str(os.getpid()))
    os.rename(note.name, container)
# Like a service's, its session is not that of the program. The container is noted in whole before
# its command runs, so that neither can be ended without the other.
try:
    command = subprocess.Popen(words[at + 1:], env=variables, cwd=option("--workdir"),
                               start_new_session=True, preexec_fn=note_container)
except FileNotFoundError:
    os.unlink(container)
    sys.stderr.write("[FATAL tini (7)] exec " + words[at + 1] + " failed: No such file\\n")
    sys.exit(127)
code = command.wait()
os.unlink(container)
sys.exit(code)
"""
IMAGE = "some/image:1"


class StandIn:
    """A container program that is not one, and what it was told."""

    def __init__(self, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        self._program = folder / name
        self.program: ContainerProgram = "podman" if name == "podman" else "docker"
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        self.write()

    def write(self, *, info: str = "", info_code: int = 0, failure: str = "") -> None:
        text = STAND_IN.format(
            state=str(self.state), info=info, info_code=info_code, failure=failure, image=IMAGE
        )
        self._program.write_text(text)
        self._program.chmod(0o755)

    def sandbox(self) -> ContainerSandbox:
        return ContainerSandbox(self.program, image=IMAGE)

    @property
    def calls(self) -> list[list[str]]:
        path = self.state / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def run_call(self) -> list[str]:
        (call,) = [call for call in self.calls if call[0] == "run"]
        return call

    @property
    def living(self) -> list[str]:
        return [path.name for path in self.state.glob("container-*")]


@pytest.fixture(params=["docker", "podman"])
def stand_in(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StandIn:
    folder = tmp_path / "bin"
    folder.mkdir()
    return StandIn(folder, request.param, monkeypatch)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


def exists(path: str) -> bool:
    return os.path.exists(path)


def options(call: list[str]) -> str:
    return " ".join(call[: call.index(IMAGE)]) + " "


async def test_a_command_runs_in_a_container_of_its_own(stand_in: StandIn, work: Path) -> None:
    sandbox = stand_in.sandbox()
    policy = ExecutionPolicy.in_(work)
    result = await sandbox.run(["sh", "-c", "cat; echo bad >&2; exit 3"], policy, stdin=b"given")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "given", "bad\n")
    await sandbox.run(["true"], policy)
    names = [call[call.index("--name") + 1] for call in stand_in.calls if call[0] == "run"]
    assert len(set(names)) == 2
    assert stand_in.living == []


async def test_b286_every_part_of_the_policy_is_told(
    stand_in: StandIn, work: Path, tmp_path: Path
) -> None:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    policy = ExecutionPolicy.in_(
        work,
        max_memory=50_000_000,
        max_processes=7,
        readable=[tmp_path / "read"],
        writable=[tmp_path / "write"],
    )
    await stand_in.sandbox().run(["true", "--rm"], policy)
    told = options(stand_in.run_call)
    for part in (
        *(
            "--rm ",
            "--init ",
            "--read-only ",
            "--cap-drop ALL ",
            "--network none ",
            "--pull never ",
        ),
        *("--security-opt no-new-privileges ", "--memory 50000000 ", "--memory-swap 50000000 "),
        *("--pids-limit 8 ", f"--user {os.getuid()}:{os.getgid()} ", "--tmpfs /tmp:"),
        f"--workdir {work} ",
        f"--mount type=bind,source={work},target={work} ",
        f"--mount type=bind,source={tmp_path}/write,target={tmp_path}/write ",
        f"--mount type=bind,source={tmp_path}/read,target={tmp_path}/read,readonly ",
    ):
        assert part in told
    assert stand_in.run_call[-2:] == ["true", "--rm"]


async def test_what_the_policy_leaves_open_is_not_told(stand_in: StandIn, work: Path) -> None:
    policy = ExecutionPolicy.in_(work, network=True, max_memory=None, max_processes=None)
    await stand_in.sandbox().run(["true"], policy)
    told = options(stand_in.run_call)
    for part in ("--network", "--memory", "--pids-limit", "--interactive", "--privileged"):
        assert part not in told


async def test_variables_are_in_no_command_line_and_nothing_else_is_passed_on(
    stand_in: StandIn, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "sekret")
    policy = ExecutionPolicy.in_(work, environment={"TOKEN": "hush = hush"})
    result = await stand_in.sandbox().run(["env"], policy)
    assert "TOKEN=hush = hush\n" in result.stdout
    assert "sekret" not in result.stdout
    assert "hush" not in json.dumps(stand_in.calls)
    mode = (stand_in.state / "variables").stat().st_mode
    assert stat.S_ISREG(mode)


async def test_b284_a_missing_program_is_127_and_a_text(stand_in: StandIn, work: Path) -> None:
    result = await stand_in.sandbox().run(["no-such-program"], ExecutionPolicy.in_(work))
    assert result.exit_code == 127
    assert "no-such-program" in result.stderr


@pytest.mark.parametrize("failure", ["", "docker: Error response from daemon: mounts denied.\n"])
async def test_b285_the_files_that_tell_variables_are_gone_afterwards(
    stand_in: StandIn, work: Path, failure: str
) -> None:
    stand_in.write(failure=failure)
    with pytest.raises(SandboxError) if failure else nullcontext():
        await stand_in.sandbox().run(["true"], ExecutionPolicy.in_(work))
    call = stand_in.run_call
    assert not exists(os.path.dirname(call[call.index("--env-file") + 1]))


@pytest.mark.parametrize("end", ["timeout", "cancel"])
async def test_a_container_is_ended_with_its_run(
    stand_in: StandIn, work: Path, marker: Marker, end: str
) -> None:
    def run(seconds: float) -> Coroutine[Any, Any, SandboxResult]:
        command = ["sh", "-c", f"echo begun; {marker.sleep}; true"]
        return stand_in.sandbox().run(command, ExecutionPolicy.in_(work, timeout=seconds))

    if end == "cancel":
        running = asyncio.create_task(run(60))
        await until(lambda: len(stand_in.living) == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        result = await patiently(run, "begun")
        assert (result.ending, result.stdout) == (Ending.TIMED_OUT, "begun\n")
    run_call, *ends = stand_in.calls[-3:]
    assert run_call[0] == "run"
    name = run_call[run_call.index("--name") + 1]
    assert ends == [["kill", name], ["rm", "--force", name]]
    assert stand_in.living == []
    # It was killed, and is gone as soon as the machine finds the time.
    await until(lambda: not marker.alive())


async def test_a_command_may_exit_as_the_program_does(stand_in: StandIn, work: Path) -> None:
    result = await stand_in.sandbox().run(["sh", "-c", "exit 125"], ExecutionPolicy.in_(work))
    assert result.exit_code == 125


async def test_a_container_that_could_not_be_made_is_an_error(
    stand_in: StandIn, work: Path
) -> None:
    stand_in.write(failure="docker: Error response from daemon: mounts denied.\n")
    with pytest.raises(SandboxError, match=r"can't run the command.*mounts denied"):
        await stand_in.sandbox().run(["true"], ExecutionPolicy.in_(work))


async def test_a_missing_image_is_an_error_that_says_how_to_get_it(
    stand_in: StandIn, work: Path
) -> None:
    stand_in.write(failure="docker: Error response from daemon: No such image: some/image:1\n")
    with pytest.raises(SandboxError, match=f"{stand_in.program} pull {IMAGE}"):
        await stand_in.sandbox().run(["true"], ExecutionPolicy.in_(work))


async def test_a_service_of_a_normal_user_gets_the_right_user(
    stand_in: StandIn, work: Path
) -> None:
    stand_in.write(
        info="rootless=true" if stand_in.program == "podman" else "[name=seccomp name=rootless]"
    )
    await stand_in.sandbox().run(["true"], ExecutionPolicy.in_(work))
    told = options(stand_in.run_call)
    if stand_in.program == "podman":
        assert "--userns keep-id " in told
    else:
        assert "--user 0:0 " in told


async def test_a_service_that_does_not_answer_is_the_reason(stand_in: StandIn, work: Path) -> None:
    stand_in.write(info_code=1)
    reason = stand_in.sandbox().unavailable()
    assert reason is not None
    assert reason.startswith(f"{stand_in.program} info fails")
    assert "start its service" in reason
    with pytest.raises(SandboxError, match="info fails"):
        await stand_in.sandbox().run(["true"], ExecutionPolicy.in_(work))
    assert {call[0] for call in stand_in.calls} == {"info"}


def test_a_service_that_answers_is_no_reason(stand_in: StandIn) -> None:
    assert stand_in.sandbox().unavailable() is None


def test_a_missing_program_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no program podman" in str(ContainerSandbox("podman").unavailable())


async def test_a_variable_of_several_lines_is_refused(stand_in: StandIn, work: Path) -> None:
    policy = ExecutionPolicy.in_(work, environment={"KEY": "a\nb"})
    with pytest.raises(SandboxError, match="KEY, because its value has several lines"):
        await stand_in.sandbox().run(["true"], policy)
    assert [call for call in stand_in.calls if call[0] == "run"] == []


async def test_paths_that_no_container_takes_are_refused(
    stand_in: StandIn, work: Path, tmp_path: Path
) -> None:
    comma = tmp_path / "a,readonly=false"
    comma.mkdir()
    for policy, words in (
        (ExecutionPolicy.in_(work, readable=[comma]), "comma or quote"),
        (ExecutionPolicy.in_(work, max_memory=1_000_000), "max_memory to be at least"),
    ):
        with pytest.raises(SandboxError, match=words):
            await stand_in.sandbox().run(["true"], policy)
    assert stand_in.calls == []


@pytest.mark.parametrize("program", ["docker", "podman"])
async def test_a_real_container_confines(program: ContainerProgram, work: Path) -> None:
    sandbox = ContainerSandbox(program)
    reason = await asyncio.to_thread(sandbox.unavailable)
    if reason is not None:
        pytest.skip(reason)
    script = "id -u; echo x > inside; echo y > /usr/outside; cat /proc/net/dev; no-such-program"
    try:
        result = await sandbox.run(["sh", "-c", script], ExecutionPolicy.in_(work))
    except SandboxError as error:
        if "is not there" in str(error):
            pytest.skip(str(error))
        raise
    assert result.exit_code == 127
    assert (work / "inside").read_text() == "x\n"
    assert "eth0" not in result.stdout
