"""Without confinement: what is held all the same."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox import Ending, ExecutionPolicy, SandboxResult
from stepwell.sandbox.cgroups import _parent
from stepwell.sandbox.private_folder import private_folder
from stepwell.sandbox.unconfined import UnconfinedSandbox
from tests.integration.sandbox.watching import Marker, private_folders, until

pytestmark = pytest.mark.usefixtures("nothing_left")


async def shell(text: str, place: Path, **limits: object) -> SandboxResult:
    policy = ExecutionPolicy.in_(place, **({"timeout": 60} | limits))  # type: ignore[arg-type]
    return await UnconfinedSandbox().run(["sh", "-c", text], policy)


async def test_only_the_given_environment_is_seen(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "secret")
    result = await shell("env", place, environment={"GIVEN": "this"})
    assert "GIVEN=this\n" in result.stdout
    assert "secret" not in result.stdout


async def test_b285_home_is_a_folder_of_its_own_that_is_removed(
    place: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("still here")
    text = (
        f"pwd; cd $HOME; [ $HOME = $TMPDIR ] && echo $HOME; ln -s {kept} link; ln -s {kept}/file f;"
        " mkdir -p closed/deep; echo x >closed/deep/file; chmod 000 closed/deep closed; chmod 500 ."
    )
    result = await shell(text, place)
    directory, home = result.stdout.splitlines()
    assert directory == str(place)
    assert private_folders() == []
    assert home.startswith(tempfile.gettempdir())
    assert (kept / "file").read_text() == "still here"


async def test_b285_the_private_folder_goes_also_when_nothing_could_be_started(place: Path) -> None:
    policy = ExecutionPolicy.in_(place)
    os.rmdir(place)
    with pytest.raises(SandboxError, match="can't be used"):
        await UnconfinedSandbox().run(["true"], policy)
    assert private_folders() == []


async def test_a_private_folder_goes_when_its_user_fails() -> None:
    async def fail() -> None:
        async with private_folder() as folder:
            assert private_folders() == [folder.name]
            assert oct(os.stat(folder).st_mode)[-3:] == "700"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert private_folders() == []


async def test_memory_is_limited(place: Path) -> None:
    policy = ExecutionPolicy.in_(place, max_memory=100_000_000)
    code = "data = bytearray(300_000_000); print('got it')"
    if not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("there is no /usr/bin/python3")
    result = await UnconfinedSandbox().run(["/usr/bin/python3", "-c", code], policy)
    assert (result.exit_code != 0, result.stdout) == (True, "")


async def test_a_fork_bomb_is_held_and_ended(place: Path, marker: Marker) -> None:
    if _parent("pids") is None:
        pytest.skip("no control groups can be made here")
    bomb = f"b() {{ b | b & }}; b; {marker.sleep}"
    result = await shell(bomb, place, max_processes=50, timeout=1)
    assert result.ending is Ending.TIMED_OUT or "fork" in result.stderr
    assert marker.alive() == []


async def test_many_generations_are_ended(place: Path, marker: Marker) -> None:
    text = f"""
for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'for i in 1 2 3; do setsid {marker.sleep} & done' &) done
sleep 0.5
"""
    await shell(text, place)
    assert marker.alive() == []


async def test_a_command_that_kills_its_supervisor_is_an_error(place: Path, marker: Marker) -> None:
    text = f"setsid {marker.sleep} & kill -9 $PPID; {marker.sleep}"
    with pytest.raises(SandboxError, match="not every process"):
        await shell(text, place)
    if _parent("pids") is None:  # without a control group the test has to end them
        await until(lambda: ended(marker))
    await until(lambda: not marker.alive())


def ended(marker: Marker) -> bool:
    """Whether nothing of it was left to kill; what was left may have started more."""
    left = False
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if marker.seconds.encode() in process.read_bytes():
                os.kill(int(process.parent.name), 9)
                left = True
    return not left
