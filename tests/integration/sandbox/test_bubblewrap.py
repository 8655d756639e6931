"""Bubblewrap: each part of a policy is honoured, whatever a command tries."""

import asyncio
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox import ExecutionPolicy, SandboxResult
from stepwell.sandbox.bubblewrap import BubblewrapSandbox
from stepwell.sandbox.environment import interpreter_paths

pytestmark = pytest.mark.usefixtures("nothing_left")

PYTHON = "/usr/bin/python3"
SECRET = "canary-c0ffee"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


def setting() -> str:
    """One of the kernel's that does no harm."""
    return Path("/proc/sys/vm/overcommit_ratio").read_text()


async def shell(
    sandbox: BubblewrapSandbox, text: str, place: Path, **limits: object
) -> SandboxResult:
    policy = ExecutionPolicy.in_(place, **({"timeout": 60} | limits))  # type: ignore[arg-type]
    return await sandbox.run(["sh", "-c", text], policy)


async def python(
    sandbox: BubblewrapSandbox, text: str, place: Path, **limits: object
) -> SandboxResult:
    if not os.access(PYTHON, os.X_OK):
        pytest.skip(f"there is no {PYTHON}")
    policy = ExecutionPolicy.in_(place, **({"timeout": 60} | limits))  # type: ignore[arg-type]
    return await sandbox.run([PYTHON, "-c", text], policy)


async def test_what_is_outside_can_be_neither_read_nor_written(
    bubblewrap: BubblewrapSandbox, place: Path, outside: Path
) -> None:
    (place / "link").symlink_to(outside)
    result = await shell(
        bubblewrap,
        f"cat {outside}/secret link/secret ../outside/secret; echo x >{outside}/new;"
        f" echo x >link/new; echo x >../outside/new; rm -rf {outside} link/*",
        place,
    )
    assert SECRET not in result.stdout
    assert os.listdir(outside) == ["secret"]


async def test_b286_readable_paths_are_read_only(
    bubblewrap: BubblewrapSandbox, place: Path, outside: Path
) -> None:
    text = f"cat {outside}/secret; echo x >>{outside}/secret; touch {outside}/new; true"
    result = await shell(bubblewrap, text, place, readable=[outside])
    assert result.stdout == SECRET
    assert "Read-only file system" in result.stderr
    assert (outside / "secret").read_text() == SECRET
    file = await shell(bubblewrap, f"cat {outside}/*", place, readable=[outside / "secret"])
    assert file.stdout == SECRET


async def test_writable_paths_can_be_written(
    bubblewrap: BubblewrapSandbox, place: Path, outside: Path
) -> None:
    await shell(bubblewrap, f"echo x >{outside}/new", place, writable=[outside])
    assert (outside / "new").read_text() == "x\n"


async def test_the_deeper_path_decides(
    bubblewrap: BubblewrapSandbox, place: Path, tmp_path: Path
) -> None:
    kept = place / "kept"
    kept.mkdir()
    text = f"echo x >kept/new; echo y >new; echo z >{tmp_path}/new; true"
    await shell(bubblewrap, text, place, readable=[kept, tmp_path])
    assert list(kept.iterdir()) == []
    assert (place / "new").read_text() == "y\n"
    assert not (tmp_path / "new").exists()


async def test_a_directory_that_became_a_link_is_refused(
    bubblewrap: BubblewrapSandbox, place: Path, outside: Path
) -> None:
    policy = ExecutionPolicy.in_(place)
    os.rmdir(place)
    os.symlink(outside, place)
    with pytest.raises(SandboxError, match=f"{place}, which was moved, removed or made a link"):
        await bubblewrap.run(["cat", "secret"], policy)


async def test_a_parent_that_became_a_link_is_refused(
    bubblewrap: BubblewrapSandbox, place: Path, outside: Path
) -> None:
    inner = place / "a" / "b"
    inner.mkdir(parents=True)
    policy = ExecutionPolicy.in_(inner)
    inner.rmdir()
    os.rmdir(inner.parent)
    (outside / "b").mkdir()
    (place / "a").symlink_to(outside)
    with pytest.raises(SandboxError, match="made a link since"):
        await bubblewrap.run(["cat", "../secret"], policy)


