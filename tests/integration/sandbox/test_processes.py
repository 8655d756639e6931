"""Commands as processes: what they say, how they end, and that nothing of them is left."""

import asyncio
import os
import resource
import signal
import sys
import threading
from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox import Channel, Ending, ExecutionPolicy, Sandbox, SandboxResult
from tests.integration.sandbox.watching import Marker, descriptors, until

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


async def test_a_missing_program_is_127_and_a_text(sandbox: Sandbox, place: Path) -> None:
    result = await sandbox.run(["no-such-program", "-x"], ExecutionPolicy.in_(place))
    assert result.exit_code == 127
    assert result.stderr == "no-such-program: No such file or directory\n"


async def test_what_can_not_be_run_is_126_and_a_text(sandbox: Sandbox, place: Path) -> None:
    (place / "data").write_text("no program")
    policy = ExecutionPolicy.in_(place)
    result = await sandbox.run(["./data"], policy)
    assert (result.exit_code, result.stderr) == (126, "./data: Permission denied\n")
    for odd in ("nul\0", "half \ud800"):
        result = await sandbox.run(["echo", odd], policy)
        assert result.exit_code == 126
        assert "holds a NUL or half of a character" in result.stderr
    assert (await sandbox.run(["echo", "x" * 3_000_000], policy)).exit_code == 126


async def test_no_command_is_an_error(sandbox: Sandbox, place: Path) -> None:
    with pytest.raises(SandboxError, match="no command"):
        await sandbox.run([], ExecutionPolicy.in_(place))


async def test_odd_arguments_arrive_as_they_are(sandbox: Sandbox, place: Path) -> None:
    odd = ["\1", "", "a b", "é€", "--", "-x", "line\nbreak", "$HOME", "\udcff"]
    result = await sandbox.run(["printf", "%s|", *odd], ExecutionPolicy.in_(place))
    assert result.stdout == "|".join(odd[:-1]) + "|�|"


async def test_death_by_a_signal_is_128_and_its_number(sandbox: Sandbox, place: Path) -> None:
    result = await shell(sandbox, "kill -TERM $$", place)
    assert (result.exit_code, result.ending) == (128 + signal.SIGTERM, Ending.EXITED)


async def test_a_character_in_two_reads_is_told_once(sandbox: Sandbox, place: Path) -> None:
    heard: list[str] = []
    result = await sandbox.run(
        ["sh", "-c", r"printf 'a\303'; sleep 0.2; printf '\251b'"],
        ExecutionPolicy.in_(place),
        on_output=lambda _, text: heard.append(text),
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
    result = await shell(sandbox, "echo begun; sleep 300", place, timeout=0.5)
    assert (result.ending, result.exit_code) == (Ending.TIMED_OUT, 137)
    assert result.stdout == "begun\n"
    assert 0.4 < result.duration_seconds < 10


async def test_a_command_that_never_stops_talking_is_out_of_time(
    sandbox: Sandbox, place: Path
) -> None:
    result = await shell(sandbox, "yes", place, timeout=0.5, idle_timeout=20, max_output=10)
    assert result.ending is Ending.TIMED_OUT


async def test_silence_ends_a_command_and_talking_does_not(sandbox: Sandbox, place: Path) -> None:
    result = await shell(sandbox, "echo begun; sleep 300", place, idle_timeout=0.5)
    assert (result.ending, result.exit_code, result.stdout) == (Ending.IDLE, 137, "begun\n")
    talk = "for i in 1 2 3 4 5; do sleep 0.3; echo $i >&2; done"
    result = await shell(sandbox, talk, place, idle_timeout=1.2)
    assert (result.ending, result.exit_code) == (Ending.EXITED, 0)


@pytest.mark.parametrize("how", LEFTOVERS)
@pytest.mark.parametrize("ending", ["exit", "timeout", "idle"])
async def test_nothing_lives_on(
    sandbox: Sandbox, place: Path, marker: Marker, how: str, ending: str
) -> None:
    (place / "daemon.py").write_text(DAEMON)
    leave = LEFTOVERS[how].format(sleep=marker.sleep, seconds=marker.seconds)
    rest = "sleep 0.1; echo left" if ending == "exit" else "echo left; sleep 300"
    limits = {"exit": {}, "timeout": {"timeout": 0.6}, "idle": {"idle_timeout": 0.5}}[ending]
    result = await shell(sandbox, f"{leave}\n{rest}", place, **limits)
    assert marker.alive() == []
    assert result.stdout == "left\n"
    assert result.duration_seconds < 10


@pytest.mark.parametrize("how", LEFTOVERS)
async def test_a_cancelled_command_leaves_nothing(
    sandbox: Sandbox, place: Path, marker: Marker, how: str
) -> None:
    (place / "daemon.py").write_text(DAEMON)
    leave = LEFTOVERS[how].format(sleep=marker.sleep, seconds=marker.seconds)
    run = asyncio.ensure_future(shell(sandbox, f"{leave}\nsleep 300", place))
    await until(marker.sleeping)
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
