"""Commands as processes: what they say, how they end, and that nothing of them is left."""

import asyncio
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox import Channel, Ending, ExecutionPolicy, Sandbox, SandboxResult
from tests.integration.sandbox.watching import (
    Marker,
    descriptors,
    highest_descriptor,
    patiently,
    private_folders,
    until,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in range(3):
            os.close(descriptor)
        os.execvp("sleep", ["sleep", sys.argv[1]])
    os._exit(0)
os.wait()
"""

LEFTOVERS = {
    "in the background": "{sleep} &",
    "in its own session": "setsid {sleep} &",
    "deaf to hangups": "nohup {sleep} >/dev/null 2>&1 &",
    "detached twice": "(setsid sh -c '{sleep} & {sleep}; true' >/dev/null 2>&1 </dev/null &)",
    "deaf to signals": "(trap '' TERM HUP INT; {sleep}; true) &",
    "a daemon": "/usr/bin/python3 daemon.py {seconds}",
}


async def shell(
    sandbox: Sandbox, text: str, place: Path, *, stdin: bytes = b"", **limits: object
) -> SandboxResult:
    policy = ExecutionPolicy.in_(place, **({"timeout": 60} | limits))  # type: ignore[arg-type]
    return await sandbox.run(["sh", "-c", text], policy, stdin=stdin)


async def test_both_outputs_the_exit_code_and_the_streams_are_told(
    sandbox: Sandbox, place: Path
) -> None:
    heard: list[tuple[Channel, str]] = []
    result = await sandbox.run(
        ["sh", "-c", "echo out; echo err >&2; exit 7"],
        ExecutionPolicy.in_(place),
        on_output=lambda channel, text: heard.append((channel, text)),
    )
    assert (result.exit_code, result.ending) == (7, Ending.EXITED)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert (result.stdout_bytes, result.stderr_bytes) == (4, 4)
    assert sorted(heard) == [(Channel.STDERR, "err\n"), (Channel.STDOUT, "out\n")]
    assert 0 < result.duration_seconds < 60


async def test_commands_work_in_the_directory(sandbox: Sandbox, place: Path) -> None:
    result = await shell(sandbox, "pwd; echo made >file", place)
    assert result.stdout == f"{place}\n"
    assert (place / "file").read_text() == "made\n"


async def test_the_input_is_given_whole_and_ends(sandbox: Sandbox, place: Path) -> None:
    result = await shell(sandbox, "wc -c", place, stdin=b"x" * 3_000_000)
    assert result.stdout.strip() == "3000000"
    assert (await shell(sandbox, "cat", place)).stdout == ""


async def test_input_that_nobody_reads_is_no_failure(sandbox: Sandbox, place: Path) -> None:
    result = await shell(sandbox, "exec <&-; echo done", place, stdin=b"x" * 3_000_000)
    assert (result.exit_code, result.stdout) == (0, "done\n")


async def test_b284_a_missing_program_is_127_and_a_text(sandbox: Sandbox, place: Path) -> None:
    result = await sandbox.run(["no-such-program", "-x"], ExecutionPolicy.in_(place))
    assert result.exit_code == 127
    if sandbox.name == "sandlock":
        assert "'no-such-program': No such file or directory" in result.stderr
    else:
        assert result.stderr == "no-such-program: No such file or directory\n"
    assert (await sandbox.run([""], ExecutionPolicy.in_(place))).exit_code == 127


async def test_b285_what_can_not_be_run_is_126_and_a_text(sandbox: Sandbox, place: Path) -> None:
    """B285: what can't be launched leaves no folder either."""
    (place / "data").write_text("no program")
    policy = ExecutionPolicy.in_(place)
    result = await sandbox.run(["./data"], policy)
    if sandbox.name == "sandlock":
        assert (result.exit_code, "Permission denied" in result.stderr) == (127, True)
    else:
        assert (result.exit_code, result.stderr) == (126, "./data: Permission denied\n")
    for odd in ("nul\0", "half \ud800"):
        result = await sandbox.run(["echo", odd], policy)
        assert result.exit_code == 126
        assert "contains a NUL or half of a character" in result.stderr
    assert (await sandbox.run(["echo", "x" * 3_000_000], policy)).exit_code == 126
    assert private_folders() == []


async def test_no_command_is_an_error(sandbox: Sandbox, place: Path) -> None:
    with pytest.raises(SandboxError, match="command is empty"):
        await sandbox.run([], ExecutionPolicy.in_(place))


async def test_odd_arguments_arrive_as_they_are(sandbox: Sandbox, place: Path) -> None:
    odd = ["\1", "", "a b", "é€", "--", "-x", "line\nbreak", "$HOME"]
    policy = ExecutionPolicy.in_(place)
    result = await sandbox.run(["printf", "%s|", *odd], policy)
    assert result.stdout == "|".join(odd) + "|"
    if sandbox.name == "sandlock":
        with pytest.raises(SandboxError, match="UTF-8"):
            await sandbox.run(["echo", "\udcff"], policy)
    else:
        assert (await sandbox.run(["echo", "\udcff"], policy)).stdout == "�\n"


async def test_death_by_a_signal_is_128_and_its_number(sandbox: Sandbox, place: Path) -> None:
    result = await shell(sandbox, "kill -TERM $$", place)
    assert (result.exit_code, result.ending) == (128 + signal.SIGTERM, Ending.EXITED)


async def test_a_character_in_two_reads_is_told_once(sandbox: Sandbox, place: Path) -> None:
    heard: list[str] = []

    def hear(channel: Channel, text: str) -> None:
        heard.append(text)
        (place / "heard").touch()

    result = await sandbox.run(
        ["sh", "-c", r"printf 'a\303'; until [ -e heard ]; do sleep 0.01; done; printf '\251b'"],
        ExecutionPolicy.in_(place, timeout=20),
        on_output=hear,
    )
    assert heard == ["a", "éb"]
    assert result.stdout == "aéb"


async def test_of_a_flood_the_end_is_kept_and_memory_stays_small(
    sandbox: Sandbox, place: Path
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await shell(sandbox, "yes | head -c 300000000; echo end", place, max_output=1000)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.stdout_bytes == 300_000_004
    assert result.stdout == ("y\n" * 498) + "end\n"
    assert grown < 20_000


async def test_out_of_time_is_told_with_what_was_said(sandbox: Sandbox, place: Path) -> None:
    result = await patiently(
        lambda seconds: shell(sandbox, "echo begun; sleep 300", place, timeout=seconds), "begun"
    )
    assert (result.ending, result.exit_code) == (Ending.TIMED_OUT, 137)
    assert result.stdout == "begun\n"
    assert 0.3 < result.duration_seconds < 90


@pytest.mark.parametrize("seconds", [1e-9, 0.005, 0.012, 0.02])
async def test_a_command_may_be_out_of_time_before_it_began(
    sandbox: Sandbox, place: Path, marker: Marker, seconds: float
) -> None:
    result = await shell(sandbox, marker.sleep, place, timeout=seconds)
    assert (result.ending, result.exit_code) == (Ending.TIMED_OUT, 137)
    assert marker.alive() == []


async def test_a_command_that_never_stops_talking_is_out_of_time(
    sandbox: Sandbox, place: Path
) -> None:
    result = await shell(sandbox, "yes", place, timeout=0.5, idle_timeout=20, max_output=10)
    assert result.ending is Ending.TIMED_OUT


async def test_silence_ends_a_command_and_talking_does_not(sandbox: Sandbox, place: Path) -> None:
    result = await patiently(
        lambda seconds: shell(sandbox, "echo begun; sleep 300", place, idle_timeout=seconds),
        "begun",
    )
    assert (result.ending, result.exit_code, result.stdout) == (Ending.IDLE, 137, "begun\n")
    for seconds in (1, 3, 10, 40):  # a busy machine may need the longer ones
        talk = f"for i in 1 2 3 4; do sleep {0.3 * seconds}; echo $i >&2; done"
        result = await shell(sandbox, talk, place, idle_timeout=seconds)
        if result.ending is Ending.EXITED:
            break
    assert (result.ending, result.exit_code) == (Ending.EXITED, 0)


def leaving(place: Path, marker: Marker) -> str:
    """A script that leaves something behind in every way; each sleeps a bit longer."""
    (place / "daemon.py").write_text(DAEMON)
    seconds = [f"{marker.seconds}{number}" for number in range(len(LEFTOVERS))]
    ways = zip(LEFTOVERS.values(), seconds, strict=True)
    return "\n".join(way.format(sleep=f"sleep {it}", seconds=it) for way, it in ways)


@pytest.mark.parametrize("ending", ["exit", "timeout", "idle_timeout"])
async def test_nothing_lives_on(sandbox: Sandbox, place: Path, marker: Marker, ending: str) -> None:
    rest = "sleep 0.2; echo left" if ending == "exit" else "echo left; sleep 300"

    def run(seconds: float) -> Awaitable[SandboxResult]:
        limits = {} if ending == "exit" else {ending: seconds}
        return shell(sandbox, f"{leaving(place, marker)}\n{rest}", place, **limits)

    result = await patiently(run, "left")
    assert marker.alive() == []
    assert result.stdout == "left\n"
    assert result.duration_seconds < 90


async def test_a_cancelled_command_leaves_nothing(
    sandbox: Sandbox, place: Path, marker: Marker
) -> None:
    run = asyncio.ensure_future(shell(sandbox, f"{leaving(place, marker)}\nsleep 300", place))
    await until(lambda: len({line.split()[1] for line in marker.sleeping()}) == len(LEFTOVERS))
    run.cancel()
    await asyncio.sleep(0)
    run.cancel()  # being told again does not make it careless
    with pytest.raises(asyncio.CancelledError):
        await run
    assert marker.alive() == []


async def test_a_command_can_be_cancelled_at_any_moment(
    sandbox: Sandbox, place: Path, marker: Marker
) -> None:
    open_before = descriptors()
    for moment in range(20):
        run = asyncio.ensure_future(
            shell(sandbox, f"setsid {marker.sleep} & {marker.sleep}", place)
        )
        await asyncio.sleep(moment * 0.003)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert marker.alive() == []
    assert descriptors() == open_before


async def test_what_a_listener_raises_ends_the_command_and_passes_on(
    sandbox: Sandbox, place: Path, marker: Marker
) -> None:
    def fail(channel: Channel, text: str) -> None:
        raise ZeroDivisionError(text)

    with pytest.raises(ZeroDivisionError, match="first"):
        await sandbox.run(
            ["sh", "-c", f"setsid {marker.sleep} & echo first; {marker.sleep}"],
            ExecutionPolicy.in_(place),
            on_output=fail,
        )
    assert marker.alive() == []


async def test_a_directory_that_is_gone_is_named(sandbox: Sandbox, place: Path) -> None:
    policy = ExecutionPolicy.in_(place)
    os.rmdir(place)
    with pytest.raises(SandboxError, match=str(place)):
        await sandbox.run(["true"], policy)


async def test_a_directory_that_became_a_link_is_refused(
    sandbox: Sandbox, place: Path, tmp_path: Path
) -> None:
    if sandbox.name == "unconfined":
        pytest.skip("nothing is confined")
    inner = place / "inner"
    inner.mkdir()
    policies = [ExecutionPolicy.in_(inner), ExecutionPolicy.in_(tmp_path, readable=[inner])]
    inner.rmdir()
    inner.symlink_to(tmp_path)
    for policy in policies:
        with pytest.raises(SandboxError, match="made a link since then"):
            await sandbox.run(["touch", "new"], policy)
    assert not (tmp_path / "new").exists()


async def test_a_variable_that_can_not_be_passed_on_leaves_nothing(
    sandbox: Sandbox, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", "\udcff")
    policy = ExecutionPolicy.in_(place, inherited_environment=["ODD"])
    with pytest.raises(SandboxError, match="ODD is not UTF-8"):
        await sandbox.run(["true"], policy)


async def test_many_at_once_each_get_their_own(sandbox: Sandbox, place: Path) -> None:
    await shell(sandbox, "true", place)
    open_before = descriptors()
    results = await asyncio.gather(
        *(shell(sandbox, f"echo {n}; cat; exit {n}", place, stdin=b"%d" % n) for n in range(50))
    )
    assert [(r.stdout, r.exit_code) for r in results] == [(f"{n}\n{n}", n) for n in range(50)]
    assert descriptors() == open_before


def test_it_works_in_the_loop_of_any_thread(sandbox: Sandbox, place: Path) -> None:
    results: list[SandboxResult] = []

    def work() -> None:
        results.append(asyncio.run(shell(sandbox, "sleep 0.1; echo done", place)))

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.stdout for result in results] == ["done\n"] * 5


@pytest.mark.parametrize("after", [0, 0.004, 0.02, 0.2])
def test_a_loop_that_closes_ends_its_commands(
    sandbox: Sandbox, place: Path, marker: Marker, after: float
) -> None:
    async def left_running() -> None:
        # Nobody waits for it: the loop cancels it, and every other task, when it closes.
        text = f"setsid {marker.sleep} & {marker.sleep}"
        run = asyncio.ensure_future(shell(sandbox, text, place))
        await asyncio.sleep(after)
        assert not run.done()

    open_before = descriptors()
    asyncio.run(left_running())
    assert marker.alive() == []
    assert descriptors() == open_before


@pytest.mark.alone
async def test_very_deep_folders_are_removed_too(sandbox: Sandbox, place: Path) -> None:
    dig = "import os\nos.chdir(os.environ['TMPDIR'])\n"
    dig += "for _ in range(1800): os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)"
    result = await sandbox.run(["python3", "-c", dig], ExecutionPolicy.in_(place))
    assert (result.exit_code, result.stderr) == (0, "")
    assert private_folders() == []


async def test_without_descriptors_it_refuses_and_leaves_nothing(
    sandbox: Sandbox, place: Path
) -> None:
    await shell(sandbox, "true", place)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(24):
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest_descriptor() + spare, limits[1]))
        try:
            with suppress(SandboxError):
                await shell(sandbox, "true", place)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (await shell(sandbox, "echo works", place)).stdout == "works\n"