async def test_secrets_and_sockets_of_the_system_are_not_there(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    hidden = (
        "/etc/shadow /etc/sudoers /etc/ssl/private /root /var/run/docker.sock /run/docker.sock "
        "/run/dbus /sys/fs /home/* /proc/1/root/root /etc/hostname /boot /var/log /mnt /opt"
    )
    result = await shell(bubblewrap, f"for p in {hidden}; do [ -e $p ] && echo $p; done", place)
    assert result.stdout == "/home/sandbox\n"


async def test_the_kernel_and_the_system_can_not_be_changed(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    before = setting()
    result = await shell(
        bubblewrap,
        "for p in /proc/sys/vm/overcommit_ratio /proc/sysrq-trigger /usr/new /new /dev/new /etc/new"
        " /etc/passwd /proc/self/oom_score_adj; do (echo 51 >$p) && echo wrote $p; done; true",
        place,
    )
    assert result.stdout == ""
    assert setting() == before


async def test_the_environment_and_other_processes_are_hidden(
    bubblewrap: BubblewrapSandbox, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", SECRET)
    monkeypatch.setenv("EDITOR", "the-editor")
    child = await asyncio.create_subprocess_exec("sleep", "100", env={"CHILD": SECRET})
    try:
        result = await shell(
            bubblewrap,
            f"env; cat /proc/*/environ /proc/{os.getpid()}/environ; echo; ls /proc | grep '^[0-9]'",
            place,
            inherited_environment=["EDITOR"],
            environment={"GIVEN": "the value"},
        )
    finally:
        child.kill()
        await child.wait()
    assert SECRET not in result.stdout
    assert "EDITOR=the-editor\n" in result.stdout
    assert "GIVEN=the value\n" in result.stdout
    assert "HOME=/home/sandbox\n" in result.stdout
    pids = [int(line) for line in result.stdout.splitlines() if line.isdigit()]
    assert len(pids) < 8


async def test_values_of_variables_are_not_in_the_list_of_processes(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    lines: list[bytes] = []

    def look(*_: object) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # a process of somebody else that is gone by now
                lines.append(path.read_bytes())

    policy = ExecutionPolicy.in_(place, environment={"GIVEN": SECRET})
    result = await bubblewrap.run(["sh", "-c", "echo $GIVEN; sleep 0.2"], policy, on_output=look)
    assert result.stdout == f"{SECRET}\n"
    assert any(b"bwrap" in line for line in lines)
    assert not any(SECRET.encode() in line for line in lines)


@pytest.mark.parametrize("network", [False, True])
async def test_the_network_is_there_only_if_it_is_allowed(
    bubblewrap: BubblewrapSandbox, place: Path, network: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('in')"
        result = await python(bubblewrap, code, place, network=network)
    assert (result.stdout == "in\n") is network


async def test_unix_sockets_of_others_can_not_be_reached(
    bubblewrap: BubblewrapSandbox, place: Path, outside: Path
) -> None:
    named, abstract = str(outside / "socket"), f"\0stepwell-{os.getpid()}"
    code = f"""
import socket
for address in ({named!r}, {abstract!r}):
    try:
        socket.socket(socket.AF_UNIX).connect(address)
        print("in")
    except OSError as error:
        print(type(error).__name__)
"""
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for listener, address in ((first, named), (second, abstract)):
            listener.bind(address)
            listener.listen()
        result = await python(bubblewrap, code, place)
    assert result.stdout == "FileNotFoundError\nConnectionRefusedError\n"


async def test_within_a_command_localhost_and_sockets_work(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    code = """
import socket
server = socket.create_server(("localhost", 0))
socket.create_connection(("localhost", server.getsockname()[1]))
socket.socketpair()
print("works")
"""
    assert (await python(bubblewrap, code, place)).stdout == "works\n"


async def test_rights_are_gone_and_can_not_be_won_back(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    result = await shell(
        bubblewrap, "id -u; grep -E 'Cap(Eff|Prm|Bnd|Amb)|NoNewPrivs' /proc/self/status", place
    )
    lines = result.stdout.splitlines()
    assert lines[0] == str(os.geteuid() or 1000)
    assert {line.split()[1] for line in lines[1:5]} == {"0" * 16}
    assert lines[5].split()[1] == "1"


async def test_doors_into_the_kernel_are_closed(bubblewrap: BubblewrapSandbox, place: Path) -> None:
    code = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    libc.syscall(number, *arguments)
    print(errno.errorcode.get(ctypes.get_errno()))
call(250, 0, -3, 0)            # keyctl
call(272, 0x10000000)          # unshare, a user namespace
call(56, 0x10000011, 0, 0, 0)  # clone, with one
call(435, 0, 0)                # clone3
call(425, 1, 0)                # io_uring_setup
call(0x40000027)               # getpid, of another architecture
for family in (40, 17, 38):    # to a virtual machine's host, raw packets, kernel crypto
    try:
        socket.socket(family, socket.SOCK_STREAM)
        print("open")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of system calls are those of x86_64")
    result = await python(bubblewrap, code, place)
    calls = ["EPERM", "EPERM", "EPERM", "ENOSYS", "EPERM", "ENOSYS"]
    assert result.stdout.split() == calls + ["EAFNOSUPPORT"] * 3


async def test_no_program_with_its_owners_rights_is_left_behind(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    code = """
import os
new = os.O_CREAT | os.O_WRONLY
for mode in (0o4755, 0o2755, 0o6755):
    for number, make in enumerate((
        lambda name: os.close(os.open(name, new, mode)),
        lambda name: os.mknod(name, mode),
        lambda name: (os.close(os.open(name, new, 0o755)), os.chmod(name, mode)),
        lambda name: os.fchmod(os.open(name, new, 0o755), mode),
    )):
        try:
            make(f"{mode}-{number}")
            print("made", mode, number)
        except PermissionError:
            pass
os.umask(0)
os.mkdir("folder", 0o1777)
os.chmod("folder", 0o1755)
print("done")
"""
    result = await python(bubblewrap, code, place)
    assert result.stdout == "done\n", result.stderr
    assert not any(os.stat(place / name).st_mode & 0o6000 for name in os.listdir(place))


async def test_threads_processes_and_shells_still_work(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    code = """
import multiprocessing, subprocess, threading
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print(subprocess.run("echo $0 | cat", shell=True, capture_output=True, text=True).stdout.strip())
with multiprocessing.Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))
"""
    result = await python(bubblewrap, code, place)
    assert result.stdout == "thread\n/bin/sh\n[1, 2]\n"


async def test_memory_is_limited(bubblewrap: BubblewrapSandbox, place: Path) -> None:
    code = "data = bytearray(300_000_000); print('got it')"
    limited = await python(bubblewrap, code, place, max_memory=100_000_000)
    assert limited.exit_code != 0
    assert limited.stdout == ""
    enough = await python(bubblewrap, code, place, max_memory=600_000_000)
    assert enough.stdout == "got it\n"
    assert (await python(bubblewrap, code, place, max_memory=None)).stdout == "got it\n"


async def test_a_fork_bomb_is_held(bubblewrap: BubblewrapSandbox, place: Path) -> None:
    code = """
import os, time
children = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(100)
        children += 1
except BlockingIOError:
    print(children)
"""
    result = await python(bubblewrap, code, place, max_processes=20)
    assert 10 <= int(result.stdout) <= 20
    bomb = "b() { b | b & }; b; sleep 100"
    result = await shell(bubblewrap, bomb, place, max_processes=30, timeout=1)
    assert result.exit_code == 137 or "fork" in result.stderr


async def test_private_folders_are_bounded_and_gone_afterwards(
    bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    text = """
for folder in $TMPDIR $HOME /run /var/tmp /dev/shm; do
    echo kept >$folder/file
    df -kP $folder | tail -n 1
done
"""
    result = await shell(bubblewrap, text, place, max_memory=100 * 1024 * 1024)
    assert [int(line.split()[1]) for line in result.stdout.splitlines()] == [100 * 1024] * 5
    again = await shell(bubblewrap, "cat /tmp/* /run/* /dev/shm/* /var/tmp/* $HOME/*", place)
    assert again.stdout == ""


async def test_this_python_can_be_made_readable(bubblewrap: BubblewrapSandbox, place: Path) -> None:
    policy = ExecutionPolicy.in_(place, readable=interpreter_paths())
    code = "import msgspec, sys; print(sys.version_info[:2])"
    result = await bubblewrap.run([sys.executable, "-c", code], policy)
    assert result.stdout == f"{sys.version_info[:2]}\n", result.stderr


async def test_a_program_that_is_no_bubblewrap_is_refused(place: Path) -> None:
    for binary, reason in (("/no/such/bwrap", "can't be run"), ("/bin/true", "is too old")):
        sandbox = BubblewrapSandbox(binary)
        assert reason in str(sandbox.unavailable())
        with pytest.raises(SandboxError, match=reason):
            await sandbox.run(["true"], ExecutionPolicy.in_(place))
