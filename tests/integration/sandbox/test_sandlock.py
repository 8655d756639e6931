"""Sandlock on this machine: what a policy gives, what it keeps away, and how runs end."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandlock import SandlockSandbox
from tests.integration.sandbox.watching import Marker, own_groups, until

REASON = SandlockSandbox().unavailable()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


async def bash(script: str, policy: ExecutionPolicy, stdin: bytes = b""):
    return await SandlockSandbox().run(["bash", "-c", script], policy, stdin=stdin)


def exists(path: str) -> bool:
    return os.path.exists(path)


def alive(marker: str) -> list[str]:
    listing = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, check=True)
    return [line for line in listing.stdout.decode().splitlines() if marker in line]


async def test_it_works_in_the_directory_and_only_writes_there(work: Path, tmp_path: Path) -> None:
    result = await bash(f"pwd; echo a > inside; echo b > {tmp_path}/outside", policy_of(work))
    assert result.stdout == f"{work}\n"
    assert (work / "inside").read_text() == "a\n"
    assert not (tmp_path / "outside").exists()
    assert result.exit_code != 0


def policy_of(work: Path) -> ExecutionPolicy:
    return ExecutionPolicy.in_(work, timeout=20)


async def test_b286_readable_paths_can_be_read_and_not_written(work: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "note").write_text("hello")
    policy = ExecutionPolicy.in_(work, readable=[shared])
    result = await bash(f"cat {shared}/note; echo x > {shared}/note || touch {shared}/new", policy)
    assert result.stdout == "hello"
    assert (shared / "note").read_text() == "hello"
    assert not (shared / "new").exists()


async def test_writable_paths_can_be_written(work: Path, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    await bash(f"echo x > {extra}/new", ExecutionPolicy.in_(work, writable=[extra]))
    assert (extra / "new").read_text() == "x\n"


async def test_modes_owners_times_and_attributes_can_be_changed_inside(work: Path) -> None:
    script = (
        "touch -d 2001-02-03T00:00:00Z f && chmod 750 f && chown $(id -u):$(id -g) f && mkdir d"
        " && chmod g+w d && ln -s f l && chown -h $(id -u) l && cp -p f g && tar cf t f d"
        " && mkdir x && tar xpf t -C x && python3 -c \"import os; os.setxattr('f', 'user.a', b'1');"
        " os.removexattr('f', 'user.a'); fd = os.open('f', 0); os.fchmod(fd, 0o700);"
        ' os.utime(fd, (5, 5))"'
    )
    result = await bash(script, policy_of(work))
    assert (result.exit_code, result.stderr) == (0, "")
    assert (work / "g").stat().st_mtime == 981_158_400
    assert (work / "x" / "f").stat().st_mode & 0o777 == 0o750
    assert (work / "f").stat().st_mode & 0o777 == 0o700
    assert (work / "f").stat().st_mtime == 5


async def test_modes_outside_stay_as_they_are(work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o640)
    before = outside.stat()
    script = (
        f"ln -s {outside} link; chmod 777 {outside}; chmod 777 link; chmod 777 ../outside;"
        f" touch -d 2001-02-03 {outside}; touch -hd 2001-02-03 ../outside; chown 12 {outside}"
    )
    result = await bash(script, policy_of(work))
    assert result.exit_code != 0
    assert outside.stat() == before


async def test_b285_temporary_files_go_to_a_directory_that_is_gone_afterwards(work: Path) -> None:
    kept = work / "kept"
    kept.mkdir()
    (kept / "file").write_text("still here")
    locked = (
        f"cd $TMPDIR; mkdir -p a/b; ln -s {kept} a/link; ln -s {kept} link; touch a/b/f; chmod 0 a"
    )
    result = await bash(f"mktemp; {locked}; echo $TMPDIR; echo $HOME", policy_of(work))
    made, temporary, home = result.stdout.splitlines()
    assert (Path(made).parent, home) == (Path(temporary), temporary)
    assert not exists(temporary)
    assert (kept / "file").read_text() == "still here"


async def test_only_the_policys_variables_are_seen(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "sekret")
    monkeypatch.setenv("PASSED_ON", "yes")
    policy = ExecutionPolicy.in_(
        work, environment={"OWN": "a\nb"}, inherited_environment=["PASSED_ON"]
    )
    result = await SandlockSandbox().run(["env", "-0"], policy)
    seen = dict(item.split("=", 1) for item in result.stdout.split("\0") if item)
    assert (seen["OWN"], seen["PASSED_ON"]) == ("a\nb", "yes")
    assert "sekret" not in result.stdout
    assert not [name for name in seen if name.startswith("STEPWELL")]


async def test_values_of_variables_are_in_no_command_line(work: Path, marker: Marker) -> None:
    policy = ExecutionPolicy.in_(work, environment={"TOKEN": "hush-hush"})
    running = asyncio.ensure_future(bash(marker.sleep, policy))
    await until(marker.sleeping)
    assert not alive("hush-hush")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_variable_for_the_linker_does_not_reach_what_is_not_confined(work: Path) -> None:
    policy = ExecutionPolicy.in_(work, environment={"LD_PRELOAD": "/no/such/library.so"})
    result = await bash("echo ran", policy)
    # The confined bash complains; none of the three processes around it does.
    assert result.stdout == "ran\n"
    assert result.stderr.count("/no/such/library.so") == 1


async def test_the_network_is_off_unless_the_policy_turns_it_on(work: Path) -> None:
    received: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(5))
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && printf hello >&3"
    async with server:
        off = await bash(script, ExecutionPolicy.in_(work))
        assert (off.exit_code != 0, received) == (True, [])
        on = await bash(script, ExecutionPolicy.in_(work, network=True))
        assert on.exit_code == 0
        await asyncio.sleep(0.05)
    assert received == [b"hello"]


async def test_with_the_network_on_a_command_can_listen_and_send_datagrams(work: Path) -> None:
    script = (
        "import socket; a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen();"
        "b = socket.create_connection(a.getsockname()); c = a.accept()[0]; b.sendall(b'x');"
        "u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0));"
        "v = socket.socket(type=socket.SOCK_DGRAM); v.sendto(b'y', u.getsockname());"
        "print(c.recv(1), u.recv(1))"
    )
    policy = ExecutionPolicy.in_(work, network=True, timeout=20)
    result = await SandlockSandbox().run(["python3", "-c", script], policy)
    assert (result.stdout, result.stderr) == ("b'x' b'y'\n", "")


async def test_more_processes_than_allowed_do_not_start(work: Path) -> None:
    script = (
        "import os, time\nn = 1\ntry:\n while n < 60:\n  if os.fork() == 0: time.sleep(5)\n"
        "  n += 1\nexcept OSError: pass\nprint(n)"
    )
    policy = ExecutionPolicy.in_(work, max_processes=12, timeout=20)
    result = await SandlockSandbox().run(["python3", "-c", script], policy)
    assert result.stdout == "12\n"


async def test_one_process_that_wants_too_much_memory_gets_an_error(work: Path) -> None:
    policy = ExecutionPolicy.in_(work, max_memory=200_000_000, timeout=20)
    result = await SandlockSandbox().run(["python3", "-c", "bytearray(400_000_000)"], policy)
    assert result.exit_code == 1
    assert "MemoryError" in result.stderr


@pytest.fixture(params=["own", "copied", "shared"])
def hungry(request: pytest.FixtureRequest) -> str:
    """Six processes that want 80 MiB each."""
    kind = request.param
    first = {"own": "", "copied": "b = bytearray(80 << 20)", "shared": "import mmap"}[kind]
    each = {"own": "b = bytearray(80 << 20)", "copied": "", "shared": "b = mmap.mmap(-1, 80 << 20)"}
    return (
        f"import os, time\n{first}\nfor _ in range(6):\n if os.fork() == 0:\n  {each[kind]}\n"
        "  for i in range(0, len(b), 4096): b[i] = 1\n  time.sleep(3)\n  print('unharmed')\n"
        "  os._exit(0)\nfor _ in range(6): os.wait()"
    )


@pytest.mark.usefixtures("parents")
async def test_a_control_group_limits_the_memory_of_many_processes(work: Path, hungry: str) -> None:
    policy = ExecutionPolicy.in_(work, max_memory=250_000_000, timeout=20)
    result = await SandlockSandbox().run(["python3", "-c", hungry], policy)
    assert result.out_of_memory
    assert result.stdout.count("unharmed") <= 3
    assert own_groups() == []


@pytest.mark.usefixtures("no_control_groups")
async def test_without_a_group_many_processes_that_use_too_much_memory_are_ended(
    work: Path, hungry: str
) -> None:
    policy = ExecutionPolicy.in_(work, max_memory=250_000_000, timeout=20)
    result = await SandlockSandbox().run(["python3", "-c", hungry], policy)
    assert result.exit_code == 137
    assert "250000000 bytes of memory" in result.stderr
    assert "unharmed" not in result.stdout


async def test_reserved_addresses_are_not_memory(work: Path) -> None:
    script = "import mmap; mmap.mmap(-1, 3 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0)"
    policy = ExecutionPolicy.in_(work, max_memory=200_000_000, timeout=20)
    result = await SandlockSandbox().run(["python3", "-c", script], policy)
    assert (result.exit_code, result.stderr) == (0, "")


async def test_a_readable_path_in_a_writable_one_is_refused(work: Path) -> None:
    (work / "kept").mkdir()
    with pytest.raises(SandboxError, match=r"readable path .*kept read-only.*use bubblewrap"):
        await bash("true", ExecutionPolicy.in_(work, readable=[work / "kept"]))


async def test_a_path_that_is_gone_is_refused(work: Path) -> None:
    (work / "gone").mkdir()
    policy = ExecutionPolicy.in_(work, writable=[work / "gone"])
    (work / "gone").rmdir()
    with pytest.raises(SandboxError, match="gone, which can't be opened: No such file"):
        await bash("true", policy)


def python_of_a_normal_user(user: list[str]) -> list[str] | None:
    """A command for Python that may be run by somebody who can't look into root's home."""
    paths = os.pathsep.join(path for path in sys.path if path)
    for program in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        command = [*user, "env", f"PYTHONPATH={paths}", program, "-B"]
        tried = subprocess.run(
            [*command, "-c", "import stepwell"], capture_output=True, check=False
        )
        if tried.returncode == 0:
            return command
    return None


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root, setpriv")
def test_a_normal_user_is_confined_as_well() -> None:
    command = python_of_a_normal_user(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "-C", "/"]
    )
    if command is None:
        pytest.skip("a normal user can't reach a Python with stepwell")
    probe = Path(__file__).with_name("sandlock_as_user.py")
    told = subprocess.run([*command, str(probe)], capture_output=True, text=True, check=False)
    assert (told.stdout, told.stderr, told.returncode) == ("confined\n", "", 0)