async def test_runs_leave_no_memory_and_no_descriptors(sandbox: Sandbox, place: Path) -> None:
    await shell(sandbox, "true", place)
    open_before, tasks_before = descriptors(), len(asyncio.all_tasks())
    gc.collect()
    objects_before = len(gc.get_objects())
    for _ in range(25):
        await shell(sandbox, "echo said", place, stdin=b"x")
    gc.collect()
    assert len(gc.get_objects()) - objects_before < 250
    assert (descriptors(), len(asyncio.all_tasks())) == (open_before, tasks_before)


async def test_a_command_dies_with_the_process_that_asked_for_it(
    sandbox: Sandbox, place: Path, marker: Marker
) -> None:
    script = f"""
import asyncio
from stepwell.sandbox import ExecutionPolicy
from {type(sandbox).__module__} import {type(sandbox).__name__} as Sandbox
asyncio.run(Sandbox().run(
    ["sh", "-c", "setsid {marker.sleep} & {marker.sleep}"], ExecutionPolicy.in_({str(place)!r})
))
"""
    (place / "host.py").write_text(script)
    host = await asyncio.create_subprocess_exec(
        sys.executable, str(place / "host.py"), env={"TMPDIR": str(place)}
    )
    await until(lambda: len(marker.sleeping()) == 2)
    host.kill()
    await host.wait()
    await until(lambda: not marker.alive())
